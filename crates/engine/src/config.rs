//! The shape of a model, as its files state it.
//!
//! Every size, window, head count and expert count of the engine comes from here, and this comes from `manifest.json` and
//! `tokenizer/config.json` of the model directory: no constant of a particular model lives anywhere else. What the
//! engine cannot compute is refused by name when the directory is opened.

use ouzel_format::{Arch, CheckpointConfig};

use crate::{EngineError, LayerId, TokenId};

/// `manifest.json` carries no epsilon; this is its value where `config.json` is absent (gturbo-v1).
const DEFAULT_RMS_NORM_EPS: f64 = 1e-6;
/// Likewise the longest position.
const DEFAULT_MAX_POSITION: u32 = 262_144;
/// The kernels' sums run in sixteen lanes.
const HEAD_DIM_STEP: usize = 16;

/// Which keys a query of the layer may see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// The last `sliding_window` positions, its own included.
    Sliding,
    /// Every position up to its own.
    Full,
}

/// The attention of one layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerShape {
    /// Sliding or full.
    pub kind: LayerKind,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Whether V has a projection of its own; otherwise it branches off the raw K projection.
    pub has_value_proj: bool,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Pairs `(i, i + head_dim / 2)` that rotate; the others keep still.
    pub n_rotated_pairs: usize,
}

impl LayerShape {
    /// Query heads that share one kv head.
    pub fn group(&self) -> usize {
        self.n_heads / self.n_kv_heads
    }

    /// Width of the query projection.
    pub fn query_width(&self) -> usize {
        self.n_heads * self.head_dim
    }

    /// Width of the key projection, and of the value projection.
    pub fn kv_width(&self) -> usize {
        self.n_kv_heads * self.head_dim
    }
}

/// The shape of a Gemma 4 mixture-of-experts model.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Tokens of the vocabulary.
    pub vocab_size: usize,
    /// Width of the shared expert.
    pub shared_intermediate: usize,
    /// Width of a routed expert.
    pub expert_intermediate: usize,
    /// Routed experts of a layer.
    pub n_experts: usize,
    /// Routed experts chosen for a token.
    pub experts_per_token: usize,
    /// Positions that a sliding layer sees.
    pub sliding_window: usize,
    /// Added to the mean square before the root.
    pub rms_norm_eps: f32,
    /// Logits are `cap * tanh(x / cap)`.
    pub softcap: f32,
    /// Factor of a looked-up embedding: the root of `hidden_size`, in f32.
    pub embed_scale: f32,
    /// Longest context the model was trained for, in tokens.
    pub max_position: usize,
    /// One shape a layer.
    pub layers: Vec<LayerShape>,
    /// Ids on which `config.json` says to stop; empty where it is absent.
    pub stop_ids: Vec<TokenId>,
}

impl Config {
    /// Joins the manifest's shape with what only `config.json` knows.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] names the feature that the engine lacks.
    pub fn new(arch: &Arch, checkpoint: Option<&CheckpointConfig>) -> Result<Config, EngineError> {
        refuse_unsupported(arch, checkpoint)?;
        let layers = arch
            .full_attention_layer_mask
            .iter()
            .map(|&full| layer_shape(arch, full))
            .collect();
        let config = Config {
            hidden_size: arch.hidden_size as usize,
            vocab_size: arch.vocab_size as usize,
            shared_intermediate: arch.ffn_intermediate as usize,
            expert_intermediate: arch.moe_intermediate as usize,
            n_experts: arch.num_experts as usize,
            experts_per_token: arch.top_k_experts as usize,
            sliding_window: arch.sliding_window as usize,
            rms_norm_eps: checkpoint.map_or(DEFAULT_RMS_NORM_EPS, |c| c.rms_norm_eps) as f32,
            softcap: arch.final_logit_softcap as f32,
            embed_scale: (arch.hidden_size as f32).sqrt(),
            max_position: checkpoint.map_or(DEFAULT_MAX_POSITION, |c| c.max_position_embeddings)
                as usize,
            layers,
            stop_ids: checkpoint
                .map(|c| c.eos_token_ids.iter().copied().map(TokenId).collect())
                .unwrap_or_default(),
        };
        config.check_shapes()?;
        Ok(config)
    }

    /// Decoder layers.
    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// The attention of layer `l`.
    pub fn layer(&self, l: LayerId) -> LayerShape {
        self.layers[l.index()]
    }

