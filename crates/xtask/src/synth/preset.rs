//! The shapes of the synthetic models, and how popular their experts are.

use anyhow::bail;
use ouzel_engine::floor::gemma4_26b_a4b_arch;
use ouzel_format::Arch;

/// The models that can be made, by name.
pub const PRESETS: [&str; 4] = ["gemma4-26b-a4b", "scaled", "scaled-text", "tiny"];

/// Retained slots a layer for which hit rates are wanted.
pub const WANTED_SLOTS: [usize; 6] = [4, 8, 12, 16, 24, 32];

/// How uneven the popularity of experts is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skew {
    /// As in a recorded routing of the real model.
    Trace,
    /// Flatter, so that caches do worse.
    Hard,
}

impl Skew {
    /// The skew of this name.
    pub fn parse(name: &str) -> anyhow::Result<Skew> {
        match name {
            "trace" => Ok(Skew::Trace),
            "hard" => Ok(Skew::Hard),
            _ => bail!("{name:?} is no skew: trace or hard"),
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Skew::Trace => "trace",
            Skew::Hard => "hard",
        }
    }

    /// The skew of a model that `synth` made, by its name.
    pub fn of_model(model_id: &str) -> Option<Skew> {
        let rest = model_id.strip_prefix("synth-")?;
        [Skew::Trace, Skew::Hard]
            .into_iter()
            .find(|skew| rest.contains(&format!("-{}-seed", skew.name())))
    }

    /// The hit rate of a decoded token that is wanted, in percent, for 8 of 128 experts.
    pub fn wanted(self, n_slots: usize) -> Option<f64> {
        let rates = match self {
            Skew::Trace => [25.0, 41.0, 54.0, 62.0, 74.0, 81.0],
            Skew::Hard => [20.0, 33.0, 46.0, 54.0, 66.0, 74.0],
        };
        let nth = WANTED_SLOTS.iter().position(|&n| n == n_slots)?;
        Some(rates[nth])
    }
}

/// The shape of the preset `name`.
pub fn arch(name: &str) -> anyhow::Result<Arch> {
    match name {
        "gemma4-26b-a4b" => Ok(gemma4_26b_a4b_arch()),
        "scaled" => Ok(scaled()),
        // With the real vocabulary it has the real tokenizer, and can be talked to.
        "scaled-text" => Ok(Arch {
            vocab_size: gemma4_26b_a4b_arch().vocab_size,
            ..scaled()
        }),
        "tiny" => Ok(tiny()),
        _ => bail!("{name:?} is no preset: one of {}", PRESETS.join(", ")),
    }
}

/// One period of layers with as many experts as the real model, so that caches see the same odds: 340 MB of experts over 30 MB of
/// resident weights.
fn scaled() -> Arch {
    Arch {
        hidden_size: 1024,
        ffn_intermediate: 768,
        moe_intermediate: 256,
        num_heads: 8,
        num_kv_heads: 4,
        num_full_kv_heads: 1,
        head_dim: 128,
        full_head_dim: 256,
        vocab_size: 16_384,
        sliding_window: 512,
        num_layers: 6,
        full_attention_layer_mask: every_sixth(6),
        ..gemma4_26b_a4b_arch()
    }
}

/// For tests of the generator: 2 MB.
fn tiny() -> Arch {
    Arch {
        hidden_size: 128,
        ffn_intermediate: 128,
        moe_intermediate: 64,
        num_heads: 4,
        num_kv_heads: 2,
        num_full_kv_heads: 1,
        head_dim: 32,
        full_head_dim: 64,
        vocab_size: 2048,
        sliding_window: 64,
        num_layers: 6,
        num_experts: 16,
        top_k_experts: 4,
        full_attention_layer_mask: every_sixth(6),
        ..gemma4_26b_a4b_arch()
    }
}

/// Five sliding layers, then a full one.
fn every_sixth(n_layers: usize) -> Vec<bool> {
    (0..n_layers).map(|layer| layer % 6 == 5).collect()
}
