//! `config.json` of a checkpoint: the shape of the model, and every feature of it that this program has to have or to refuse.
//!
//! Both forms are read: the whole model's, with the text model under `text_config`, and the text model's alone. A value that may be
//! missing gets the default that the reference gives it; where the reference's default is another model's, a missing value is an
//! error. Features change the forward pass silently, so each one that the engine lacks is refused by its name.

use crate::generation::eos_token_ids;
use crate::json::{self, Field, Object};
use crate::{Arch, FormatError, Quantization};

const WHAT: &str = "config.json";
const SLIDING: &str = "sliding_attention";
const FULL: &str = "full_attention";
const ACTIVATION: &str = "gelu_pytorch_tanh";
/// Where `layer_types` is missing, every sixth layer is a full one.
const DEFAULT_LAYERS_PER_FULL: u32 = 6;
const DEFAULT_HEAD_DIM: u32 = 256;
const DEFAULT_FULL_HEAD_DIM: u32 = 512;
const DEFAULT_RMS_NORM_EPS: f64 = 1e-6;
/// Anything larger is no guard against zero, but drowns what is normed.
const MAX_RMS_NORM_EPS: f64 = 1.0;
const DEFAULT_MAX_POSITION: u32 = 262_144;
const DEFAULT_ROPE_THETA: f64 = 1e4;
const DEFAULT_FULL_ROPE_THETA: f64 = 1e6;
const DEFAULT_PARTIAL_ROTARY_FACTOR: f64 = 0.25;

/// What `config.json` says of a supported checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointConfig {
    /// The model's shape, as `manifest.json` will state it.
    pub arch: Arch,
    /// Added to the mean square before the root.
    pub rms_norm_eps: f64,
    /// The longest context that the model was trained for, in tokens.
    pub max_position_embeddings: u32,
    /// Ids that end an answer, without repetition; empty where the file names none.
    pub eos_token_ids: Vec<u32>,
    /// The id that starts a prompt.
    pub bos_token_id: Option<u32>,
    /// The id that fills.
    pub pad_token_id: Option<u32>,
    /// Bits of the weights.
    pub quantization: Quantization,
}

impl CheckpointConfig {
    /// Decodes the file and refuses what the engine cannot compute.
    ///
    /// # Errors
    /// [`FormatError::UnsupportedFeature`] names a feature, other [`FormatError`]s name a field.
    pub fn parse(bytes: &[u8]) -> Result<CheckpointConfig, FormatError> {
        let json = json::parse(WHAT, json::MAX_JSON_BYTES, bytes)?;
        let root = json.root(WHAT)?;
        let both = Both {
            text: root.optional("text_config", |text| text.object())?,
            root,
        };
        both.refuse_unsupported()?;
        let arch = both.arch()?;
        arch.check()?;
        let eos = match (eos_token_ids(&both.root)?, &both.text) {
            (Some(ids), _) => ids,
            (None, Some(text)) => eos_token_ids(text)?.unwrap_or_default(),
            (None, None) => Vec::new(),
        };
        Ok(CheckpointConfig {
            arch,
            rms_norm_eps: both
                .text()
                .optional("rms_norm_eps", |eps| rms_norm_eps(&eps))?
                .unwrap_or(DEFAULT_RMS_NORM_EPS),
            max_position_embeddings: both
                .dimension_or("max_position_embeddings", DEFAULT_MAX_POSITION)?,
            eos_token_ids: eos,
            bos_token_id: both.either("bos_token_id").map(|id| id.u32()).transpose()?,
            pad_token_id: both.either("pad_token_id").map(|id| id.u32()).transpose()?,
            quantization: Quantization::decode(&both.root)?,
        })
    }
}

fn rms_norm_eps(field: &Field<'_, '_>) -> Result<f64, FormatError> {
    let eps = field.positive()?;
    if eps > MAX_RMS_NORM_EPS {
        return Err(FormatError::OutOfRange {
            field: field.path().to_owned(),
            expected: format!("at most {MAX_RMS_NORM_EPS}"),
            actual: format!("{eps:e}"),
        });
    }
    Ok(eps)
}

