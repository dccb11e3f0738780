//! Which bytes of the checkpoint go where: pure, so that it can be checked without a disk and driven by any source.
//!
//! A planned file is a list of pieces in the order in which they are written: bytes made here, ranges of source files, zeros.
//! Nothing is written twice and nothing is written out of order, so that hashes are taken on the way.

use std::collections::BTreeMap;

use ouzel_format::names::{self, Role};
use ouzel_format::safetensors::TensorDtype;
use ouzel_format::{
    ALIGNMENT, Arch, Dtype, ExpertLayout, ExpertPart, Extent, GROUP_SIZE, LayerLayout, Layout,
    PartLayout, ResidentEntry, ResidentIndex, Sha256Hex, paths,
};
use ouzel_storage::Sha256;

use crate::checkpoint::{Checkpoint, SourceTensor};
use crate::{InstallError, Source, shapes};

/// Some bytes of a planned file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that planning made.
    Bytes(Vec<u8>),
    /// A range of a source file.
    Copy {
        /// Index into [`Plan::sources`].
        source: usize,
        /// Where it starts.
        offset: u64,
        /// How long it is.
        len: u64,
    },
    /// Padding.
    Zeros(u64),
}

impl Piece {
    /// Bytes of the piece.
    pub fn len(&self) -> u64 {
        match self {
            Piece::Bytes(bytes) => bytes.len() as u64,
            Piece::Copy { len, .. } | Piece::Zeros(len) => *len,
        }
    }

    /// Whether the piece has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// One file of the model directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedFile {
    /// Its path within the directory.
    pub path: String,
    /// Its pieces, in order.
    pub pieces: Vec<Piece>,
    /// Whether every stride of it has a checksum of its own.
    pub has_experts: bool,
}

impl PlannedFile {
    /// Bytes of the file.
    pub fn size(&self) -> u64 {
        self.pieces.iter().map(Piece::len).sum()
    }
}

/// A model directory, planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Names of the source files that pieces refer to.
    pub sources: Vec<String>,
    /// The payload, in the order in which it is written.
    pub files: Vec<PlannedFile>,
    /// Bytes of an expert with its padding.
    pub expert_stride: u64,
}

impl Plan {
    /// Bytes of all planned files.
    pub fn size(&self) -> u64 {
        self.files.iter().map(PlannedFile::size).sum()
    }

    /// A digest of what would be written: the same plan over the same versions of the same files has the same.
    pub fn fingerprint(&self, source: &dyn Source) -> Sha256Hex {
        let mut hash = Sha256::new();
        let mut text = |text: &str| {
            hash.update(&(text.len() as u64).to_le_bytes());
            hash.update(text.as_bytes());
        };
        for name in &self.sources {
            text(name);
            text(&source.version(name));
        }
        for file in &self.files {
            text(&file.path);
            for piece in &file.pieces {
                match piece {
                    Piece::Bytes(bytes) => {
                        let digest = Sha256Hex::from_bytes(Sha256::digest(bytes));
                        text(&format!("bytes {digest}"));
                    }
                    Piece::Copy {
                        source,
                        offset,
                        len,
                    } => text(&format!("copy {source} {offset} {len}")),
                    Piece::Zeros(len) => text(&format!("zeros {len}")),
                }
            }
        }
        Sha256Hex::from_bytes(hash.finish())
    }
}

/// Plans the model directory of a checkpoint.
///
/// # Errors
/// [`InstallError::Format`] for missing or unknown tensors and bits that disagree with the configuration, [`InstallError::Tensor`]
/// for shapes that do.
pub fn plan(checkpoint: &Checkpoint) -> Result<Plan, InstallError> {
    let mut sources = Sources::default();
    let resident = resident_file(checkpoint, &mut sources)?;
    let arch = &checkpoint.config.arch;
    let parts = expert_parts(checkpoint)?;
    let expert_size: u64 = parts.values().map(|part| part.size).sum();
    let expert_stride = expert_size.next_multiple_of(ALIGNMENT);

    let mut files = vec![resident];
    for layer in 0..arch.num_layers {
        files.push(layer_file(
            checkpoint,
            &mut sources,
            layer,
            &parts,
            expert_stride,
        )?);
    }
    let layout = layout(arch, &parts, expert_stride);
    files.push(PlannedFile {
        path: paths::LAYOUT.to_owned(),
        pieces: vec![Piece::Bytes(layout.encode())],
        has_experts: false,
    });
    for (name, size) in &checkpoint.side_files {
        files.push(PlannedFile {
            path: format!("{}/{name}", paths::TOKENIZER_DIR),
            pieces: vec![Piece::Copy {
                source: sources.index(name),
                offset: 0,
                len: *size,
            }],
            has_experts: false,
        });
    }
    Ok(Plan {
        sources: sources.names,
        files,
        expert_stride,
    })
}

