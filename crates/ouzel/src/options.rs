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
    /// Bytes that the system may keep of the program's own file: they count as the process's. 14 MiB where nothing is said.
    pub program_bytes: Option<u64>,
    /// Bytes that the caller keeps resident beside the model, such as connections and grammars.
    pub other_bytes: u64,
    /// What is kept of the conversations that a session has had; without it only the last one continues where it stopped.
    pub prefixes: Option<PrefixOptions>,
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
            other_bytes: self.other_bytes,
            program_bytes: self.program_bytes,
            kept_bytes: self.prefixes.as_ref().map(|kept| kept.memory_bytes),
        }
    }
}

/// What a session keeps of earlier conversations, so that a prompt that begins like one of them continues from there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixOptions {
    /// Bytes of memory for them. They are part of the budget: expert slots give way, as far as conversations fill them.
    pub memory_bytes: u64,
    /// Where what does not fit into memory is kept, and everything when the session ends. A folder of its own for each model: files
    /// of other models in it are removed. Without it, what leaves memory is lost.
    pub dir: Option<PathBuf>,
    /// The most bytes of files there; the oldest give way.
    pub disk_bytes: u64,
}

impl PrefixOptions {
    /// The bytes on disk where the caller has no opinion.
    pub const DEFAULT_DISK_BYTES: u64 = 4 << 30;
}

impl Default for PrefixOptions {
    fn default() -> PrefixOptions {
        PrefixOptions {
            memory_bytes: 0,
            dir: None,
            disk_bytes: PrefixOptions::DEFAULT_DISK_BYTES,
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
    /// Added to the logits of these tokens, before penalties; minus infinity forbids one.
    pub logit_bias: Vec<(u32, f32)>,
    /// Whether each new token comes with how likely the model found it, and with how many of the likeliest alternatives, at most
    /// [`MAX_LOGPROBS`](crate::MAX_LOGPROBS).
    pub logprobs: Option<u8>,
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
            logit_bias: Vec::new(),
            logprobs: None,
            runs_tools: false,
            tool_names: Vec::new(),
        }
    }
}
