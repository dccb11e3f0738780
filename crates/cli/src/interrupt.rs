//! Ctrl-C: stops the answer that is being made, pauses the installation, or drains the server; where there is none of them, or at
//! the second time, it stops the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ouzel::Cancel;
use ouzel_server::Stop;

use crate::exit;

/// What can be stopped.
enum Work {
    /// An answer.
    Answer(Cancel),
    /// Anything that looks at a flag.
    Flag(Arc<AtomicBool>),
    /// A server.
    Server(Stop),
}

/// What is under way.
static CURRENT: Mutex<Option<Work>> = Mutex::new(None);

/// Takes Ctrl-C over.
pub fn listen() -> anyhow::Result<()> {
    ctrlc::set_handler(|| match &*current() {
        Some(Work::Answer(cancel)) if !cancel.is_cancelled() => cancel.cancel(),
        Some(Work::Flag(flag)) if !flag.swap(true, Ordering::Relaxed) => {}
        Some(Work::Server(stop)) if stop.advance() => {}
        _ => std::process::exit(i32::from(exit::INTERRUPTED)),
    })?;
    Ok(())
}

/// While it lives, Ctrl-C stops an answer.
pub struct Armed(Cancel);

impl Armed {
    /// From now on Ctrl-C cancels a new handle.
    pub fn new() -> Armed {
        let cancel = Cancel::new();
        *current() = Some(Work::Answer(cancel.clone()));
        Armed(cancel)
    }

    /// The handle for the answer.
    pub fn cancel(&self) -> &Cancel {
        &self.0
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        *current() = None;
    }
}

/// While it lives, Ctrl-C sets a flag.
pub struct Flagged;

impl Flagged {
    /// From now on Ctrl-C sets this one.
    pub fn new(flag: &Arc<AtomicBool>) -> Flagged {
        *current() = Some(Work::Flag(flag.clone()));
        Flagged
    }
}

impl Drop for Flagged {
    fn drop(&mut self) {
        *current() = None;
    }
}

/// While it lives, Ctrl-C drains a server.
pub struct Stoppable;

impl Stoppable {
    /// From now on Ctrl-C stops this one.
    pub fn new(stop: &Stop) -> Stoppable {
        *current() = Some(Work::Server(stop.clone()));
        Stoppable
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        *current() = None;
    }
}

fn current() -> MutexGuard<'static, Option<Work>> {
    // Nothing panics while the lock is held, and the value would still be whole.
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}