    /// Every layer, first to last.
    pub fn layer_ids(&self) -> impl Iterator<Item = LayerId> + use<> {
        (0..self.n_layers() as u32).map(LayerId)
    }

    /// The layer behind `l`, unless that is the last one.
    pub fn layer_behind(&self, l: LayerId) -> Option<LayerId> {
        self.layer_ids().nth(l.index() + 1)
    }

    /// Rows of keys that a layer keeps when contexts reach `context` tokens.
    pub fn kv_rows(&self, l: LayerId, context: usize) -> usize {
        match self.layer(l).kind {
            LayerKind::Sliding => self.sliding_window.min(context),
            LayerKind::Full => context,
        }
    }

    fn check_shapes(&self) -> Result<(), EngineError> {
        for (l, shape) in self.layers.iter().enumerate() {
            if !shape.n_heads.is_multiple_of(shape.n_kv_heads) {
                return Err(unsupported(
                    "attention heads",
                    format!(
                        "layer {l} has {} query heads over {} kv heads",
                        shape.n_heads, shape.n_kv_heads
                    ),
                ));
            }
            if !shape.head_dim.is_multiple_of(HEAD_DIM_STEP) {
                return Err(unsupported(
                    format!("a head dimension off {HEAD_DIM_STEP}"),
                    format!("layer {l} has {}", shape.head_dim),
                ));
            }
        }
        for (what, width) in [
            ("hidden size", self.hidden_size),
            ("shared expert width", self.shared_intermediate),
            ("routed expert width", self.expert_intermediate),
        ] {
            if !width.is_multiple_of(64) {
                return Err(unsupported(
                    "a width off the quant group of 64",
                    format!("{what} {width}"),
                ));
            }
        }
        Ok(())
    }
}

fn layer_shape(arch: &Arch, full: bool) -> LayerShape {
    let n_heads = arch.num_heads as usize;
    if full {
        let head_dim = arch.full_head_dim as usize;
        LayerShape {
            kind: LayerKind::Full,
            n_heads,
            n_kv_heads: arch.num_full_kv_heads as usize,
            head_dim,
            has_value_proj: !arch.attention_k_eq_v,
            rope_theta: arch.full_rope_theta,
            // "Proportional" rotary: the first share of the pairs turns, with exponents over the whole head.
            n_rotated_pairs: (arch.partial_rotary_factor * head_dim as f64 / 2.0) as usize,
        }
    } else {
        let head_dim = arch.head_dim as usize;
        LayerShape {
            kind: LayerKind::Sliding,
            n_heads,
            n_kv_heads: arch.num_kv_heads as usize,
            head_dim,
            has_value_proj: true,
            rope_theta: arch.rope_theta,
            n_rotated_pairs: head_dim / 2,
        }
    }
}

fn refuse_unsupported(
    arch: &Arch,
    checkpoint: Option<&CheckpointConfig>,
) -> Result<(), EngineError> {
    if !arch.tie_word_embeddings {
        return Err(unsupported(
            "an output head of its own",
            "tieWordEmbeddings is false",
        ));
    }
    if arch.hidden_activation != "gelu_pytorch_tanh" {
        return Err(unsupported("this activation", &arch.hidden_activation));
    }
    if !(0.0..=1.0).contains(&arch.partial_rotary_factor) {
        return Err(unsupported(
            "this partialRotaryFactor",
            arch.partial_rotary_factor.to_string(),
        ));
    }
    if let Some(checkpoint) = checkpoint {
        let (ours, theirs) = (arch, &checkpoint.arch);
        if (ours.hidden_size, ours.num_layers, ours.num_experts)
            != (theirs.hidden_size, theirs.num_layers, theirs.num_experts)
        {
            return Err(unsupported(
                "a config.json of another model",
                format!(
                    "manifest.json says {} layers of {} with {} experts, tokenizer/config.json {} of {} with {}",
                    ours.num_layers,
                    ours.hidden_size,
                    ours.num_experts,
                    theirs.num_layers,
                    theirs.hidden_size,
                    theirs.num_experts
                ),
            ));
        }
    }
    Ok(())
}

fn unsupported(feature: impl Into<String>, found: impl Into<String>) -> EngineError {
    EngineError::Unsupported {
        feature: feature.into(),
        found: found.into(),
    }
}
