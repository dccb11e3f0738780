//! The only place that knows how Hugging Face and MLX name tensors.
//!
//! A source tensor is resident, part of a routed expert, skipped (vision and audio), or unknown, which is an error: a checkpoint with
//! tensors that nobody has thought about is not the model that this program computes.

use std::collections::BTreeSet;

use crate::{Arch, ExpertPart, FormatError};

/// The embedding, which is the output head too, `[vocab_size, hidden_size]`.
pub const EMBED_TOKENS: &str = "language_model.model.embed_tokens.weight";
/// The norm before the head, `[hidden_size]`.
pub const FINAL_NORM: &str = "language_model.model.norm.weight";

/// Query projection, `[num_heads * head_dim, hidden_size]`; this and the following go through [`layer`].
pub const Q_PROJ: &str = "self_attn.q_proj.weight";
/// Key projection, `[kv_heads * head_dim, hidden_size]`.
pub const K_PROJ: &str = "self_attn.k_proj.weight";
/// Value projection, shaped like the keys'; absent on full layers whose values branch off the keys.
pub const V_PROJ: &str = "self_attn.v_proj.weight";
/// Output projection, `[hidden_size, num_heads * head_dim]`.
pub const O_PROJ: &str = "self_attn.o_proj.weight";
/// Norm of each query head, `[head_dim]`.
pub const Q_NORM: &str = "self_attn.q_norm.weight";
/// Norm of each key head, `[head_dim]`.
pub const K_NORM: &str = "self_attn.k_norm.weight";
/// Router, `[num_experts, hidden_size]`.
pub const ROUTER_PROJ: &str = "router.proj.weight";
/// Factor of the router's normed input, `[hidden_size]`.
pub const ROUTER_SCALE: &str = "router.scale";
/// Factor of each expert's routing weight, `[num_experts]`.
pub const ROUTER_PER_EXPERT_SCALE: &str = "router.per_expert_scale";
/// Gate of the shared expert, `[ffn_intermediate, hidden_size]`.
pub const GATE_PROJ: &str = "mlp.gate_proj.weight";
/// Up projection of the shared expert, `[ffn_intermediate, hidden_size]`.
pub const UP_PROJ: &str = "mlp.up_proj.weight";
/// Down projection of the shared expert, `[hidden_size, ffn_intermediate]`.
pub const DOWN_PROJ: &str = "mlp.down_proj.weight";
/// Norm before the attention, `[hidden_size]`, like the six that follow.
pub const INPUT_NORM: &str = "input_layernorm.weight";
/// Norm of the attention's output.
pub const POST_ATTENTION_NORM: &str = "post_attention_layernorm.weight";
/// Norm before the shared expert.
pub const PRE_FEEDFORWARD_NORM: &str = "pre_feedforward_layernorm.weight";
/// Norm before the routed experts.
pub const PRE_FEEDFORWARD_NORM_2: &str = "pre_feedforward_layernorm_2.weight";
/// Norm of the sum of shared and routed experts.
pub const POST_FEEDFORWARD_NORM: &str = "post_feedforward_layernorm.weight";
/// Norm of the shared expert's output.
pub const POST_FEEDFORWARD_NORM_1: &str = "post_feedforward_layernorm_1.weight";
/// Norm of the routed experts' output.
pub const POST_FEEDFORWARD_NORM_2: &str = "post_feedforward_layernorm_2.weight";
/// Factor of the layer's output, `[1]`.
pub const LAYER_SCALAR: &str = "layer_scalar";

/// The resident tensors of a layer, in the order of the file.
const LAYER_ORDER: [&str; 20] = [
    Q_PROJ,
    K_PROJ,
    V_PROJ,
    O_PROJ,
    Q_NORM,
    K_NORM,
    ROUTER_PROJ,
    ROUTER_SCALE,
    ROUTER_PER_EXPERT_SCALE,
    GATE_PROJ,
    UP_PROJ,
    DOWN_PROJ,
    INPUT_NORM,
    POST_ATTENTION_NORM,
    PRE_FEEDFORWARD_NORM,
    PRE_FEEDFORWARD_NORM_2,
    POST_FEEDFORWARD_NORM,
    POST_FEEDFORWARD_NORM_1,
    POST_FEEDFORWARD_NORM_2,
    LAYER_SCALAR,
];

const TEXT_PREFIX: &str = "language_model.";
const LAYERS_PREFIX: &str = "language_model.model.layers.";
/// Towers that the text model does without; some checkpoints have them under `model.`.
const SKIPPED_PREFIXES: [&str; 3] = ["vision_tower.", "embed_vision.", "audio_tower."];
const EXPERTS: &str = "experts.switch_glu.";
const WEIGHT: &str = ".weight";
const SCALES: &str = ".scales";
const BIASES: &str = ".biases";

/// What a source tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It belongs into `model_weights.bin`, as an entry or as the companion of one.
    Resident,
    /// It holds one part of every routed expert of a layer, the expert being its first dimension.
    Expert {
        /// The layer.
        layer: u32,
        /// The part.
        part: ExpertPart,
    },
    /// It belongs to a tower that the text model does without.
    Skipped,
    /// Nothing is known about it.
    Unknown,
}

