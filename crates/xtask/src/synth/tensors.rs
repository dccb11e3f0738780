//! Every tensor of a synthetic model: its name, its shape and what it is filled with. The bytes are made by `rows`.

use ouzel_format::{Arch, ExpertPart, names};

use super::balance::Balance;
use super::directions::{Directions, Embedding};
use super::preset::Skew;

/// Values in a quant group.
pub const GROUP: usize = 64;

/// What a tensor is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fill {
    /// 4 bits, uniform around zero, with deviation `1 / sqrt(n_in)`.
    Weights,
    /// 4 bits: see `directions`.
    Embedding,
    /// 8 bits: see `directions`.
    Router(u32),
    /// BF16, one row: this mean and this deviation.
    Vector(f32, f32),
}

/// A tensor, not its bytes.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// The name that Hugging Face gives it; for an expert's matrix a name of ours.
    pub name: String,
    /// Rows.
    pub n_out: usize,
    /// Entries of a row.
    pub n_in: usize,
    /// How it is made.
    pub fill: Fill,
}

/// One of the three parts of a quantized tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Packed values, or the elements of a vector.
    Values,
    /// BF16 scales.
    Scales,
    /// BF16 biases.
    Biases,
}

impl Tensor {
    /// Whether it has scales and biases.
    pub fn is_quantized(&self) -> bool {
        !matches!(self.fill, Fill::Vector(..))
    }

    /// Bytes of a row of one part; 0 for a part that the tensor lacks.
    pub fn row_bytes(&self, part: Part) -> usize {
        match (part, self.fill) {
            (Part::Values, Fill::Vector(..)) => 2 * self.n_in,
            (Part::Values, Fill::Router(_)) => self.n_in,
            (Part::Values, _) => self.n_in / 2,
            (_, Fill::Vector(..)) => 0,
            _ => 2 * (self.n_in / GROUP),
        }
    }

    /// Bytes of a part.
    pub fn bytes(&self, part: Part) -> u64 {
        (self.n_out * self.row_bytes(part)) as u64
    }
}

/// A synthetic model: all that its bytes depend on.
pub struct Source {
    /// The model's shape.
    pub arch: Arch,
    pub(super) seed: u64,
    balance: Balance,
    directions: Directions,
    pub(super) embedding: Embedding,
}

impl Source {
    /// The model of this shape, skew and seed.
    pub fn new(arch: Arch, skew: Skew, seed: u64) -> Source {
        let balance = Balance::of(skew);
        let directions = Directions::new(seed, &arch);
        let embedding = Embedding::new(&arch, &directions);
        Source {
            arch,
            seed,
            balance,
            directions,
            embedding,
        }
    }

    /// The resident tensors, in the order of `model_weights.bin`.
    pub fn resident(&self) -> Vec<Tensor> {
        let arch = &self.arch;
        let mut all = vec![Tensor {
            name: names::EMBED_TOKENS.to_owned(),
            n_out: arch.vocab_size as usize,
            n_in: arch.hidden_size as usize,
            fill: Fill::Embedding,
        }];
        for layer in 0..arch.num_layers {
            all.extend(self.layer(layer));
        }
        all.push(norm(names::FINAL_NORM.to_owned(), arch.hidden_size, 1.0));
        all
    }

    /// The resident tensors of a layer, in the order of the file.
    pub fn layer(&self, l: u32) -> Vec<Tensor> {
        let arch = &self.arch;
        let is_full = arch.full_attention_layer_mask[l as usize];
        let (head_dim, kv_heads) = if is_full {
            (arch.full_head_dim, arch.num_full_kv_heads)
        } else {
            (arch.head_dim, arch.num_kv_heads)
        };
        let (hidden, shared) = (arch.hidden_size, arch.ffn_intermediate);
        let (query, kv) = (arch.num_heads * head_dim, kv_heads * head_dim);
        let name = |tensor| names::layer(l, tensor);
        let matrix = |tensor, n_out, n_in| self.weights(name(tensor), n_out, n_in);
        let around = |tensor, len, mean| norm(name(tensor), len, mean);
        let mut all = vec![
            matrix(names::Q_PROJ, query, hidden),
            matrix(names::K_PROJ, kv, hidden),
            matrix(names::V_PROJ, kv, hidden),
            matrix(names::O_PROJ, hidden, query),
            around(names::Q_NORM, head_dim, Balance::QUERY_KEY),
            around(names::K_NORM, head_dim, Balance::QUERY_KEY),
            Tensor {
                fill: Fill::Router(l),
                ..matrix(names::ROUTER_PROJ, arch.num_experts, hidden)
            },
            around(names::ROUTER_SCALE, hidden, 1.0),
            around(names::ROUTER_PER_EXPERT_SCALE, arch.num_experts, 1.0),
            matrix(names::GATE_PROJ, shared, hidden),
            matrix(names::UP_PROJ, shared, hidden),
            matrix(names::DOWN_PROJ, hidden, shared),
            around(names::INPUT_NORM, hidden, 1.0),
            around(names::POST_ATTENTION_NORM, hidden, Balance::POST_ATTENTION),
            around(names::PRE_FEEDFORWARD_NORM, hidden, 1.0),
            around(names::PRE_FEEDFORWARD_NORM_2, hidden, 1.0),
            around(
                names::POST_FEEDFORWARD_NORM,
                hidden,
                Balance::POST_FEEDFORWARD,
            ),
            around(names::POST_FEEDFORWARD_NORM_1, hidden, 1.0),
            around(names::POST_FEEDFORWARD_NORM_2, hidden, 1.0),
            Tensor {
                fill: Fill::Vector(1.0, 0.0),
                ..around(names::LAYER_SCALAR, 1, 1.0)
            },
        ];
        if is_full && arch.attention_k_eq_v {
            all.retain(|tensor| tensor.name != name(names::V_PROJ));
        }
        all
    }

    /// Gate, up and down projection of a routed expert.
    pub fn expert(&self, layer: u32, expert: u32) -> [Tensor; 3] {
        let (hidden, inner) = (self.arch.hidden_size, self.arch.moe_intermediate);
        [
            (ExpertPart::Gate, inner, hidden),
            (ExpertPart::Up, inner, hidden),
            (ExpertPart::Down, hidden, inner),
        ]
        .map(|(part, n_out, n_in)| {
            let name = format!("layer {layer} expert {expert} {}", part.name());
            self.weights(name, n_out, n_in)
        })
    }

    /// The rows of a layer's router, before they are rounded.
    pub fn router(&self, layer: u32) -> Vec<Vec<f32>> {
        self.directions
            .router(self.seed, layer, &self.arch, &self.balance)
    }

    fn weights(&self, name: String, n_out: u32, n_in: u32) -> Tensor {
        Tensor {
            name,
            n_out: n_out as usize,
            n_in: n_in as usize,
            fill: Fill::Weights,
        }
    }
}

/// A vector that a norm multiplies with; a twentieth of its mean as deviation, so that no two entries are alike.
fn norm(name: String, len: u32, mean: f32) -> Tensor {
    Tensor {
        name,
        n_out: 1,
        n_in: len as usize,
        fill: Fill::Vector(mean, mean / 20.0),
    }
}