#[derive(Default)]
struct Sources {
    names: Vec<String>,
}

impl Sources {
    fn index(&mut self, name: &str) -> usize {
        self.names
            .iter()
            .position(|known| known == name)
            .unwrap_or_else(|| {
                self.names.push(name.to_owned());
                self.names.len() - 1
            })
    }

    fn whole(&mut self, tensor: &SourceTensor) -> Piece {
        Piece::Copy {
            source: self.index(&tensor.shard),
            offset: tensor.info.start,
            len: tensor.info.size(),
        }
    }
}

fn resident_file(
    checkpoint: &Checkpoint,
    sources: &mut Sources,
) -> Result<PlannedFile, InstallError> {
    let arch = &checkpoint.config.arch;
    let order = resident_entries(checkpoint)?;
    let payload_start = ResidentIndex::size_for(order.iter().map(String::as_str))
        .map_err(InstallError::format(paths::WEIGHTS))?;

    let expected_shapes = shapes::resident(arch);
    let mut offset = payload_start;
    let mut entries = Vec::with_capacity(order.len());
    let mut pieces = vec![Piece::Bytes(Vec::new())];
    for name in order {
        let tensor = &checkpoint.tensors[&name];
        let mut extent_of = |tensor: &SourceTensor| {
            let extent = Extent {
                offset,
                size: tensor.info.size(),
            };
            offset += extent.size;
            pieces.push(sources.whole(tensor));
            extent
        };
        let weights = extent_of(tensor);
        let companions = companions(checkpoint, &name);
        let (shape, scales, biases) = match companions {
            Some((scales, biases)) => {
                let shape = quantized_shape(checkpoint, tensor, scales, biases)?;
                (shape, Some(extent_of(scales)), Some(extent_of(biases)))
            }
            None => (small_shape(tensor)?, None, None),
        };
        if let Some(expected) = expected_shapes.get(&name)
            && (expected.shape != shape || expected.is_quantized != scales.is_some())
        {
            return Err(mismatch(tensor, expected.to_string()));
        }
        entries.push(ResidentEntry {
            dtype: resident_dtype(tensor)?,
            name,
            offset: weights.offset,
            size: weights.size,
            shape,
            scales,
            biases,
        });
    }
    let index = ResidentIndex {
        entries,
        payload_size: offset - payload_start,
    };
    index
        .check()
        .map_err(InstallError::format(paths::WEIGHTS))?;
    pieces[0] = Piece::Bytes(index.encode());
    Ok(PlannedFile {
        path: paths::WEIGHTS.to_owned(),
        pieces,
        has_experts: false,
    })
}

/// Names of the resident entries in the order of the file; every tensor of the checkpoint is looked at.
fn resident_entries(checkpoint: &Checkpoint) -> Result<Vec<String>, InstallError> {
    let arch = &checkpoint.config.arch;
    let mut names_of_entries = Vec::new();
    for (name, tensor) in &checkpoint.tensors {
        let role = names::known_role(name).map_err(InstallError::format(&tensor.shard))?;
        if let Role::Expert { layer, .. } = role
            && layer >= arch.num_layers
        {
            let n = arch.num_layers;
            return Err(mismatch(
                tensor,
                format!("only the {n} layers of config.json"),
            ));
        }
        if role == Role::Resident && !is_companion(checkpoint, name) {
            names_of_entries.push(name.clone());
        }
    }
    names::order_resident(arch, names_of_entries).map_err(InstallError::format("the checkpoint"))
}