/// The full name of a layer's tensor, such as [`Q_PROJ`].
pub fn layer(layer: u32, tensor: &str) -> String {
    format!("{LAYERS_PREFIX}{layer}.{tensor}")
}

/// The source tensor that holds `part` of every routed expert of a layer.
pub fn expert(layer: u32, part: ExpertPart) -> String {
    format!("{LAYERS_PREFIX}{layer}.{EXPERTS}{}", expert_suffix(part))
}

fn expert_suffix(part: ExpertPart) -> &'static str {
    match part {
        ExpertPart::Gate => "gate_proj.weight",
        ExpertPart::GateScales => "gate_proj.scales",
        ExpertPart::GateBiases => "gate_proj.biases",
        ExpertPart::Up => "up_proj.weight",
        ExpertPart::UpScales => "up_proj.scales",
        ExpertPart::UpBiases => "up_proj.biases",
        ExpertPart::Down => "down_proj.weight",
        ExpertPart::DownScales => "down_proj.scales",
        ExpertPart::DownBiases => "down_proj.biases",
    }
}

/// What the source tensor `name` is for.
pub fn role(name: &str) -> Role {
    let bare = name.strip_prefix("model.").unwrap_or(name);
    if SKIPPED_PREFIXES
        .iter()
        .any(|prefix| bare.starts_with(prefix))
    {
        return Role::Skipped;
    }
    if !name.starts_with(TEXT_PREFIX) {
        return Role::Unknown;
    }
    let Some((number, tensor)) = name
        .strip_prefix(LAYERS_PREFIX)
        .and_then(|rest| rest.split_once('.'))
    else {
        return Role::Resident;
    };
    if !tensor.starts_with("experts.") {
        return Role::Resident;
    }
    let part = tensor.strip_prefix(EXPERTS).and_then(|suffix| {
        ExpertPart::ALL
            .into_iter()
            .find(|&part| expert_suffix(part) == suffix)
    });
    match (layer_number(number), part) {
        (Some(layer), Some(part)) => Role::Expert { layer, part },
        // Experts in another arrangement would take twelve gigabytes of the memory that they are streamed to save.
        _ => Role::Unknown,
    }
}

/// Like [`role`], for a checkpoint that is to be understood as a whole.
///
/// # Errors
/// [`FormatError::UnknownTensor`] instead of [`Role::Unknown`].
pub fn known_role(name: &str) -> Result<Role, FormatError> {
    match role(name) {
        Role::Unknown => Err(FormatError::UnknownTensor {
            name: name.to_owned(),
        }),
        role => Ok(role),
    }
}

/// A layer's number as names spell it: without a sign and without leading zeros, so that no two names mean one layer.
fn layer_number(digits: &str) -> Option<u32> {
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(number)
}

/// The name without `.weight`, by which `config.json` lists bit widths.
pub fn stem(name: &str) -> &str {
    name.strip_suffix(WEIGHT).unwrap_or(name)
}

/// The scales and the biases that belong to the quantized tensor `name`; `None` when its name does not end in `.weight`.
pub fn companions(name: &str) -> Option<(String, String)> {
    let stem = name.strip_suffix(WEIGHT)?;
    Some((format!("{stem}{SCALES}"), format!("{stem}{BIASES}")))
}

/// The tensor whose scales or biases `name` would be; `None` when it is named like neither.
pub fn companion_of(name: &str) -> Option<String> {
    let stem = name
        .strip_suffix(SCALES)
        .or_else(|| name.strip_suffix(BIASES))?;
    Some(format!("{stem}{WEIGHT}"))
}

/// The resident tensors that a model of this shape has to have, in the order of `model_weights.bin`.
pub fn resident_order(arch: &Arch) -> Vec<String> {
    let mut order = vec![EMBED_TOKENS.to_owned()];
    for (l, &is_full) in (0..arch.num_layers).zip(&arch.full_attention_layer_mask) {
        let has_values = !(is_full && arch.attention_k_eq_v);
        let tensors = LAYER_ORDER
            .iter()
            .filter(|&&tensor| tensor != V_PROJ || has_values);
        order.extend(tensors.map(|tensor| layer(l, tensor)));
    }
    order.push(FINAL_NORM.to_owned());
    order
}

/// Sorts the resident tensors `names` (companions left out) into the order of `model_weights.bin`: [`resident_order`], with those
/// that it does not list before the final norm, by name.
///
/// # Errors
/// [`FormatError::MissingTensor`] when one that the model has to have is not among them, [`FormatError::DuplicateName`].
pub fn order_resident(
    arch: &Arch,
    names: impl IntoIterator<Item = String>,
) -> Result<Vec<String>, FormatError> {
    let mut rest = BTreeSet::new();
    for name in names {
        if let Some(name) = rest.replace(name) {
            return Err(FormatError::DuplicateName { name });
        }
    }
    let mut order = resident_order(arch);
    for name in &order {
        if !rest.remove(name) {
            return Err(FormatError::MissingTensor { name: name.clone() });
        }
    }
    let before_final_norm = order.len() - 1;
    order.splice(before_final_norm..before_final_norm, rest);
    Ok(order)
}
