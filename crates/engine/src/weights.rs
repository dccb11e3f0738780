//! The resident weights: `model_weights.bin`, read once into memory that the session owns.
//!
//! [`WeightMap::new`] is pure: it finds every tensor that the configuration asks for in the file's index and checks its
//! shape. Matrices stay packed as the file has them, each part moved to a cache line of its own (`residents.rs`); norms and scales
//! become f32, since they are small and read by every token.

mod residents;

use std::ops::Range;
use std::path::Path;

use half::bf16;
use ouzel_format::{Dtype, ResidentEntry, ResidentIndex, names};
use ouzel_kernels::{Bits, QuantMatrix};
use ouzel_storage::{AlignedBuf, PositionedFile};

use residents::Residents;

use crate::config::Config;
use crate::ops::{HeadNorm, Matrix, Norm};
use crate::{EngineError, LayerId};

/// A quantized matrix as ranges of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuantRef {
    /// Bits of a weight.
    pub bits: Bits,
    tensor: Tensor,
}

/// What a quantized matrix is made of, before its bits are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor {
    /// Output rows.
    pub n_out: usize,
    /// Input columns.
    pub n_in: usize,
    /// Packed weights.
    pub packed: Range<usize>,
    /// BF16 scales.
    pub scales: Range<usize>,
    /// BF16 biases.
    pub biases: Range<usize>,
}

impl QuantRef {
    /// Derives the bits of a weight from the sizes; `None` where they fit neither 4 nor 8 bits in groups of 64.
    pub fn new(tensor: Tensor) -> Option<QuantRef> {
        let n = tensor.n_out * tensor.n_in;
        let bits = match tensor.packed.len() {
            len if len * 2 == n => Bits::Q4,
            len if len == n => Bits::Q8,
            _ => return None,
        };
        let group_bytes = n / 64 * 2;
        let groups_fit = tensor.scales.len() == group_bytes && tensor.biases.len() == group_bytes;
        (groups_fit && tensor.n_in.is_multiple_of(64)).then_some(QuantRef { bits, tensor })
    }

    /// The matrix, in the bytes that its ranges mean.
    pub fn of<'a>(&self, bytes: &'a [u8]) -> QuantMatrix<'a> {
        let t = &self.tensor;
        QuantMatrix::new(
            self.bits,
            t.n_out,
            t.n_in,
            &bytes[t.packed.clone()],
            &bytes[t.scales.clone()],
            &bytes[t.biases.clone()],
        )
    }
}

/// A vector as a range of the memory.
#[derive(Clone, Debug)]
struct VectorRef {
    dtype: Dtype,
    range: Range<usize>,
}

const NORMS: [(Norm, &str); 7] = [
    (Norm::Input, names::INPUT_NORM),
    (Norm::PostAttention, names::POST_ATTENTION_NORM),
    (Norm::PreFeedforward, names::PRE_FEEDFORWARD_NORM),
    (Norm::PreFeedforward2, names::PRE_FEEDFORWARD_NORM_2),
    (Norm::PostFeedforward, names::POST_FEEDFORWARD_NORM),
    (Norm::PostFeedforward1, names::POST_FEEDFORWARD_NORM_1),
    (Norm::PostFeedforward2, names::POST_FEEDFORWARD_NORM_2),
];

#[derive(Clone, Debug)]
struct LayerMap {
    query: QuantRef,
    key: QuantRef,
    value: Option<QuantRef>,
    output: QuantRef,
    shared_gate: QuantRef,
    shared_up: QuantRef,
    shared_down: QuantRef,
    router: QuantRef,
    /// In the order of [`NORMS`].
    norms: Vec<VectorRef>,
    query_norm: VectorRef,
    key_norm: VectorRef,
    router_scale: VectorRef,
    per_expert_scale: VectorRef,
    layer_scalar: VectorRef,
}

/// Where every resident tensor lies in memory.
#[derive(Clone, Debug)]
pub struct WeightMap {
    embedding: QuantRef,
    final_norm: VectorRef,
    layers: Vec<LayerMap>,
    residents: Residents,
}

impl WeightMap {
    /// Finds every tensor of `config` in `index`; `path` names the file in errors.
    pub fn new(
        path: &Path,
        index: &ResidentIndex,
        config: &Config,
    ) -> Result<WeightMap, EngineError> {
        let residents = Residents::new(index);
        let find = Finder {
            path,
            index,
            residents: &residents,
        };
        let layers = config
            .layer_ids()
            .map(|l| find.layer(config, l))
            .collect::<Result<_, _>>()?;
        Ok(WeightMap {
            embedding: find.matrix(names::EMBED_TOKENS, config.vocab_size, config.hidden_size)?,
            final_norm: find.vector(names::FINAL_NORM, config.hidden_size)?,
            layers,
            residents,
        })
    }

