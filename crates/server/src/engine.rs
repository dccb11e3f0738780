//! The seam between HTTP and the model: what a server asks of an engine.
//!
//! [`Engine`] is shared by all requests and does what needs no session: rendering, tokens, grammars. [`Loaded`] is the session; it lives
//! on the one worker thread. `model` is the real pair, `script` the twin with which the doors are tested.

use ouzel::{Cancel, TokenConstraint};

use crate::error::Refusal;
use crate::experts::Experts;
use crate::metrics::Spent;
use crate::turn::{Outcome, Piece, Settings, Turn};

/// What a server says about its model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Tokens of context.
    pub context: usize,
    /// Size of the vocabulary.
    pub vocabulary: usize,
    /// Bytes that the model takes while it is loaded.
    pub memory_bytes: u64,
    /// How they are spent.
    pub plan: Plan,
}

/// How the memory of a model is spent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Retained expert slots of all layers at a full context.
    pub slots: usize,
    /// Layers with routed experts.
    pub layers: usize,
    /// Routed experts of each layer.
    pub experts: usize,
    /// What the bytes are for, and how many.
    pub lines: Vec<(String, u64)>,
}

/// What needs no session, for any thread.
pub trait Engine: Send + Sync + 'static {
    /// What the model is.
    fn facts(&self) -> Facts;

    /// Renders, counts and checks a turn.
    ///
    /// # Errors
    /// Whatever the request has wrong that only the model can tell.
    fn prepare(&self, turn: Turn) -> Result<Prepared, Refusal>;

    /// Text to ids; `special` takes control tokens in it for what they are.
    ///
    /// # Errors
    /// A model without a tokenizer.
    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, Refusal>;

    /// Ids to text.
    ///
    /// # Errors
    /// An id outside the vocabulary, a model without a tokenizer.
    fn detokenize(&self, ids: &[u32]) -> Result<String, Refusal>;

    /// The memory with which a context of so many tokens could be served, in bytes.
    fn memory_for(&self, context: usize) -> Option<u64>;

    /// Loads the weights. Called on the worker thread.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`].
    fn load(&self) -> Result<Box<dyn Loaded>, Refusal>;
}

/// A loaded model.
pub trait Loaded {
    /// Makes one answer, step by step, and stops soon after `cancel` says so.
    ///
    /// # Errors
    /// Whatever went wrong; the model may be used again.
    fn answer(
        &mut self,
        prepared: Prepared,
        cancel: &Cancel,
        emit: &mut dyn FnMut(Step),
    ) -> Result<(), Refusal>;
}

/// What happens while an answer is made.
#[derive(Debug)]
pub enum Step {
    /// What it took until now; before the pieces that came of it.
    Spent(Spent),
    /// How the experts lie, and what became of them since this was last said; twice a second at most, and at the end.
    Experts(Experts),
    /// A piece of it.
    Piece(Piece),
    /// Its end. The engine may go on for a moment, to keep what it computed; nobody waits for that but the next turn.
    Done(Outcome),
}

/// A turn that the model could begin at once.
pub struct Prepared {
    /// The prompt.
    pub ids: Vec<u32>,
    /// How the answer is made.
    pub settings: Settings,
    /// The names of the tools that the prompt offers.
    pub tool_names: Vec<String>,
    /// What the answer must look like.
    pub constraint: Option<Box<dyn TokenConstraint>>,
    /// What was changed of the request so that it could be served.
    pub warnings: Vec<String>,
}
