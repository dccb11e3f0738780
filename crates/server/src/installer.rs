//! What installs models for the page, handed in by whoever may go to the network: this room imports no installer.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub use crate::wire::setup::{Found, Offer, Work, WorkPhase};

/// Installs, verifies and repairs. All calls block, some of them for hours.
pub trait Installer: Send + Sync + 'static {
    /// What is known without asking anybody.
    fn found(&self) -> Found;

    /// Asks the hub what there is to fetch.
    ///
    /// # Errors
    /// One line that says what to do.
    fn offer(&self) -> Result<Offer, String>;

    /// Does it, until it is done or `cancel` is set. What was done before is not done again.
    ///
    /// # Errors
    /// [`Trouble`].
    fn run(
        &self,
        work: &Work,
        cancel: &Arc<AtomicBool>,
        tell: &mut dyn FnMut(News),
    ) -> Result<Ended, Trouble>;

    /// Removes what an installation that was cut short has left.
    ///
    /// # Errors
    /// One line that says what to do.
    fn discard(&self) -> Result<(), String>;
}

/// How work goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A part of it begins.
    Begins {
        /// Which.
        phase: WorkPhase,
        /// Bytes in all.
        total_bytes: u64,
        /// Bytes of them that are done already.
        done_bytes: u64,
    },
    /// So many more bytes of the part are done.
    Advances {
        /// How many.
        bytes: u64,
    },
    /// Something is tried again.
    Retries {
        /// What went wrong.
        reason: String,
        /// How long it waits first.
        wait: Duration,
    },
}

/// How work ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model of this name is there, and whole.
    Whole(String),
    /// It is not whole; what is wrong, in lines.
    Damaged(String, Vec<String>),
}

/// Why work did not end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It was asked to pause.
    Paused,
    /// One line that says what to do.
    Failed(String),
}