fn unsupported(field: &Field<'_, '_>) -> FormatError {
    FormatError::UnsupportedFeature {
        feature: field.path().to_owned(),
        value: field.kind(),
    }
}

/// The document and, in its nested form, the text model's part of it.
struct Both<'j, 'a> {
    root: Object<'j, 'a>,
    text: Option<Object<'j, 'a>>,
}

impl<'j, 'a> Both<'j, 'a> {
    /// The text model's object, whichever the form.
    fn text(&self) -> &Object<'j, 'a> {
        self.text.as_ref().unwrap_or(&self.root)
    }

    /// A field of the whole model, else of the text model.
    fn either(&self, name: &str) -> Option<Field<'j, 'a>> {
        self.root.get(name).or_else(|| self.text().get(name))
    }

    fn dimension(&self, name: &str) -> Result<u32, FormatError> {
        self.text().need(name)?.dimension()
    }

    fn dimension_or(&self, name: &str, default: u32) -> Result<u32, FormatError> {
        Ok(self
            .text()
            .optional(name, |field| field.dimension())?
            .unwrap_or(default))
    }

    fn refuse_unsupported(&self) -> Result<(), FormatError> {
        let text = self.text();
        let model_type = text.need("model_type")?;
        let expected = if self.text.is_some() {
            &["gemma4_text"][..]
        } else {
            &["gemma4", "gemma4_text"][..]
        };
        if !expected.contains(&model_type.text()?) {
            return Err(unsupported(&model_type));
        }
        for name in ["attention_bias", "use_double_wide_mlp"] {
            if let Some(field) = text.get(name)
                && field.bool()?
            {
                return Err(unsupported(&field));
            }
        }
        // The reference's default is a model with per-layer inputs, so that silence does not mean none.
        let per_layer = text.need("hidden_size_per_layer_input")?;
        for field in [Some(per_layer), text.get("num_kv_shared_layers")]
            .into_iter()
            .flatten()
        {
            if field.u32()? != 0 {
                return Err(unsupported(&field));
            }
        }
        match text.get("enable_moe_block") {
            Some(field) if field.bool()? => {}
            Some(field) => return Err(unsupported(&field)),
            None => {
                let feature = text.path_of("enable_moe_block");
                return Err(FormatError::UnsupportedFeature {
                    feature,
                    value: "missing".into(),
                });
            }
        }
        if let Some(field) = text.get("hidden_activation")
            && field.text()? != ACTIVATION
        {
            return Err(unsupported(&field));
        }
        for field in [
            text.get("tie_word_embeddings"),
            self.root.get("tie_word_embeddings"),
        ]
        .into_iter()
        .flatten()
        {
            if !field.bool()? {
                return Err(unsupported(&field));
            }
        }
        match text.get("use_bidirectional_attention") {
            // Images see each other both ways; text does not.
            Some(field) if field.text() != Ok("vision") && field.bool() != Ok(false) => {
                Err(unsupported(&field))
            }
            _ => Ok(()),
        }
    }

    fn arch(&self) -> Result<Arch, FormatError> {
        let text = self.text();
        let num_layers = self.dimension("num_hidden_layers")?;
        let num_kv_heads = self.dimension("num_key_value_heads")?;
        let attention_k_eq_v = text.need("attention_k_eq_v")?.bool()?;
        let sliding = self.rope(SLIDING)?;
        let full = self.rope(FULL)?;
        Ok(Arch {
            hidden_size: self.dimension("hidden_size")?,
            ffn_intermediate: self.dimension("intermediate_size")?,
            moe_intermediate: self.dimension("moe_intermediate_size")?,
            num_heads: self.dimension("num_attention_heads")?,
            num_kv_heads,
            // The reference gives full layers a count of their own only where their values branch off their keys.
            num_full_kv_heads: if attention_k_eq_v {
                self.dimension("num_global_key_value_heads")?
            } else {
                num_kv_heads
            },
            head_dim: self.dimension_or("head_dim", DEFAULT_HEAD_DIM)?,
            full_head_dim: self.dimension_or("global_head_dim", DEFAULT_FULL_HEAD_DIM)?,
            vocab_size: self.vocab_size()?,
            sliding_window: self.dimension("sliding_window")?,
            num_layers,
            num_experts: self.dimension("num_experts")?,
            top_k_experts: self.dimension("top_k_experts")?,
            final_logit_softcap: text.need("final_logit_softcapping")?.positive()?,
            rope_theta: sliding.theta,
            full_rope_theta: full.theta,
            partial_rotary_factor: full.share,
            tie_word_embeddings: true,
            attention_k_eq_v,
            hidden_activation: ACTIVATION.to_owned(),
            full_attention_layer_mask: self.mask(num_layers)?,
        })
    }

