//! What a model's weights weigh, part by part: from the index of an installed one, or from a shape alone.

use ouzel_format::{Layout, ResidentEntry, ResidentIndex, names, paths};
use ouzel_storage::{IoMode, PositionedFile};

use crate::config::{Config, LayerShape};
use crate::{EngineError, Model};

/// Resident bytes of one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerBytes {
    /// Projections of attention, the router, norms and scalars: what a token reads whether or not experts arrive.
    pub attention: u64,
    /// The shared expert, which computes while experts arrive.
    pub shared: u64,
}

/// Bytes of weights as the files have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightBytes {
    /// One entry a layer.
    pub layers: Vec<LayerBytes>,
    /// The output head, which is the embedding, with its norm.
    pub head: u64,
    /// One routed expert.
    pub expert: u64,
    /// The same with its padding: what one read brings.
    pub expert_stride: u64,
}

/// Padding of an expert in the file.
const EXPERT_ALIGNMENT: u64 = 16_384;

impl WeightBytes {
    /// A model of this shape as the MLX 4-bit checkpoints have it: 4-bit matrices, an 8-bit router, BF16 scales, biases and norms.
    pub fn of_shape(config: &Config) -> WeightBytes {
        let hidden = config.hidden_size;
        let shared = 3 * quantized_bytes(4, config.shared_intermediate, hidden);
        let expert = 3 * quantized_bytes(4, config.expert_intermediate, hidden);
        let layer = |shape: &LayerShape| {
            let n_kv = if shape.has_value_proj { 2 } else { 1 };
            // Seven norms and the router's scale, a scale of each expert, the norms of heads, the layer's scalar.
            let vectors = 8 * hidden + config.n_experts + 2 * shape.head_dim + 1;
            LayerBytes {
                attention: 2 * quantized_bytes(4, shape.query_width(), hidden)
                    + n_kv * quantized_bytes(4, shape.kv_width(), hidden)
                    + quantized_bytes(8, config.n_experts, hidden)
                    + 2 * vectors as u64,
                shared,
            }
        };
        WeightBytes {
            layers: config.layers.iter().map(layer).collect(),
            head: quantized_bytes(4, config.vocab_size, hidden) + 2 * hidden as u64,
            expert,
            expert_stride: expert.next_multiple_of(EXPERT_ALIGNMENT),
        }
    }

    fn of_files(config: &Config, index: &ResidentIndex, layout: &Layout) -> WeightBytes {
        let mut layers = Vec::with_capacity(config.n_layers());
        for l in config.layer_ids() {
            let shared = [names::GATE_PROJ, names::UP_PROJ, names::DOWN_PROJ];
            let shared = shared.map(|tensor| names::layer(l.0, tensor));
            let shared = bytes_of(index, |name| shared.iter().any(|shared| shared == name));
            let prefix = names::layer(l.0, "");
            layers.push(LayerBytes {
                attention: bytes_of(index, |name| name.starts_with(&prefix)) - shared,
                shared,
            });
        }
        let first = layout
            .layers
            .first()
            .and_then(|layer| layer.experts.first());
        WeightBytes {
            layers,
            head: bytes_of(index, |name| {
                [names::EMBED_TOKENS, names::FINAL_NORM].contains(&name)
            }),
            expert: first.map_or(0, |expert| {
                expert.tensors.values().map(|part| part.size).sum()
            }),
            expert_stride: layout.expert_stride,
        }
    }
}

/// A matrix of `bits` a weight in groups of 64 along its input, each with a BF16 scale and bias.
fn quantized_bytes(bits: u64, n_out: usize, n_in: usize) -> u64 {
    let n = (n_out * n_in) as u64;
    n * bits / 8 + n / 64 * 4
}

/// Bytes of the tensors that `is_meant` names, with their scales and biases.
fn bytes_of(index: &ResidentIndex, is_meant: impl Fn(&str) -> bool) -> u64 {
    let size = |entry: &ResidentEntry| {
        let companions = [&entry.scales, &entry.biases].into_iter().flatten();
        entry.size + companions.map(|extent| extent.size).sum::<u64>()
    };
    let meant = index.entries.iter().filter(|entry| is_meant(&entry.name));
    meant.map(size).sum()
}

impl Model {
    /// What the weights weigh, part by part; reads the two indices of the directory again.
    ///
    /// # Errors
    /// Those of [`Model::open`], if the directory changed meanwhile.
    pub fn weight_bytes(&self) -> Result<WeightBytes, EngineError> {
        let path = self.weights_path();
        let format = |path: &std::path::Path| {
            let path = path.to_owned();
            |source| EngineError::Format { path, source }
        };
        let file = PositionedFile::open(&path, IoMode::Buffered)?;
        let mut head = [0; ResidentIndex::HEADER_BYTES];
        file.read_exact_at(&mut head, 0)?;
        let index_bytes = ResidentIndex::index_size(&head).map_err(format(&path))?;
        let mut bytes = vec![0; index_bytes as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let index = ResidentIndex::parse(&bytes).map_err(format(&path))?;

        let path = self.dir().join(paths::LAYOUT);
        let file = PositionedFile::open(&path, IoMode::Buffered)?;
        let mut bytes = vec![0; file.len() as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let layout = Layout::parse(&bytes).map_err(format(&path))?;
        Ok(WeightBytes::of_files(self.config(), &index, &layout))
    }
}
