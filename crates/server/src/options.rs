//! What whoever starts a server may choose.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::documents::Documents;
use crate::installer::Installer;
use crate::models::Models;
use crate::page::Page;

/// When a model is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loading {
    /// Before anything listens; if it cannot be, there is no server.
    First,
    /// While the page is open already, which says so if it cannot be.
    Meanwhile,
    /// When somebody asks for it, or asks it something.
    Asked,
}

/// How a server listens, whom it lets in, how much it lets wait.
#[derive(Clone)]
pub struct ServerOptions {
    /// The address or the name to listen on. Only with a key anything but loopback.
    pub host: String,
    /// The port; 0 takes a free one.
    pub port: u16,
    /// Whoever does not say this key is refused.
    pub api_key: Option<String>,
    /// Origins of pages in browsers that may ask, such as `https://example.org`; `*` is all.
    pub cors_origins: Vec<String>,
    /// Turns that may wait while one is answered.
    pub queue: usize,
    /// The most time for a turn, the queue included.
    pub time_limit: Option<Duration>,
    /// Without a turn for this long the model's memory is given back.
    pub idle_unload: Option<Duration>,
    /// When the model is loaded.
    pub loading: Loading,
    /// Why the model that was wanted could not be had, where the page is to say it.
    pub problem: Option<String>,
    /// Installs models for the page.
    pub installer: Option<Arc<dyn Installer>>,
    /// Reads attached files that are no plain text.
    pub documents: Option<Arc<dyn Documents>>,
    /// Other models that can be chosen.
    pub models: Option<Arc<dyn Models>>,
    /// Whether SIGTERM drains the server, where there are signals.
    pub on_terminate: bool,
    /// The web app; `/` is nothing without it.
    pub page: Option<Arc<Page>>,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            host: "127.0.0.1".to_owned(),
            port: 8080,
            api_key: None,
            cors_origins: Vec::new(),
            queue: 16,
            time_limit: None,
            idle_unload: None,
            loading: Loading::First,
            problem: None,
            installer: None,
            documents: None,
            models: None,
            on_terminate: false,
            page: None,
        }
    }
}

impl ServerOptions {
    /// Whether the address, as far as its text says, is one of this machine only.
    pub fn is_local_only(&self) -> bool {
        let is_loopback = self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        is_loopback || self.host.eq_ignore_ascii_case("localhost")
    }
}
