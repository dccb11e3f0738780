//! What a caller may choose about a session.

use ouzel_storage::IoMode;

/// How activations and the KV cache are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// f32 activations and f32 keys and values: what the golden logits are held against.
    Exact,
    /// int8 activations and f16 keys and values.
    #[default]
    Fast,
}

/// Options of a session. `None` leaves the choice to the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How activations and the KV cache are kept.
    pub precision: Precision,
    /// Bytes that the process may make resident; 2 GiB where nothing is said. [`Model::auto_memory`](crate::Model::auto_memory) proposes a
    /// share of what is free.
    pub memory: Option<u64>,
    /// Tokens of context; 4,096 or the model's maximum, whichever is less, where nothing is said.
    pub max_context: Option<u32>,
    /// Retained expert slots of each layer; what the memory budget leaves room for where nothing is said.
    pub slots: Option<u32>,
    /// Prompt tokens that go through a layer together.
    pub chunk: Option<u32>,
    /// How expert and resident weights are read.
    pub io: IoMode,
    /// Computing threads; one a processor where nothing is said.
    pub threads: Option<u32>,
    /// Rows of logits to hold at once: 1 serves generation, more make an evaluation faster.
    pub logits_rows: u32,
    /// Bytes of the arena that the caller may borrow to keep what a session has computed, see [`Session::lend`](crate::Session::lend);
    /// `None` where it keeps nothing.
    pub kept_bytes: Option<u64>,
    /// Bytes that the caller keeps resident beside the engine: tokenizer, sampler.
    pub reserved_bytes: u64,
    /// Bytes that the caller keeps resident for ends that the engine does not know.
    pub other_bytes: u64,
    /// Bytes of the program itself; 14 MiB where nothing is said.
    pub program_bytes: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            precision: Precision::default(),
            memory: None,
            max_context: None,
            slots: None,
            chunk: None,
            io: IoMode::Auto,
            threads: None,
            logits_rows: 1,
            kept_bytes: None,
            reserved_bytes: 0,
            other_bytes: 0,
            program_bytes: None,
        }
    }
}