    /// Bytes that the loaded weights occupy.
    pub fn bytes(&self, config: &Config) -> u64 {
        // A layer has eight norms with the router's, each expert's scale, the norms of query and key heads, and its scalar.
        let in_layer =
            |head_dim| (NORMS.len() + 1) * config.hidden_size + config.n_experts + 2 * head_dim + 1;
        let in_layers: usize = config
            .layers
            .iter()
            .map(|shape| in_layer(shape.head_dim))
            .sum();
        let norms = 4 * (in_layers + config.hidden_size);
        let bytes = self.residents.n_bytes();
        (bytes.next_multiple_of(AlignedBuf::ALIGNMENT) + norms) as u64
    }
}

struct Finder<'a> {
    path: &'a Path,
    index: &'a ResidentIndex,
    residents: &'a Residents,
}

impl Finder<'_> {
    fn layer(&self, config: &Config, l: LayerId) -> Result<LayerMap, EngineError> {
        let shape = config.layer(l);
        let (hidden, shared) = (config.hidden_size, config.shared_intermediate);
        let (query, kv) = (shape.query_width(), shape.kv_width());
        let matrix = |part, n_out, n_in| self.matrix(&names::layer(l.0, part), n_out, n_in);
        let vector = |part, len| self.vector(&names::layer(l.0, part), len);
        Ok(LayerMap {
            query: matrix(names::Q_PROJ, query, hidden)?,
            key: matrix(names::K_PROJ, kv, hidden)?,
            value: if shape.has_value_proj {
                Some(matrix(names::V_PROJ, kv, hidden)?)
            } else {
                None
            },
            output: matrix(names::O_PROJ, hidden, query)?,
            shared_gate: matrix(names::GATE_PROJ, shared, hidden)?,
            shared_up: matrix(names::UP_PROJ, shared, hidden)?,
            shared_down: matrix(names::DOWN_PROJ, hidden, shared)?,
            router: matrix(names::ROUTER_PROJ, config.n_experts, hidden)?,
            norms: NORMS
                .iter()
                .map(|&(_, part)| vector(part, hidden))
                .collect::<Result<_, _>>()?,
            query_norm: vector(names::Q_NORM, shape.head_dim)?,
            key_norm: vector(names::K_NORM, shape.head_dim)?,
            router_scale: vector(names::ROUTER_SCALE, hidden)?,
            per_expert_scale: vector(names::ROUTER_PER_EXPERT_SCALE, config.n_experts)?,
            layer_scalar: vector(names::LAYER_SCALAR, 1)?,
        })
    }

    fn entry(&self, name: &str, expected: &str) -> Result<&ResidentEntry, EngineError> {
        self.index
            .entries
            .iter()
            .find(|entry| entry.name == name)
            .ok_or_else(|| self.wrong(name, expected, "nothing".to_owned()))
    }

    fn matrix(&self, name: &str, n_out: usize, n_in: usize) -> Result<QuantRef, EngineError> {
        let expected = format!("a quantized [{n_out}, {n_in}]");
        let entry = self.entry(name, &expected)?;
        let found = || {
            format!(
                "{:?} {:?} of {} bytes",
                entry.dtype, entry.shape, entry.size
            )
        };
        let (Some(scales), Some(biases)) = (entry.scales, entry.biases) else {
            return Err(self.wrong(name, &expected, found()));
        };
        if entry.dtype != Dtype::U32 || entry.shape != [n_out as u32, n_in as u32] {
            return Err(self.wrong(name, &expected, found()));
        }
        QuantRef::new(Tensor {
            n_out,
            n_in,
            packed: self.residents.place(entry.extent()),
            scales: self.residents.place(scales),
            biases: self.residents.place(biases),
        })
        .ok_or_else(|| self.wrong(name, &expected, found()))
    }

    fn vector(&self, name: &str, len: usize) -> Result<VectorRef, EngineError> {
        let expected = format!("[{len}] in BF16, F16 or F32");
        let entry = self.entry(name, &expected)?;
        let width = match entry.dtype {
            Dtype::BF16 | Dtype::F16 => 2,
            Dtype::F32 => 4,
            Dtype::U32 => 0,
        };
        if entry.size != (len * width) as u64 {
            let found = format!(
                "{:?} {:?} of {} bytes",
                entry.dtype, entry.shape, entry.size
            );
            return Err(self.wrong(name, &expected, found));
        }
        Ok(VectorRef {
            dtype: entry.dtype,
            range: self.residents.place(entry.extent()),
        })
    }

    fn wrong(&self, name: &str, expected: &str, actual: String) -> EngineError {
        EngineError::Tensor {
            path: self.path.to_owned(),
            name: name.to_owned(),
            expected: expected.to_owned(),
            actual,
        }
    }
}

