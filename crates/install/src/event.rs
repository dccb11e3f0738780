//! What an installation or a verification tells of its progress, as values: a terminal, a program and a page render them alike.

use std::time::Duration;

/// A part of the work with a progress of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// What an earlier run left is compared with its record.
    Checking,
    /// Bytes of the checkpoint come and land.
    Fetching,
    /// Finished files are hashed.
    Verifying,
}

/// One piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A well-known file is absent from the checkpoint; the model installs without it.
    Missing {
        /// The file.
        file: &'static str,
        /// What will not work.
        consequence: &'static str,
    },
    /// What an unfinished installation of another checkpoint or revision left in the same place is removed.
    Discards {
        /// What it took.
        bytes: u64,
    },
    /// A phase begins.
    Begins {
        /// Which.
        phase: Phase,
        /// Bytes in all.
        total_bytes: u64,
        /// Bytes of them that are done already.
        done_bytes: u64,
    },
    /// So many more bytes of the phase are done.
    Advances {
        /// How many.
        bytes: u64,
    },
    /// A request failed and is made again.
    Retries {
        /// The file of the checkpoint.
        file: String,
        /// What went wrong.
        reason: String,
        /// How long it waits first.
        wait: Duration,
    },
}
