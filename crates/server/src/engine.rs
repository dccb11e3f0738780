//! The seam between HTTP and the model: what a server asks of an engine.
//!
//! [`Engine`] is shared by all requests and does what needs no session: rendering, tokens, grammars. [`Loaded`] is the session; it lives
//! on the one worker thread. `model` is the real pair, `script` the twin with which the doors are tested.

use ouzel::Cancel;
use ouzel_tokenizer::grammar::Demand;

use crate::error::Refusal;
use crate::turn::{Settings, Turn};

pub use crate::turn::Step;
pub use ouzel_service::OnLoss;

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
    /// Bytes of weights that are read before the model answers.
    pub resident_bytes: u64,
    /// What the bytes are for, and how many.
    pub lines: Vec<(String, u64)>,
}

/// A process that has the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Its number, if there is one.
    pub pid: Option<u32>,
    /// What it has resident now, where the system says; 0 without a process.
    pub resident_bytes: Option<u64>,
    /// What it may have resident.
    pub budget_bytes: u64,
}

impl Process {
    /// This one.
    pub fn own(budget_bytes: u64) -> Process {
        Process {
            pid: Some(std::process::id()),
            resident_bytes: ouzel::resident_memory(),
            budget_bytes,
        }
    }
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

    /// The process that has the model, or would have it.
    fn process(&self) -> Process;

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

    /// What could not be kept for later, and why, as far as this was not asked before.
    fn take_troubles(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// Writes down what outlives the model, which answers no more.
    fn put_away(&mut self) {}

    /// Whether the model is gone without having been given back, so that it must be loaded anew. One in this process never is.
    fn is_lost(&self) -> bool {
        false
    }

    /// Has somebody told, once and on any thread, when it is.
    fn on_loss(&self, tell: OnLoss) {
        drop(tell);
    }
}

/// A turn that the model could begin at once.
pub struct Prepared {
    /// The prompt.
    pub ids: Vec<u32>,
    /// How the answer is made.
    pub settings: Settings,
    /// The names of the tools that the prompt offers.
    pub tool_names: Vec<String>,
    /// What the answer must look like; checked, and compiled by whoever owns the model.
    pub demand: Option<Demand>,
    /// What was changed of the request so that it could be served.
    pub warnings: Vec<String>,
}
