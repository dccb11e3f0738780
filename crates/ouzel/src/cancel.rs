//! Stopping an answer from elsewhere.

use ouzel_engine::Stop;

/// A handle that stops an answer from another thread or from a signal handler. Clones share one state.
///
/// A prompt stops after some rows of a layer, an answer between two tokens. Whole chunks of a prompt and the tokens of an answer stay in
/// the session; of a chunk that was under way nothing does, see [`Generation`](crate::Generation).
#[derive(Clone, Debug, Default)]
pub struct Cancel(pub(crate) Stop);

impl Cancel {
    /// A handle that was not used yet.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Asks for the stop. There is no way back: each answer takes a handle of its own.
    pub fn cancel(&self) {
        self.0.ask();
    }

    /// Whether the stop was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_asked()
    }
}