/// The small weights of a layer, in f32.
struct LayerVectors {
    norms: Vec<Vec<f32>>,
    query_norm: Vec<f32>,
    key_norm: Vec<f32>,
    /// `router.scale / sqrt(hidden_size)`.
    router_norm: Vec<f32>,
    per_expert_scale: Vec<f32>,
    layer_scalar: f32,
}

/// The resident weights of a model, in memory.
pub struct Weights {
    map: WeightMap,
    bytes: AlignedBuf,
    final_norm: Vec<f32>,
    layers: Vec<LayerVectors>,
}

impl Weights {
    /// Reads every tensor.
    pub fn load(
        file: &PositionedFile,
        map: WeightMap,
        config: &Config,
    ) -> Result<Weights, EngineError> {
        let bytes = map.residents.read(file)?;
        let root = (config.hidden_size as f32).sqrt();
        let layers = map
            .layers
            .iter()
            .map(|layer| LayerVectors {
                norms: layer.norms.iter().map(|v| v.read(&bytes)).collect(),
                query_norm: layer.query_norm.read(&bytes),
                key_norm: layer.key_norm.read(&bytes),
                router_norm: layer
                    .router_scale
                    .read(&bytes)
                    .iter()
                    .map(|s| s / root)
                    .collect(),
                per_expert_scale: layer.per_expert_scale.read(&bytes),
                layer_scalar: layer.layer_scalar.read(&bytes)[0],
            })
            .collect();
        Ok(Weights {
            final_norm: map.final_norm.read(&bytes),
            layers,
            map,
            bytes,
        })
    }

    /// The embedding, which is also the head: `[vocab_size, hidden_size]`.
    pub fn embedding(&self) -> QuantMatrix<'_> {
        self.map.embedding.of(&self.bytes)
    }

    /// A matrix of a layer.
    ///
    /// # Panics
    /// If the layer has no value projection and one is asked for.
    pub fn matrix(&self, l: LayerId, matrix: Matrix) -> QuantMatrix<'_> {
        let layer = &self.map.layers[l.index()];
        let found = match matrix {
            Matrix::Query => &layer.query,
            Matrix::Key => &layer.key,
            Matrix::Value => layer
                .value
                .as_ref()
                .expect("the layer has a value projection"),
            Matrix::Output => &layer.output,
            Matrix::SharedGate => &layer.shared_gate,
            Matrix::SharedUp => &layer.shared_up,
            Matrix::SharedDown => &layer.shared_down,
            Matrix::Router => &layer.router,
        };
        found.of(&self.bytes)
    }

    /// The weight of a norm of a layer, `[hidden_size]`.
    pub fn norm(&self, l: LayerId, norm: Norm) -> &[f32] {
        let layer = &self.layers[l.index()];
        match NORMS.iter().position(|&(of, _)| of == norm) {
            Some(i) => &layer.norms[i],
            None => &layer.router_norm,
        }
    }

    /// The weight of a head norm of a layer, `[head_dim]`.
    pub fn head_norm(&self, l: LayerId, norm: HeadNorm) -> Option<&[f32]> {
        let layer = &self.layers[l.index()];
        match norm {
            HeadNorm::Query => Some(&layer.query_norm),
            HeadNorm::Key => Some(&layer.key_norm),
            HeadNorm::Bare => None,
        }
    }

    /// The weight of the norm before the head.
    pub fn final_norm(&self) -> &[f32] {
        &self.final_norm
    }

    /// `[n_experts]`.
    pub fn per_expert_scale(&self, l: LayerId) -> &[f32] {
        &self.layers[l.index()].per_expert_scale
    }

    /// What the layer's output is multiplied by, residual included.
    pub fn layer_scalar(&self, l: LayerId) -> f32 {
        self.layers[l.index()].layer_scalar
    }
}

impl VectorRef {
    fn read(&self, bytes: &[u8]) -> Vec<f32> {
        let bytes = &bytes[self.range.clone()];
        let pairs = bytes
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]));
        match self.dtype {
            Dtype::BF16 => pairs.map(|bits| bf16::from_bits(bits).to_f32()).collect(),
            Dtype::F16 => pairs
                .map(|bits| half::f16::from_bits(bits).to_f32())
                .collect(),
            Dtype::F32 | Dtype::U32 => bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
        }
    }
}
