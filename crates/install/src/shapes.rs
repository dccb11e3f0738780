//! The shapes that a configuration gives to the resident tensors. A checkpoint whose tensors have others is refused before a byte is
//! copied: some 14 GB later the engine would refuse it too.

use std::collections::BTreeMap;
use std::fmt;

use ouzel_format::{Arch, names};

/// What a resident tensor has to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// The unpacked shape.
    pub shape: Vec<u32>,
    /// Whether it is packed, with scales and biases beside it.
    pub is_quantized: bool,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.is_quantized {
            "quantized"
        } else {
            "plain"
        };
        write!(f, "{kind} {:?} as config.json says", self.shape)
    }
}

/// Every resident tensor that a model of this shape has to have; the query projection's rows are heads, and so on as `names` says.
pub fn resident(arch: &Arch) -> BTreeMap<String, Expected> {
    let expected = |shape: &[u32], is_quantized| Expected {
        shape: shape.to_vec(),
        is_quantized,
    };
    let matrix = |n_out, n_in| expected(&[n_out, n_in], true);
    let vector = |len| expected(&[len], false);
    let (hidden, shared, experts) = (arch.hidden_size, arch.ffn_intermediate, arch.num_experts);
    let mut all = BTreeMap::from([
        (
            names::EMBED_TOKENS.to_owned(),
            matrix(arch.vocab_size, hidden),
        ),
        (names::FINAL_NORM.to_owned(), vector(hidden)),
    ]);
    for (layer, &is_full) in (0..).zip(&arch.full_attention_layer_mask) {
        let (head_dim, kv_heads) = if is_full {
            (arch.full_head_dim, arch.num_full_kv_heads)
        } else {
            (arch.head_dim, arch.num_kv_heads)
        };
        // Products of two dimensions of a real model are far below 2^32; one that is not matches no tensor.
        let query = arch.num_heads.saturating_mul(head_dim);
        let kv = kv_heads.saturating_mul(head_dim);
        all.extend(
            [
                (names::Q_PROJ, matrix(query, hidden)),
                (names::K_PROJ, matrix(kv, hidden)),
                (names::V_PROJ, matrix(kv, hidden)),
                (names::O_PROJ, matrix(hidden, query)),
                (names::Q_NORM, vector(head_dim)),
                (names::K_NORM, vector(head_dim)),
                (names::ROUTER_PROJ, matrix(experts, hidden)),
                (names::ROUTER_SCALE, vector(hidden)),
                (names::ROUTER_PER_EXPERT_SCALE, vector(experts)),
                (names::GATE_PROJ, matrix(shared, hidden)),
                (names::UP_PROJ, matrix(shared, hidden)),
                (names::DOWN_PROJ, matrix(hidden, shared)),
                (names::INPUT_NORM, vector(hidden)),
                (names::POST_ATTENTION_NORM, vector(hidden)),
                (names::PRE_FEEDFORWARD_NORM, vector(hidden)),
                (names::PRE_FEEDFORWARD_NORM_2, vector(hidden)),
                (names::POST_FEEDFORWARD_NORM, vector(hidden)),
                (names::POST_FEEDFORWARD_NORM_1, vector(hidden)),
                (names::POST_FEEDFORWARD_NORM_2, vector(hidden)),
                (names::LAYER_SCALAR, vector(1)),
            ]
            .map(|(tensor, expected)| (names::layer(layer, tensor), expected)),
        );
    }
    all
}
