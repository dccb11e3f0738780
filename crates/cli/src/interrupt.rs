//! Ctrl-C: stops the answer that is being made; where none is, or at the second time, the program.

use std::sync::{Mutex, MutexGuard, PoisonError};

use ouzel::Cancel;

use crate::exit;

/// The answer that is being made.
static CURRENT: Mutex<Option<Cancel>> = Mutex::new(None);

/// Takes Ctrl-C over.
pub fn listen() -> anyhow::Result<()> {
    ctrlc::set_handler(|| match &*current() {
        Some(cancel) if !cancel.is_cancelled() => cancel.cancel(),
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
        *current() = Some(cancel.clone());
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

fn current() -> MutexGuard<'static, Option<Cancel>> {
    // Nothing panics while the lock is held, and the value would still be whole.
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}
