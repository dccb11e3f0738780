//! Stopping an answer from elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A handle that stops an answer from another thread or from a signal handler. Clones share one state.
///
/// A prompt stops between two chunks, an answer between two tokens; what was computed until then stays in the session.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A handle that was not used yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Asks for the stop. There is no way back: each answer takes a handle of its own.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the stop was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
