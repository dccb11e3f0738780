//! The shape of a model as `manifest.json` states it.

use crate::FormatError;
use crate::json::{Encode, Object, Writer};

/// The largest softcap: far above any logit, so that the cap changes nothing, and far from what f32 loses digits at.
const MAX_SOFTCAP: f64 = 1e6;
/// The largest base of rotary frequencies: the slowest pair would not turn once in any context there is.
const MAX_ROPE_THETA: f64 = 1e12;

/// Sizes, counts and constants of a model. Field by field the `arch` object of `manifest.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Arch {
    /// Width of the residual stream.
    pub hidden_size: u32,
    /// Width of the shared expert.
    pub ffn_intermediate: u32,
    /// Width of a routed expert.
    pub moe_intermediate: u32,
    /// Query heads, in layers of both kinds.
    pub num_heads: u32,
    /// Key and value heads of a sliding layer.
    pub num_kv_heads: u32,
    /// Key and value heads of a full layer.
    pub num_full_kv_heads: u32,
    /// Elements of a head of a sliding layer.
    pub head_dim: u32,
    /// Elements of a head of a full layer.
    pub full_head_dim: u32,
    /// Tokens of the vocabulary.
    pub vocab_size: u32,
    /// Positions that a sliding layer sees, the token's own included.
    pub sliding_window: u32,
    /// Decoder layers.
    pub num_layers: u32,
    /// Routed experts of a layer.
    pub num_experts: u32,
    /// Routed experts chosen for a token.
    pub top_k_experts: u32,
    /// Logits are `cap * tanh(x / cap)`.
    pub final_logit_softcap: f64,
    /// Base of the rotary frequencies of sliding layers.
    pub rope_theta: f64,
    /// Base of the rotary frequencies of full layers.
    pub full_rope_theta: f64,
    /// Share of a full layer's pairs that rotate, greater than 0, at most 1.
    pub partial_rotary_factor: f64,
    /// Whether the embedding is the output head too.
    pub tie_word_embeddings: bool,
    /// Whether the values of full layers branch off their keys.
    pub attention_k_eq_v: bool,
    /// The name of the activation between gate and up.
    pub hidden_activation: String,
    /// One entry a layer: whether it sees every position instead of a window.
    pub full_attention_layer_mask: Vec<bool>,
}

impl Arch {
    /// Checks what has to hold within a shape, whoever made it.
    ///
    /// # Errors
    /// [`FormatError::NotPositive`], [`FormatError::OutOfRange`], [`FormatError::TopKExceedsExperts`], [`FormatError::MaskLength`].
    pub fn check(&self) -> Result<(), FormatError> {
        for (field, value) in self.dimensions() {
            if value == 0 {
                return Err(FormatError::NotPositive {
                    field: format!("arch.{field}"),
                    actual: value.to_string(),
                });
            }
        }
        for (field, value, limit) in self.constants() {
            if !(value.is_finite() && value > 0.0) {
                return Err(FormatError::NotPositive {
                    field: format!("arch.{field}"),
                    actual: value.to_string(),
                });
            }
            if value > limit {
                return Err(FormatError::OutOfRange {
                    field: format!("arch.{field}"),
                    expected: format!("at most {limit}"),
                    actual: format!("{value:e}"),
                });
            }
        }
        if self.top_k_experts > self.num_experts {
            return Err(FormatError::TopKExceedsExperts {
                top_k: self.top_k_experts,
                num_experts: self.num_experts,
            });
        }
        if self.full_attention_layer_mask.len() as u64 != u64::from(self.num_layers) {
            return Err(FormatError::MaskLength {
                field: "arch.fullAttentionLayerMask",
                expected: self.num_layers,
                actual: self.full_attention_layer_mask.len(),
            });
        }
        Ok(())
    }

