//! How fast a model will be within a budget, before a byte of it is downloaded.
//!
//! The speed model with the hit rate that a recorded routing gives for the slots of the budget, misses that come in bursts, and the shares of
//! the machine's rates that the program reaches. The shape of the one model whose routing is known stands here, because there is
//! no file yet that could state it.

use ouzel_format::Arch;

use super::{PrefillWork, Rates, WeightBytes, decode_time, prefill_floor};
use crate::budget::{Budget, ModelBytes, plan_budget};
use crate::config::Config;
use crate::{EngineError, Options};

/// Retained slots of a layer with 128 experts, and the share of 8 chosen experts that they hold under the decayed policy: as measured
/// on the synthetic model of the skew `trace`, whose routing is as uneven as one recorded from the real model (with 6 experts
/// a token that recording itself gives 3 to 5 points more). The last two before the end are replayed on the recording.
const HIT_RATES: [(f64, f64); 10] = [
    (0.0, 0.0),
    (4.0, 0.248),
    (8.0, 0.401),
    (12.0, 0.532),
    (16.0, 0.622),
    (24.0, 0.742),
    (32.0, 0.819),
    (48.0, 0.911),
    (64.0, 0.953),
    (128.0, 1.0),
];
/// Tokens of the prompt that is forecast. By then nearly every expert was chosen once.
const PROMPT_TOKENS: usize = 512;
/// The share of the probe's disk and memory rates that decoding reaches: reads come close to the probe, while norms, attention and the start
/// of each product cost what does not count as bytes (`bench/results`, commit 6bdfdc3).
const DECODE_DISK_SHARE: f64 = 0.95;
const DECODE_MEMORY_SHARE: f64 = 0.7;
/// The shares of the arithmetic peak and of the disk's rate that a prompt reaches (the same rows).
const PREFILL_ARITHMETIC_SHARE: f64 = 0.17;
const PREFILL_DISK_SHARE: f64 = 0.9;

/// What a budget would give.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// How the memory would be spent.
    pub budget: Budget,
    /// The share of chosen experts that would be in a slot.
    pub hit_rate: f64,
    /// Decoded tokens a second, with the context nearly full.
    pub decode_tokens_per_s: f64,
    /// Tokens a second of a prompt of 512, with no expert in a slot.
    pub prefill_tokens_per_s: f64,
}

/// Forecasts a session of `options` on a machine of these rates.
///
/// # Errors
/// As for planning the budget.
pub fn forecast(
    config: &Config,
    weights: &WeightBytes,
    options: &Options,
    rates: &Rates,
) -> Result<Forecast, EngineError> {
    let resident = weights.layers.iter().map(|l| l.attention + l.shared);
    let model = ModelBytes {
        resident: resident.sum::<u64>() + weights.head,
        expert_stride: weights.expert_stride,
    };
    let budget = plan_budget(config, model, options)?;
    let n_layers = config.n_layers() as f64;
    let slots = budget.slots as f64 / n_layers;
    let hit_rate = hit_rate(slots * 128.0 / config.n_experts as f64);
    let misses_a_layer = (1.0 - hit_rate) * config.experts_per_token as f64;
    let prefill = PrefillWork {
        n_tokens: PROMPT_TOKENS,
        expert_bytes_read: n_layers * config.n_experts as f64 * weights.expert_stride as f64,
    };
    let decoding = Rates {
        disk_bytes_per_s: DECODE_DISK_SHARE * rates.disk_bytes_per_s,
        memory_bytes_per_s: DECODE_MEMORY_SHARE * rates.memory_bytes_per_s,
        ..*rates
    };
    let experts = |computing, one_read| later_of_two(computing, one_read, misses_a_layer);
    let context = budget.context;
    let decode = decode_time(
        config,
        weights,
        context,
        &decoding,
        options.precision,
        experts,
    );
    let reached = Rates {
        disk_bytes_per_s: PREFILL_DISK_SHARE * rates.disk_bytes_per_s,
        int8_macs_per_s: PREFILL_ARITHMETIC_SHARE * rates.int8_macs_per_s,
        f32_macs_per_s: PREFILL_ARITHMETIC_SHARE * rates.f32_macs_per_s,
        ..*rates
    };
    let prefill = prefill_floor(config, prefill, &reached, options.precision);
    Ok(Forecast {
        budget,
        hit_rate,
        decode_tokens_per_s: 1.0 / decode.as_secs_f64(),
        prefill_tokens_per_s: PROMPT_TOKENS as f64 / prefill.as_secs_f64(),
    })
}

/// The mean of `max(computing, n * one_read)` where `n` has a Poisson distribution: misses come in bursts, and a layer without one does not make
/// up for a layer that waits for two.
pub(super) fn later_of_two(computing: f64, one_read: f64, mean_reads: f64) -> f64 {
    /// Reads of a layer that are as good as impossible: a token has 8 experts.
    const MANY: u32 = 64;
    let mut chance = (-mean_reads).exp();
    let mut mean = 0.0;
    for n in 0..MANY {
        mean += chance * computing.max(f64::from(n) * one_read);
        chance *= mean_reads / f64::from(n + 1);
    }
    mean
}

/// Straight lines between the entries of the table.
pub(super) fn hit_rate(slots: f64) -> f64 {
    let beyond = HIT_RATES.iter().position(|&(x, _)| slots < x);
    match beyond {
        None => HIT_RATES[HIT_RATES.len() - 1].1,
        Some(0) => HIT_RATES[0].1,
        Some(i) => {
            let ((x0, y0), (x1, y1)) = (HIT_RATES[i - 1], HIT_RATES[i]);
            y0 + (y1 - y0) * (slots - x0) / (x1 - x0)
        }
    }
}

/// The shape of Gemma 4 26B-A4B, as the engine sees it.
pub fn gemma4_26b_a4b() -> Config {
    Config::new(&gemma4_26b_a4b_arch(), None)
        .expect("the engine supports the model that it was made for")
}

/// The shape of Gemma 4 26B-A4B, from its `config.json`: the one place outside a model's files that states it.
pub fn gemma4_26b_a4b_arch() -> Arch {
    Arch {
        hidden_size: 2816,
        ffn_intermediate: 2112,
        moe_intermediate: 704,
        num_heads: 16,
        num_kv_heads: 8,
        num_full_kv_heads: 2,
        head_dim: 256,
        full_head_dim: 512,
        vocab_size: 262_144,
        sliding_window: 1024,
        num_layers: 30,
        num_experts: 128,
        top_k_experts: 8,
        final_logit_softcap: 30.0,
        rope_theta: 1e4,
        full_rope_theta: 1e6,
        partial_rotary_factor: 0.25,
        tie_word_embeddings: true,
        attention_k_eq_v: true,
        hidden_activation: "gelu_pytorch_tanh".to_owned(),
        full_attention_layer_mask: (0..30).map(|l| l % 6 == 5).collect(),
    }
}
