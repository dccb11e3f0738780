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
mod attach;
mod door;
mod files;
mod fit;
mod install;
mod live;
mod models;
mod routes;
mod spare;
mod turn;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use ouzel_chats::{Chats, ChatsError};
use thiserror::Error;
use tokio::task::spawn_blocking;

use crate::error::Refusal;
use crate::models::Wish;
use crate::stop::Stop;
use door::Door;
use live::Live;
use spare::Spare;

pub(crate) use door::secret;
pub(crate) use install::Installation;
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
    spare: OnceLock<Spare>,
    stop: OnceLock<Stop>,
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
            spare: OnceLock::new(),
            stop: OnceLock::new(),
            live: Live::default(),
            asking: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
        }))
    }

    /// How the model was opened that was chosen on the page last, as far as somebody chose one.
    pub fn wish(&self) -> Wish {
        models::kept_wish(&self.chats)
    }

    /// Where a browser finds it, with the token that opens it once. The token is behind `#`, so no request carries it but the one that
    /// hands it in.
    pub fn address(&self, listening: SocketAddr) -> String {
        with_token(listening, &self.door.token())
    }

    /// Tells another address that opens once, and again another one whenever it was used, from a thread that may wait: so that who starts the program a
    /// second time finds the page. Whoever hears it, keeps it from others. One listener hears it; a second call says nothing.
    ///
    /// # Errors
    /// [`PageError`].
    pub fn lend(
        &self,
        listening: SocketAddr,
        tell: impl Fn(Option<&str>) + Send + Sync + 'static,
    ) -> Result<(), PageError> {
        let tell = move |token: Option<&str>| {
            let address = token.map(|token| with_token(listening, token));
            tell(address.as_deref());
        };
        let spare = Spare::new(Box::new(tell)).map_err(PageError)?;
        // The page of a server that listens twice is told of as it was first.
        let _ = self.spare.set(spare);
        Ok(())
    }

    /// Whether this is a token that opens now.
    async fn takes(self: &Arc<Page>, given: String) -> bool {
        let page = self.clone();
        let taken = spawn_blocking(move || {
            page.door.takes(&given) || page.spare.get().is_some_and(|spare| spare.takes(&given))
        });
        taken.await.unwrap_or(false)
    }

    /// Says where the server listens and what ends it, before anybody can ask.
    pub(crate) fn listens(&self, at: SocketAddr, stop: &Stop) {
        self.door.listens(at.port());
        // A server has one handle; a second call would say the same.
        let _ = self.stop.set(stop.clone());
    }

    /// Lets what is being answered come to its end, and ends the server; a second time, at once.
    fn end(&self) {
        if let Some(stop) = self.stop.get() {
            stop.advance();
        }
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

/// The page's address as a browser of this machine can open it.
fn with_token(listening: SocketAddr, token: &str) -> String {
    let ip = match listening.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let at = SocketAddr::new(ip, listening.port());
    format!("http://{at}/#{token}")
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