    fn vocab_size(&self) -> Result<u32, FormatError> {
        match self.text().get("vocab_size") {
            Some(size) => size.dimension(),
            None => self.root.need("vocab_size")?.dimension(),
        }
    }

    fn mask(&self, num_layers: u32) -> Result<Vec<bool>, FormatError> {
        let Some(types) = self.text().get("layer_types") else {
            return default_mask(num_layers);
        };
        let types = types.array()?;
        if types.len() as u64 != u64::from(num_layers) {
            return Err(FormatError::MaskLength {
                field: "layer_types",
                expected: num_layers,
                actual: types.len(),
            });
        }
        types
            .map(|kind| match kind.text()? {
                SLIDING => Ok(false),
                FULL => Ok(true),
                _ => Err(unsupported(&kind)),
            })
            .collect()
    }

    /// The rotary embedding of layers of this kind.
    fn rope(&self, kind: &str) -> Result<Rope, FormatError> {
        let is_full = kind == FULL;
        let default = Rope {
            theta: if is_full {
                DEFAULT_FULL_ROPE_THETA
            } else {
                DEFAULT_ROPE_THETA
            },
            share: if is_full {
                DEFAULT_PARTIAL_ROTARY_FACTOR
            } else {
                1.0
            },
        };
        let Some(parameters) = self.text().get("rope_parameters") else {
            return Ok(default);
        };
        let Some(parameters) = parameters
            .object()?
            .optional(kind, |field| field.object())?
        else {
            return Ok(default);
        };
        let theta = parameters
            .optional("rope_theta", |theta| theta.positive())?
            .unwrap_or(default.theta);
        if let Some(stretch) = parameters.get("factor")
            && stretch.positive()? != 1.0
        {
            return Err(unsupported(&stretch));
        }
        let rope_type = parameters.need("rope_type")?;
        let is_proportional = match rope_type.text()? {
            "default" => false,
            "proportional" => true,
            _ => return Err(unsupported(&rope_type)),
        };
        let mut share = 1.0;
        if let Some(factor) = parameters.get("partial_rotary_factor") {
            share = factor.positive()?;
            // Of the default type, a share would spread the exponents over the rotated part alone; sliding layers rotate whole.
            if share != 1.0 && !(is_full && is_proportional) {
                return Err(unsupported(&factor));
            }
        }
        Ok(Rope { theta, share })
    }
}

struct Rope {
    theta: f64,
    /// The share of the pairs that rotate.
    share: f64,
}

/// More layers than any model has; so that a count alone allocates nothing absurd.
const MAX_DEFAULT_LAYERS: u32 = 4_096;

fn default_mask(num_layers: u32) -> Result<Vec<bool>, FormatError> {
    if num_layers > MAX_DEFAULT_LAYERS {
        return Err(FormatError::OutOfRange {
            field: "num_hidden_layers".into(),
            expected: format!("at most {MAX_DEFAULT_LAYERS} where layer_types is missing"),
            actual: num_layers.to_string(),
        });
    }
    Ok((1..=num_layers)
        .map(|l| l.is_multiple_of(DEFAULT_LAYERS_PER_FULL))
        .collect())
}
