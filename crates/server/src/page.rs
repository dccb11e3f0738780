//! The page: the web app at `/`, and the addresses under `/app/` that it alone uses.
//!
//! ```text
//! token or key -> door: a cookie -> routes -> Chats (what was said)
//!                                      |
//!                                   answering: Turn -> Queue -> Ticket -> live text -> Chats
//!                                                                            |
//!                                                             watchers, one a tab, any time
//! ```
//!
//! An answer belongs to the server, not to the tab that asked for it: a task owns the ticket, writes down what comes, and lets whoever
//! wants to watch. So a page that is reloaded, or closed and opened elsewhere, finds its answer. What is kept, and how, is the
//! business of `ouzel_chats`; the files of the page are built from `app/` and lie in `page/` beside the sources.

mod answering;
mod door;
mod files;
mod live;
mod routes;
mod turn;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ouzel_chats::{Chats, ChatsError};
use thiserror::Error;
use tokio::task::spawn_blocking;

use crate::error::Refusal;
use door::Door;
use live::Live;

pub(crate) use routes::router;

/// Why there can be no page.
#[derive(Debug, Error)]
#[error(
    "the system gives no random numbers, and without them nobody can be told from anybody else: {0}"
)]
pub struct PageError(getrandom::Error);

/// The page of one server.
pub struct Page {
    chats: Arc<Chats>,
    door: Door,
    live: Live,
    /// Held from the look at what is being answered until a new answer is among it.
    asking: tokio::sync::Mutex<()>,
    /// Held while a part of the settings is changed.
    changing: tokio::sync::Mutex<()>,
}

impl Page {
    /// A page over these conversations, locked by a new token.
    ///
    /// # Errors
    /// [`PageError`].
    pub fn new(chats: Chats) -> Result<Arc<Page>, PageError> {
        Ok(Arc::new(Page {
            chats: Arc::new(chats),
            door: Door::new().map_err(PageError)?,
            live: Live::default(),
            asking: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }))
    }

    /// Where a browser finds it, with the token that opens it once. The token is behind `#`, so no request carries it but the one that
    /// hands it in.
    pub fn address(&self, listening: SocketAddr) -> String {
        let ip = match listening.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        let at = SocketAddr::new(ip, listening.port());
        format!("http://{at}/#{}", self.door.token())
    }

    /// Says where the server listens, before anybody can ask.
    pub(crate) fn listens(&self, at: SocketAddr) {
        self.door.listens(at.port());
    }

    /// Waits until no answer is being written.
    pub(crate) async fn settled(&self) {
        self.live.settled().await;
    }

    /// Asks the conversations something, off the threads that serve connections.
    async fn kept<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Chats) -> Result<T, ChatsError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let chats = self.chats.clone();
        let broken = |_| Refusal::Internal("the conversations could not be asked".to_owned());
        let result = spawn_blocking(move || ask(&chats)).await.map_err(broken)?;
        result.map_err(|error| match error {
            ChatsError::Missing => Refusal::NotFound("such conversation or message".to_owned()),
            ChatsError::NothingToAnswer => Refusal::invalid("text", format!("text: {error}")),
            ChatsError::TooNew { .. } | ChatsError::File(_) => Refusal::Internal(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_one_that_a_browser_can_open() {
        let page = Page::new(Chats::in_memory().unwrap()).unwrap();
        for (listening, expected) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080/#"),
            ("0.0.0.0:80", "http://127.0.0.1:80/#"),
            ("[::]:9000", "http://[::1]:9000/#"),
        ] {
            let address = page.address(listening.parse().unwrap());
            assert!(address.starts_with(expected), "{address}");
        }
    }
}
