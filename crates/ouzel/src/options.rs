//! What a caller may choose, about a model and about an answer.

use std::path::PathBuf;

use ouzel_engine::{IoMode, Precision, SamplerOptions};

/// How a model is opened and how its sessions spend memory. `None` leaves the choice to the engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// How activations and the KV cache are kept.
    pub precision: Precision,
    /// Bytes that the process may make resident; 2 GiB where nothing is said. [`Model::auto_memory`](crate::Model::auto_memory) proposes a
    /// share of what is free.
    pub memory: Option<u64>,
    /// Tokens of context; 4,096 or the model's maximum, whichever is less, where nothing is said.
    pub max_context: Option<u32>,
    /// Expert slots of each layer; what the memory budget leaves room for where nothing is said.
    pub slots: Option<u32>,
    /// Prompt tokens that go through a layer together.
    pub chunk: Option<u32>,
    /// How weights are read.
    pub io: IoMode,
    /// Computing threads; one a processor where nothing is said.
    pub threads: Option<u32>,
    /// Rows of logits to hold at once: 0 or 1 serves generation, more make an evaluation faster.
    pub logits_rows: u32,
    /// Where compiled tokenizers are kept, below `tokenizers/`. Without it, or where it cannot be written, a tokenizer is compiled
    /// anew each time, which takes about a second and more memory for a vocabulary of 262,144.
    pub cache_dir: Option<PathBuf>,
}

impl Options {
    pub(crate) fn to_engine(&self, reserved_bytes: u64) -> ouzel_engine::Options {
        ouzel_engine::Options {
            precision: self.precision,
            memory: self.memory,
            max_context: self.max_context,
            slots: self.slots,
            chunk: self.chunk,
            io: self.io,
            threads: self.threads,
            logits_rows: self.logits_rows.max(1),
            reserved_bytes,
        }
    }
}

/// How one answer is made.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// The most new tokens.
    pub max_new: u32,
    /// How each token is chosen.
    pub sampler: SamplerOptions,
    /// Texts that end the answer where they appear in it; they are not part of it.
    pub stop: Vec<String>,
    /// Whether the model is asked to think before it answers.
    pub thinking: bool,
    /// Whether the caller runs the tools that a prompt offers. Where not, an answer ends as soon as it begins a tool call: no more
    /// than its marker is computed, and nothing of it is given.
    pub runs_tools: bool,
    /// The names of the tools that a prompt offers. With them, a tool call is recognised where the model forgot its marker.
    pub tool_names: Vec<String>,
}

impl Default for GenerateOptions {
    fn default() -> GenerateOptions {
        GenerateOptions {
            max_new: 1024,
            sampler: SamplerOptions::default(),
            stop: Vec::new(),
            thinking: false,
            runs_tools: false,
            tool_names: Vec::new(),
        }
    }
}