    fn dimensions(&self) -> [(&'static str, u32); 13] {
        [
            ("hiddenSize", self.hidden_size),
            ("ffnIntermediate", self.ffn_intermediate),
            ("moeIntermediateSize", self.moe_intermediate),
            ("numHeads", self.num_heads),
            ("numKVHeads", self.num_kv_heads),
            ("numFullKVHeads", self.num_full_kv_heads),
            ("headDim", self.head_dim),
            ("fullHeadDim", self.full_head_dim),
            ("vocabSize", self.vocab_size),
            ("slidingWindow", self.sliding_window),
            ("numLayers", self.num_layers),
            ("numExperts", self.num_experts),
            ("topKExperts", self.top_k_experts),
        ]
    }

    /// Name, value and largest value.
    fn constants(&self) -> [(&'static str, f64, f64); 4] {
        [
            ("finalLogitSoftcap", self.final_logit_softcap, MAX_SOFTCAP),
            ("ropeTheta", self.rope_theta, MAX_ROPE_THETA),
            ("fullRopeTheta", self.full_rope_theta, MAX_ROPE_THETA),
            ("partialRotaryFactor", self.partial_rotary_factor, 1.0),
        ]
    }

    pub(crate) fn decode(object: &Object<'_, '_>) -> Result<Arch, FormatError> {
        let dimension = |name| object.need(name)?.dimension();
        let positive = |name| object.need(name)?.positive();
        let arch = Arch {
            hidden_size: dimension("hiddenSize")?,
            ffn_intermediate: dimension("ffnIntermediate")?,
            moe_intermediate: dimension("moeIntermediateSize")?,
            num_heads: dimension("numHeads")?,
            num_kv_heads: dimension("numKVHeads")?,
            num_full_kv_heads: dimension("numFullKVHeads")?,
            head_dim: dimension("headDim")?,
            full_head_dim: dimension("fullHeadDim")?,
            vocab_size: dimension("vocabSize")?,
            sliding_window: dimension("slidingWindow")?,
            num_layers: dimension("numLayers")?,
            num_experts: dimension("numExperts")?,
            top_k_experts: dimension("topKExperts")?,
            final_logit_softcap: positive("finalLogitSoftcap")?,
            rope_theta: positive("ropeTheta")?,
            full_rope_theta: positive("fullRopeTheta")?,
            partial_rotary_factor: positive("partialRotaryFactor")?,
            tie_word_embeddings: object.need("tieWordEmbeddings")?.bool()?,
            attention_k_eq_v: object.need("attentionKEqV")?.bool()?,
            hidden_activation: object.need("hiddenActivation")?.text()?.to_owned(),
            full_attention_layer_mask: decode_mask(object)?,
        };
        arch.check()?;
        Ok(arch)
    }
}

fn decode_mask(object: &Object<'_, '_>) -> Result<Vec<bool>, FormatError> {
    object
        .need("fullAttentionLayerMask")?
        .array()?
        .map(|entry| match entry.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(FormatError::OutOfRange {
                field: entry.path().to_owned(),
                expected: "0 or 1".into(),
                actual: other.to_string(),
            }),
        })
        .collect()
}

impl Encode for Arch {
    fn encode(&self, w: &mut Writer) {
        let (dimensions, constants) = (self.dimensions(), self.constants());
        let mask: Vec<u32> = self
            .full_attention_layer_mask
            .iter()
            .map(|&full| u32::from(full))
            .collect();
        let mut fields: Vec<(&str, &dyn Encode)> = vec![
            ("tieWordEmbeddings", &self.tie_word_embeddings),
            ("attentionKEqV", &self.attention_k_eq_v),
            ("hiddenActivation", &self.hidden_activation),
            ("fullAttentionLayerMask", &mask),
        ];
        fields.extend(
            dimensions
                .iter()
                .map(|(name, value)| (*name, value as &dyn Encode)),
        );
        fields.extend(
            constants
                .iter()
                .map(|(name, value, _)| (*name, value as &dyn Encode)),
        );
        w.object(fields);
    }
}
