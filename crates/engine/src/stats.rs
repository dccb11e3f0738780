//! What a session did and how long it took, as values that a command line, a server or a page may show.

use std::time::Duration;

/// Counts and times since the session began, or since they were last taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    /// Tokens that entered through `prefill`.
    pub prefill_tokens: u64,
    /// Tokens that entered through `decode`.
    pub decode_tokens: u64,
    /// Time spent in `prefill`.
    pub prefill_time: Duration,
    /// Time spent in `decode`.
    pub decode_time: Duration,
    /// Time in which no expert was at hand to compute and one was being read.
    pub disk_wait: Duration,
    /// Chosen experts found in a retained slot; in a chunk each expert counts once a layer.
    pub hits: u64,
    /// Chosen experts that had to be read.
    pub misses: u64,
    /// Bytes of experts read; where decoding looks ahead, also of those that were guessed and not chosen.
    pub bytes_read: u64,
}

impl Stats {
    /// The share of chosen experts that were found in a slot, or `None` before any was chosen.
    pub fn hit_rate(&self) -> Option<f64> {
        let chosen = self.hits + self.misses;
        (chosen > 0).then(|| self.hits as f64 / chosen as f64)
    }

    /// What happened between `earlier` and now.
    pub fn since(&self, earlier: &Stats) -> Stats {
        Stats {
            prefill_tokens: self.prefill_tokens - earlier.prefill_tokens,
            decode_tokens: self.decode_tokens - earlier.decode_tokens,
            prefill_time: self.prefill_time - earlier.prefill_time,
            decode_time: self.decode_time - earlier.decode_time,
            disk_wait: self.disk_wait - earlier.disk_wait,
            hits: self.hits - earlier.hits,
            misses: self.misses - earlier.misses,
            bytes_read: self.bytes_read - earlier.bytes_read,
        }
    }
}
