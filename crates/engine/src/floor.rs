//! The speed model: how fast a machine could run a model at best, by arithmetic alone.
//!
//! A decoded token has to read the resident weights and the keys and values from memory, the experts that it misses from the
//! disk, and may do the latter while it computes. A prompt has to read the experts that it touches and do its multiply-adds.
//! Everything else is overhead, which is why speeds are stated as shares of these floors. Nothing here measures or knows
//! a clock: rates come in, times go out.

mod bytes;
mod forecast;

use std::time::Duration;

pub use bytes::{LayerBytes, WeightBytes};
pub use forecast::{Forecast, forecast, gemma4_26b_a4b, gemma4_26b_a4b_arch};

use crate::config::{Config, LayerKind, LayerShape};
use crate::{LayerId, Precision};

#[cfg(test)]
mod tests;

/// What a machine can do, all of its threads together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// Random reads of one expert each, at the depth that is best.
    pub disk_bytes_per_s: f64,
    /// Reads from memory.
    pub memory_bytes_per_s: f64,
    /// Multiply-adds of int8 values.
    pub int8_macs_per_s: f64,
    /// Multiply-adds of f32 values.
    pub f32_macs_per_s: f64,
}

/// One decoded token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DecodeWork {
    /// Tokens in the KV cache, this one included.
    pub context_tokens: usize,
    /// Experts that were not in a slot, over all layers.
    pub misses: f64,
}

/// One prompt into an empty context.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefillWork {
    /// Tokens of the prompt.
    pub n_tokens: usize,
    /// Bytes of experts that it reads.
    pub expert_bytes_read: f64,
}

/// The least time that a token can take: the sum over layers of
/// `(attention + KV) / memory + max(missed / disk, (shared + chosen) / memory)`, and the head.
///
/// The misses are spread evenly over the layers, which makes the floor lower than any other spread of as many would: the share
/// of the floor that a measurement reaches is never flattered. It is the floor of reads that begin when their router has spoken; those that
/// were guessed begin a layer earlier, so that decoding may come out below it.
pub fn decode_floor(
    config: &Config,
    weights: &WeightBytes,
    work: DecodeWork,
    rates: &Rates,
    precision: Precision,
) -> Duration {
    let n_missed = work.misses / config.n_layers() as f64;
    let experts = |computing: f64, one_read: f64| computing.max(n_missed * one_read);
    decode_time(
        config,
        weights,
        work.context_tokens,
        rates,
        precision,
        experts,
    )
}

/// The time of a token whose layers each take `experts(seconds to compute all experts, seconds to read one)` for their experts.
fn decode_time(
    config: &Config,
    weights: &WeightBytes,
    context_tokens: usize,
    rates: &Rates,
    precision: Precision,
    experts: impl Fn(f64, f64) -> f64,
) -> Duration {
    let one_read = weights.expert_stride as f64 / rates.disk_bytes_per_s;
    let chosen = config.experts_per_token as u64 * weights.expert;
    let mut seconds = weights.head as f64 / rates.memory_bytes_per_s;
    for (l, layer) in config.layer_ids().zip(&weights.layers) {
        let before = layer.attention + kv_bytes(config, l, context_tokens, precision);
        let computing = (layer.shared + chosen) as f64 / rates.memory_bytes_per_s;
        seconds += before as f64 / rates.memory_bytes_per_s + experts(computing, one_read);
    }
    duration(seconds)
}

/// The least time that a prompt can take: the larger of reading its experts and doing its multiply-adds, those with weights in
/// int8 and those of attention in f32; in `exact` all are f32.
pub fn prefill_floor(
    config: &Config,
    work: PrefillWork,
    rates: &Rates,
    precision: Precision,
) -> Duration {
    let weight_rate = match precision {
        Precision::Exact => rates.f32_macs_per_s,
        Precision::Fast => rates.int8_macs_per_s,
    };
    let reading = work.expert_bytes_read / rates.disk_bytes_per_s;
    let computing = weight_macs(config, work.n_tokens) as f64 / weight_rate
        + attention_macs(config, work.n_tokens) as f64 / rates.f32_macs_per_s;
    duration(reading.max(computing))
}

/// Bytes of memory that one decoded token reads: every resident weight but the embedding's other rows, its experts, its KV rows.
pub fn bytes_touched(
    config: &Config,
    weights: &WeightBytes,
    context_tokens: usize,
    precision: Precision,
) -> u64 {
    let layers = config.layer_ids().zip(&weights.layers);
    let of_layers: u64 = layers
        .map(|(l, layer)| {
            layer.attention + layer.shared + kv_bytes(config, l, context_tokens, precision)
        })
        .sum();
    let n_chosen = (config.experts_per_token * config.n_layers()) as u64;
    of_layers + n_chosen * weights.expert + weights.head
}

/// Bytes of keys and values that a query of layer `l` sees.
fn kv_bytes(config: &Config, l: LayerId, context_tokens: usize, precision: Precision) -> u64 {
    let element = match precision {
        Precision::Exact => 4,
        Precision::Fast => 2,
    };
    (2 * config.kv_rows(l, context_tokens) * config.layer(l).kv_width() * element) as u64
}

/// Multiply-adds with the weights of all layers for `n_tokens`, and with the head's for the last of them.
fn weight_macs(config: &Config, n_tokens: usize) -> u64 {
    let hidden = config.hidden_size;
    let feedforward = 3 * config.shared_intermediate
        + 3 * config.experts_per_token * config.expert_intermediate
        + config.n_experts;
    let of_layer = |shape: &LayerShape| {
        let n_kv = if shape.has_value_proj { 2 } else { 1 };
        hidden * (2 * shape.query_width() + n_kv * shape.kv_width() + feedforward)
    };
    let of_token: usize = config.layers.iter().map(of_layer).sum();
    (n_tokens * of_token + hidden * config.vocab_size) as u64
}

/// Multiply-adds of queries with keys and of weights with values, for a prompt into an empty context.
fn attention_macs(config: &Config, n_tokens: usize) -> u64 {
    let of_layer = |shape: &LayerShape| {
        let window = match shape.kind {
            LayerKind::Sliding => config.sliding_window,
            LayerKind::Full => n_tokens,
        };
        2 * shape.query_width() as u64 * visible_keys(n_tokens as u64, window as u64)
    };
    config.layers.iter().map(of_layer).sum()
}

/// Keys seen by `n` queries together, query `i` seeing the last `window` of its `i + 1`.
fn visible_keys(n: u64, window: u64) -> u64 {
    let growing = n.min(window);
    growing * (growing + 1) / 2 + (n - growing) * window
}

/// A time that is too long for the type is as good as for ever.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