/// Scales and biases of a quantized tensor.
fn companions<'a>(
    checkpoint: &'a Checkpoint,
    name: &str,
) -> Option<(&'a SourceTensor, &'a SourceTensor)> {
    let (scales, biases) = names::companions(name)?;
    Some((
        checkpoint.tensors.get(&scales)?,
        checkpoint.tensors.get(&biases)?,
    ))
}

fn is_companion(checkpoint: &Checkpoint, name: &str) -> bool {
    names::companion_of(name).is_some_and(|owner| {
        checkpoint.tensors.contains_key(&owner) && companions(checkpoint, &owner).is_some()
    })
}

fn resident_dtype(tensor: &SourceTensor) -> Result<Dtype, InstallError> {
    tensor
        .info
        .dtype
        .resident()
        .ok_or_else(|| mismatch(tensor, "U32, BF16, F16 or F32".to_owned()))
}

fn small_shape(tensor: &SourceTensor) -> Result<Vec<u32>, InstallError> {
    let fits = tensor.info.shape.len() <= 4 && tensor.info.dtype != TensorDtype::U32;
    let shape: Option<Vec<u32>> = tensor
        .info
        .shape
        .iter()
        .map(|&n| u32::try_from(n).ok())
        .collect();
    shape.filter(|_| fits).ok_or_else(|| {
        mismatch(
            tensor,
            "a tensor with scales and biases beside it, or a plain one".to_owned(),
        )
    })
}

/// The unpacked shape of a quantized tensor, after its scales, its biases and its bits were found to agree with it.
fn quantized_shape(
    checkpoint: &Checkpoint,
    tensor: &SourceTensor,
    scales: &SourceTensor,
    biases: &SourceTensor,
) -> Result<Vec<u32>, InstallError> {
    let shape = &tensor.info.shape;
    let groups = &scales.info.shape;
    let rows_agree = shape.len() >= 2
        && shape.len() == groups.len()
        && shape[..shape.len() - 1] == groups[..groups.len() - 1];
    let dtypes = (tensor.info.dtype, scales.info.dtype, biases.info.dtype);
    let expected = (TensorDtype::U32, TensorDtype::BF16, TensorDtype::BF16);
    if !rows_agree || scales.info.shape != biases.info.shape || dtypes != expected {
        return Err(mismatch(
            tensor,
            format!(
                "U32 words with BF16 scales and biases of the same rows, not {:?} {groups:?} and {:?} {:?}",
                scales.info.dtype, biases.info.dtype, biases.info.shape
            ),
        ));
    }
    let last = shape.len() - 1;
    let n_in = groups[last].saturating_mul(u64::from(GROUP_SIZE));
    checkpoint
        .config
        .quantization
        .check_bits(&tensor.info.name, shape[last], n_in)
        .map_err(InstallError::format(&tensor.shard))?;
    let logical: Option<Vec<u32>> = shape[..last]
        .iter()
        .chain([&n_in])
        .map(|&n| u32::try_from(n).ok())
        .collect();
    logical.ok_or_else(|| mismatch(tensor, "dimensions below 2^32".to_owned()))
}

fn mismatch(tensor: &SourceTensor, expected: String) -> InstallError {
    InstallError::Tensor {
        file: tensor.shard.clone(),
        name: tensor.info.name.clone(),
        expected,
        actual: format!("{:?} {:?}", tensor.info.dtype, tensor.info.shape),
    }
}

const WEIGHTS_AND_COMPANIONS: [[ExpertPart; 3]; 3] = [
    [
        ExpertPart::Gate,
        ExpertPart::GateScales,
        ExpertPart::GateBiases,
    ],
    [ExpertPart::Up, ExpertPart::UpScales, ExpertPart::UpBiases],
    [
        ExpertPart::Down,
        ExpertPart::DownScales,
        ExpertPart::DownBiases,
    ],
];

