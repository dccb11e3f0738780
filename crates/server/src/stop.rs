//! How a server is told to end: first to finish what it has, then at once.

use std::sync::Arc;

use tokio::sync::watch;

/// How far a server is on its way to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It serves.
    Serving,
    /// It takes nothing more and finishes what it has.
    Draining,
    /// It drops everything.
    Forced,
}

/// A handle that ends a server, from any thread and from a signal handler's thread. Clones share one state.
#[derive(Clone, Debug)]
pub struct Stop(Arc<watch::Sender<Stage>>);

impl Default for Stop {
    fn default() -> Stop {
        Stop::new()
    }
}

impl Stop {
    /// A handle that was not used yet.
    pub fn new() -> Stop {
        Stop(Arc::new(watch::Sender::new(Stage::Serving)))
    }

    /// The first call drains, the second one forces. Whether this was the first.
    pub fn advance(&self) -> bool {
        let mut was_first = false;
        self.0.send_modify(|stage| {
            was_first = *stage == Stage::Serving;
            *stage = if was_first {
                Stage::Draining
            } else {
                Stage::Forced
            };
        });
        was_first
    }

    pub(crate) fn watch(&self) -> watch::Receiver<Stage> {
        self.0.subscribe()
    }
}
