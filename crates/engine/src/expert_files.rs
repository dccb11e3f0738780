//! Where each expert lies: the layer files of `packed_experts/`, as `layout.json` describes them.
//!
//! All experts of a model have one inner layout, so that is kept once, and a table of offsets. Pure: nothing is opened here.

use std::path::{Path, PathBuf};

use ouzel_format::{Checksums, Dtype, ExpertLayout, ExpertPart, Layout};
use ouzel_kernels::{Bits, QuantMatrix};

use crate::config::Config;
use crate::weights::{QuantRef, Tensor};
use crate::{EngineError, ExpertId, LayerId};

/// The three matrices of an expert, as ranges of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertParts {
    gate: QuantRef,
    up: QuantRef,
    down: QuantRef,
}

impl ExpertParts {
    /// `[expert_intermediate, hidden_size]`.
    pub fn gate<'a>(&self, expert: &'a [u8]) -> QuantMatrix<'a> {
        self.gate.of(expert)
    }

    /// `[expert_intermediate, hidden_size]`.
    pub fn up<'a>(&self, expert: &'a [u8]) -> QuantMatrix<'a> {
        self.up.of(expert)
    }

    /// `[hidden_size, expert_intermediate]`.
    pub fn down<'a>(&self, expert: &'a [u8]) -> QuantMatrix<'a> {
        self.down.of(expert)
    }
}

/// The places of all experts of a model.
#[derive(Clone, Debug)]
pub struct ExpertFiles {
    stride: usize,
    n_experts: usize,
    /// File names within `packed_experts/`, one a layer.
    names: Vec<String>,
    /// `[layers * experts]`, from the start of the layer's file.
    offsets: Vec<u64>,
    parts: ExpertParts,
    checksums: Option<Checksums>,
}

impl ExpertFiles {
    /// Checks `layout` against the configuration and keeps what reading needs. `path` names the layout in errors.
    pub fn new(
        path: &Path,
        layout: &Layout,
        checksums: Option<Checksums>,
        config: &Config,
    ) -> Result<ExpertFiles, EngineError> {
        let wrong = |name: &str, expected: String, actual: String| EngineError::Tensor {
            path: path.to_owned(),
            name: name.to_owned(),
            expected,
            actual,
        };
        let (n_layers, n_experts) = (config.n_layers(), config.n_experts);
        if layout.layers.len() != n_layers
            || layout.layers.iter().any(|l| l.experts.len() != n_experts)
        {
            return Err(wrong(
                "layers",
                format!("{n_layers} layers of {n_experts} experts"),
                format!(
                    "{} layers of {:?} experts",
                    layout.layers.len(),
                    layout.layers.first().map(|l| l.experts.len())
                ),
            ));
        }
        let first = &layout.layers[0].experts[0];
        let parts = expert_parts(config, first)
            .map_err(|(name, expected, actual)| wrong(name, expected, actual))?;
        for layer in &layout.layers {
            for expert in &layer.experts {
                if expert.tensors != first.tensors {
                    return Err(wrong(
                        &format!("layer {} expert {}", layer.layer, expert.expert),
                        "the same inner layout as every expert".to_owned(),
                        "another".to_owned(),
                    ));
                }
            }
        }
        if let Some(sums) = &checksums {
            let expected = (n_layers as u32, n_experts as u32, layout.expert_stride);
            let actual = (sums.layers, sums.experts, sums.stride);
            if expected != actual {
                return Err(wrong(
                    "checksums.bin",
                    format!("{expected:?}"),
                    format!("{actual:?}"),
                ));
            }
        }
        Ok(ExpertFiles {
            stride: layout.expert_stride as usize,
            n_experts,
            names: layout.layers.iter().map(|l| l.file.clone()).collect(),
            offsets: layout
                .layers
                .iter()
                .flat_map(|l| l.experts.iter().map(|e| e.offset))
                .collect(),
            parts,
            checksums,
        })
    }

    /// Bytes of an expert with its padding.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Layers with routed experts.
    pub fn n_layers(&self) -> usize {
        self.names.len()
    }

    /// Routed experts of a layer.
    pub fn n_experts(&self) -> usize {
        self.n_experts
    }

    /// The file of a layer, in the model directory `dir`.
    pub fn path(&self, dir: &Path, l: LayerId) -> PathBuf {
        dir.join("packed_experts").join(&self.names[l.index()])
    }

    /// Where an expert starts in its layer's file.
    pub fn offset(&self, l: LayerId, expert: ExpertId) -> u64 {
        self.offsets[l.index() * self.n_experts + expert.index()]
    }

    /// XXH3-64 of an expert's stride, where the directory has checksums.
    pub fn checksum(&self, l: LayerId, expert: ExpertId) -> Option<u64> {
        self.checksums.as_ref().map(|sums| sums.get(l.0, expert.0))
    }

    /// Where the matrices lie within an expert.
    pub fn parts(&self) -> &ExpertParts {
        &self.parts
    }
}

type Mismatch = (&'static str, String, String);

fn expert_parts(config: &Config, expert: &ExpertLayout) -> Result<ExpertParts, Mismatch> {
    use ExpertPart::{
        Down, DownBiases, DownScales, Gate, GateBiases, GateScales, Up, UpBiases, UpScales,
    };
    let (hidden, inner) = (config.hidden_size, config.expert_intermediate);
    let matrix = |name, n_out, n_in, parts| quant_part(expert, name, (n_out, n_in), parts);
    Ok(ExpertParts {
        gate: matrix("gate", inner, hidden, [Gate, GateScales, GateBiases])?,
        up: matrix("up", inner, hidden, [Up, UpScales, UpBiases])?,
        down: matrix("down", hidden, inner, [Down, DownScales, DownBiases])?,
    })
}

fn quant_part(
    expert: &ExpertLayout,
    name: &'static str,
    (n_out, n_in): (usize, usize),
    [weights, scales, biases]: [ExpertPart; 3],
) -> Result<QuantRef, Mismatch> {
    let part = |which| {
        expert.tensors.get(&which).ok_or_else(|| {
            (
                name,
                "weights, scales and biases".to_owned(),
                "one of them absent".to_owned(),
            )
        })
    };
    let range = |which| part(which).map(|p| p.offset as usize..(p.offset + p.size) as usize);
    let packed = part(weights)?;
    let shape = [n_out as u32, n_in as u32];
    if packed.shape != shape || packed.dtype != Dtype::U32 {
        return Err((
            name,
            format!("U32 {shape:?}"),
            format!("{:?} {:?}", packed.dtype, packed.shape),
        ));
    }
    QuantRef::new(Tensor {
        n_out,
        n_in,
        packed: range(weights)?,
        scales: range(scales)?,
        biases: range(biases)?,
    })
    .filter(|matrix| {
        packed
            .bits
            .is_none_or(|bits| bits == bit_count(matrix.bits))
    })
    .ok_or_else(|| {
        (
            name,
            "4 or 8 bits in groups of 64".to_owned(),
            format!("{} bytes", packed.size),
        )
    })
}

fn bit_count(bits: Bits) -> u32 {
    match bits {
        Bits::Q4 => 4,
        Bits::Q8 => 8,
    }
}