/// Where the nine parts lie within an expert, after every layer's were found to have the shapes of the configuration.
fn expert_parts(checkpoint: &Checkpoint) -> Result<BTreeMap<ExpertPart, PartLayout>, InstallError> {
    let arch = &checkpoint.config.arch;
    let (hidden, inner) = (arch.hidden_size, arch.moe_intermediate);
    let n_experts = arch.num_experts;
    let mut parts = BTreeMap::new();
    let mut offset = 0;
    for [weights, scales, biases] in WEIGHTS_AND_COMPANIONS {
        let (n_out, n_in) = if weights == ExpertPart::Down {
            (hidden, inner)
        } else {
            (inner, hidden)
        };
        let mut bits_of_layers = Vec::new();
        for layer in 0..arch.num_layers {
            let find = |part| expert_tensor(checkpoint, layer, part);
            let tensor = find(weights)?;
            let shape = quantized_shape(checkpoint, tensor, find(scales)?, find(biases)?)?;
            if shape != [n_experts, n_out, n_in] {
                return Err(mismatch(
                    tensor,
                    format!("[{n_experts}, {n_out}, {n_in}] unpacked"),
                ));
            }
            let per_expert = tensor.info.size() / u64::from(n_experts);
            bits_of_layers.push((per_expert * 8 / (u64::from(n_out) * u64::from(n_in))) as u32);
        }
        let bits = bits_of_layers[0];
        if bits_of_layers.iter().any(|&other| other != bits) {
            let tensor = expert_tensor(checkpoint, 0, weights)?;
            return Err(mismatch(tensor, "the same bits in every layer".to_owned()));
        }
        let n = u64::from(n_out) * u64::from(n_in);
        let groups = n / u64::from(GROUP_SIZE);
        for (part, size, cols) in [
            (weights, n * u64::from(bits) / 8, n_in),
            (scales, 2 * groups, n_in / GROUP_SIZE),
            (biases, 2 * groups, n_in / GROUP_SIZE),
        ] {
            let layout = PartLayout {
                offset,
                size,
                dtype: if part == weights {
                    Dtype::U32
                } else {
                    Dtype::BF16
                },
                shape: vec![n_out, cols],
                bits: (part == weights).then_some(bits),
            };
            offset += size;
            parts.insert(part, layout);
        }
    }
    Ok(parts)
}

fn expert_tensor(
    checkpoint: &Checkpoint,
    layer: u32,
    part: ExpertPart,
) -> Result<&SourceTensor, InstallError> {
    let name = names::expert(layer, part);
    checkpoint
        .tensors
        .get(&name)
        .ok_or_else(|| InstallError::Format {
            file: "the checkpoint".to_owned(),
            source: ouzel_format::FormatError::MissingTensor { name },
        })
}

fn layer_file(
    checkpoint: &Checkpoint,
    sources: &mut Sources,
    layer: u32,
    parts: &BTreeMap<ExpertPart, PartLayout>,
    stride: u64,
) -> Result<PlannedFile, InstallError> {
    let tensors = WEIGHTS_AND_COMPANIONS
        .as_flattened()
        .iter()
        .map(|&part| Ok((expert_tensor(checkpoint, layer, part)?, parts[&part].size)))
        .collect::<Result<Vec<_>, InstallError>>()?;
    let used: u64 = tensors.iter().map(|&(_, size)| size).sum();
    let mut pieces = Vec::new();
    for expert in 0..u64::from(checkpoint.config.arch.num_experts) {
        for &(tensor, size) in &tensors {
            pieces.push(Piece::Copy {
                source: sources.index(&tensor.shard),
                offset: tensor.info.start + expert * size,
                len: size,
            });
        }
        if stride > used {
            pieces.push(Piece::Zeros(stride - used));
        }
    }
    Ok(PlannedFile {
        path: paths::in_experts_dir(&paths::layer_file(layer)),
        pieces,
        has_experts: true,
    })
}

fn layout(arch: &Arch, parts: &BTreeMap<ExpertPart, PartLayout>, stride: u64) -> Layout {
    let experts = |_| {
        (0..arch.num_experts)
            .map(|expert| ExpertLayout {
                expert,
                offset: u64::from(expert) * stride,
                size: stride,
                physical_rank: None,
                tensors: parts.clone(),
            })
            .collect()
    };
    Layout {
        expert_stride: stride,
        num_layers: arch.num_layers,
        experts_per_layer: arch.num_experts,
        layers: (0..arch.num_layers)
            .map(|layer| LayerLayout {
                layer,
                file: paths::layer_file(layer),
                experts: experts(layer),
            })
            .collect(),
    }
}
