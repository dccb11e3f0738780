//! What an answer took, as values that a command line, a server or a page may show.

use std::fmt;
use std::time::Duration;

use ouzel_engine::ReadMode;

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model wrote this stop id.
    StopId(u32),
    /// The answer came to this stop string.
    StopText(String),
    /// The model began a tool call, and the caller runs none.
    ToolCall,
    /// The most new tokens were reached.
    MaxNew,
    /// The context is full.
    ContextFull,
    /// The constraint of the answer allows no token.
    NothingAllowed,
    /// The caller cancelled.
    Cancelled,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::StopId(_) => f.write_str("the model ended its answer"),
            StopReason::StopText(text) => write!(f, "reached the stop string {text:?}"),
            StopReason::ToolCall => f.write_str("the model began a tool call"),
            StopReason::MaxNew => f.write_str("reached --max-new"),
            StopReason::ContextFull => f.write_str("the context is full"),
            StopReason::NothingAllowed => f.write_str("the constraint allows no token"),
            StopReason::Cancelled => f.write_str("cancelled"),
        }
    }
}

/// What an answer took until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoFar {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// How many of them were held from before.
    pub reused_tokens: usize,
    /// Tokens that the model wrote.
    pub new_tokens: usize,
    /// How many of them belong to what the model thought.
    pub reasoning_tokens: usize,
    /// Time spent on the prompt.
    pub prefill_time: Duration,
    /// Time spent on the new tokens.
    pub decode_time: Duration,
    /// Chosen experts found in a slot.
    pub hits: u64,
    /// Chosen experts that had to be read.
    pub misses: u64,
    /// Bytes of experts read.
    pub bytes_read: u64,
}

/// The bytes that this process has resident now; `None` where the system does not say.
pub fn resident_memory() -> Option<u64> {
    ouzel_storage::resident_memory_of(std::process::id())
}

/// The same of another process; `None` also where there is none of this number.
pub fn resident_memory_of(pid: u32) -> Option<u64> {
    ouzel_storage::resident_memory_of(pid)
}

/// What one answer took.
#[derive(Clone, Debug, PartialEq)]
pub struct Stats {
    /// Tokens of the prompt, the conversation so far included.
    pub prompt_tokens: usize,
    /// How many of them were still in the session, or were kept, and were not computed again.
    pub reused_tokens: usize,
    /// Tokens that the model wrote, a stop id included.
    pub new_tokens: usize,
    /// How many of them belong to what the model thought, its markers included.
    pub reasoning_tokens: usize,
    /// Why the answer ended.
    pub stop: StopReason,
    /// Time that it took to bring back what was kept.
    pub restore_time: Duration,
    /// Tokens of the prompt that were computed.
    pub prefill_tokens: u64,
    /// Time spent on them.
    pub prefill_time: Duration,
    /// Tokens that went through decode: all new ones but the last.
    pub decode_tokens: u64,
    /// Time spent on the new tokens.
    pub decode_time: Duration,
    /// Time in which no expert was at hand to compute and one was being read.
    pub disk_wait: Duration,
    /// Chosen experts found in a slot.
    pub hits: u64,
    /// Chosen experts that had to be read.
    pub misses: u64,
    /// Bytes of experts read.
    pub bytes_read: u64,
    /// How they were read. Memory that the page cache takes is in no figure here.
    pub read_mode: ReadMode,
    /// The most bytes that the process ever had resident; `None` where the system does not say.
    pub peak_memory: Option<u64>,
}

impl Stats {
    /// Prompt tokens computed in a second, or `None` where none were.
    pub fn prefill_tokens_per_s(&self) -> Option<f64> {
        per_second(self.prefill_tokens, self.prefill_time)
    }

    /// New tokens in a second, or `None` where there was at most one.
    pub fn decode_tokens_per_s(&self) -> Option<f64> {
        per_second(self.decode_tokens, self.decode_time)
    }

    /// The share of chosen experts that were found in a slot, or `None` before any was chosen.
    pub fn hit_rate(&self) -> Option<f64> {
        let chosen = self.hits + self.misses;
        (chosen > 0).then(|| self.hits as f64 / chosen as f64)
    }
}

fn per_second(n_tokens: u64, time: Duration) -> Option<f64> {
    (n_tokens > 0 && !time.is_zero()).then(|| n_tokens as f64 / time.as_secs_f64())
}
