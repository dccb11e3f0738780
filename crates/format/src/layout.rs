//! `packed_experts/layout.json`: where each routed expert lies in its layer's file, and where its nine parts lie in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::json::{self, Encode, Field, Object, Writer};
use crate::manifest::{agree, check_stride};
use crate::resident::{check_disjoint, range_within};
use crate::{Dtype, Extent, FormatError, paths};

const WHAT: &str = "layout.json";
/// The longest layout read; that of 30 layers with 128 experts has 10 MB.
const MAX_LAYOUT_BYTES: u64 = 32 << 20;

/// The decoded layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes from one expert of a file to the next.
    pub expert_stride: u64,
    /// Layers.
    pub num_layers: u32,
    /// Experts of each layer.
    pub experts_per_layer: u32,
    /// One a layer, in order.
    pub layers: Vec<LayerLayout>,
}

/// The experts of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerLayout {
    /// The layer's number, equal to its position.
    pub layer: u32,
    /// The file's name inside `packed_experts`.
    pub file: String,
    /// One an expert, in order.
    pub experts: Vec<ExpertLayout>,
}

/// An expert of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpertLayout {
    /// The expert's number, equal to its position.
    pub expert: u32,
    /// Where it starts in the file: its rank times the stride.
    pub offset: u64,
    /// Bytes, at most the stride.
    pub size: u64,
    /// Its place in a reordered file; `None` is its own number.
    pub physical_rank: Option<u32>,
    /// Its parts.
    pub tensors: BTreeMap<ExpertPart, PartLayout>,
}

/// A part of an expert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartLayout {
    /// Where it starts, from the expert's first byte.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// `U32` for packed weights, `BF16` for scales and biases.
    pub dtype: Dtype,
    /// The shape in values, not in packed words.
    pub shape: Vec<u32>,
    /// Bits of a value, of weights only.
    pub bits: Option<u32>,
}

/// Which of the nine parts of an expert, in the order in which they follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // Each is a projection, or that projection's scales or biases.
pub enum ExpertPart {
    Gate,
    GateScales,
    GateBiases,
    Up,
    UpScales,
    UpBiases,
    Down,
    DownScales,
    DownBiases,
}

impl ExpertPart {
    /// Every part, in the order in which they follow each other.
    pub const ALL: [ExpertPart; 9] = [
        ExpertPart::Gate,
        ExpertPart::GateScales,
        ExpertPart::GateBiases,
        ExpertPart::Up,
        ExpertPart::UpScales,
        ExpertPart::UpBiases,
        ExpertPart::Down,
        ExpertPart::DownScales,
        ExpertPart::DownBiases,
    ];

    /// The key in `layout.json`.
    pub fn name(self) -> &'static str {
        match self {
            ExpertPart::Gate => "gate",
            ExpertPart::GateScales => "gate_scales",
            ExpertPart::GateBiases => "gate_biases",
            ExpertPart::Up => "up",
            ExpertPart::UpScales => "up_scales",
            ExpertPart::UpBiases => "up_biases",
            ExpertPart::Down => "down",
            ExpertPart::DownScales => "down_scales",
            ExpertPart::DownBiases => "down_biases",
        }
    }

    /// Whether it is packed weights, not scales or biases.
    pub fn is_weight(self) -> bool {
        matches!(self, ExpertPart::Gate | ExpertPart::Up | ExpertPart::Down)
    }

    fn from_name(name: &str) -> Option<ExpertPart> {
        ExpertPart::ALL.into_iter().find(|part| part.name() == name)
    }
}

impl Layout {
    /// Decodes and checks a layout.
    ///
    /// # Errors
    /// A [`FormatError`] that names the field.
    pub fn parse(bytes: &[u8]) -> Result<Layout, FormatError> {
        let (json, layers) = json::parse_each(WHAT, MAX_LAYOUT_BYTES, bytes, "layers", |layer| {
            decode_layer(&layer.object()?)
        })?;
        let root = json.root(WHAT)?;
        let layout = Layout {
            expert_stride: root.need("expertStride")?.u64()?,
            num_layers: root.need("numLayers")?.dimension()?,
            experts_per_layer: root.need("expertsPerLayer")?.dimension()?,
            layers: layers.ok_or_else(|| FormatError::MissingField {
                what: WHAT,
                field: "layers".into(),
            })?,
        };
        layout.check()?;
        Ok(layout)
    }

    /// The bytes of `layout.json`.
    ///
    /// # Panics
    /// When [`Layout::check`] fails.
    pub fn encode(&self) -> Vec<u8> {
        if let Err(error) = self.check() {
            panic!("not a layout: {error}");
        }
        json::encode(self)
    }

    /// Checks what the format demands of a layout, whoever made it.
    ///
    /// # Errors
    /// A [`FormatError`] that names the field.
    pub fn check(&self) -> Result<(), FormatError> {
        check_stride("expertStride", self.expert_stride)?;
        if self
            .expert_stride
            .checked_mul(self.experts_per_layer.into())
            .is_none()
        {
            return Err(FormatError::Overflow {
                name: "a layer's file".into(),
                offset: 0,
                size: self.expert_stride,
            });
        }
        agree(
            "the length of layers",
            self.layers.len() as u64,
            "numLayers",
            self.num_layers.into(),
        )?;
        let mut files = BTreeSet::new();
        for (l, layer) in self.layers.iter().enumerate() {
            agree(
                &format!("layers[{l}].layer"),
                u64::from(layer.layer),
                "its position",
                l as u64,
            )?;
            paths::check_file_name(&layer.file)?;
            if !files.insert(layer.file.as_str()) {
                return Err(FormatError::DuplicatePath {
                    path: layer.file.clone(),
                    other: layer.file.clone(),
                });
            }
            self.check_experts(layer)?;
        }
        Ok(())
    }

    fn check_experts(&self, layer: &LayerLayout) -> Result<(), FormatError> {
        let l = layer.layer;
        let n_experts = u64::from(self.experts_per_layer);
        agree(
            &format!("the length of layers[{l}].experts"),
            layer.experts.len() as u64,
            "expertsPerLayer",
            n_experts,
        )?;
        // `agree` has just bounded this by the document's own length.
        let mut taken = vec![false; layer.experts.len()];
        for (e, expert) in layer.experts.iter().enumerate() {
            let path = format!("layers[{l}].experts[{e}]");
            agree(
                &format!("{path}.expert"),
                u64::from(expert.expert),
                "its position",
                e as u64,
            )?;
            let rank = expert.physical_rank.unwrap_or(expert.expert);
            match taken.get_mut(rank as usize) {
                None => {
                    return Err(FormatError::OutOfRange {
                        field: format!("{path}.physicalRank"),
                        expected: format!("less than {n_experts}"),
                        actual: rank.to_string(),
                    });
                }
                Some(true) => {
                    let other = format!("another expert of layer {l}");
                    return Err(FormatError::Overlap {
                        name: path,
                        other,
                        offset: expert.offset,
                    });
                }
                Some(taken) => *taken = true,
            }
            let expected = self.expert_stride * u64::from(rank);
            agree(
                &format!("{path}.offset"),
                expert.offset,
                "its rank times expertStride",
                expected,
            )?;
            if expert.size == 0 || expert.size > self.expert_stride {
                return Err(FormatError::OutOfRange {
                    field: format!("{path}.size"),
                    expected: format!("from 1 to {}", self.expert_stride),
                    actual: expert.size.to_string(),
                });
            }
            check_parts(&path, expert)?;
        }
        Ok(())
    }
}

impl ExpertLayout {
    /// The place of `part`; `layer` is for the error's text.
    ///
    /// # Errors
    /// [`FormatError::MissingPart`].
    pub fn part(&self, layer: u32, part: ExpertPart) -> Result<&PartLayout, FormatError> {
        let missing = FormatError::MissingPart {
            layer,
            expert: self.expert,
            part: part.name(),
        };
        self.tensors.get(&part).ok_or(missing)
    }
}

fn check_parts(path: &str, expert: &ExpertLayout) -> Result<(), FormatError> {
    let mut ranges = Vec::with_capacity(expert.tensors.len());
    for (part, tensor) in &expert.tensors {
        let name = || format!("{path}.tensors.{}", part.name());
        let expected = expected_size(*part, tensor).map_err(|fault| fault.at(name()))?;
        if tensor.size != expected {
            return Err(FormatError::SizeMismatch {
                name: name(),
                expected,
                actual: tensor.size,
            });
        }
        if tensor.size == 0 {
            return Err(FormatError::EmptyTensor { name: name() });
        }
        let extent = Extent {
            offset: tensor.offset,
            size: tensor.size,
        };
        ranges.push(
            range_within(part.name(), extent, 0, expert.size).map_err(|_| {
                FormatError::OutOfBounds {
                    name: name(),
                    offset: extent.offset,
                    end: extent.offset.saturating_add(extent.size),
                    from: 0,
                    to: expert.size,
                }
            })?,
        );
    }
    check_disjoint(&mut ranges)
}

/// What is wrong with a part, before its name is spelled out: most parts are right, and there are tens of thousands.
enum PartFault {
    Dtype(Dtype),
    Bits(Option<u32>),
    Shape(Vec<u32>),
}

impl PartFault {
    fn at(self, name: String) -> FormatError {
        match self {
            PartFault::Dtype(dtype) => FormatError::UnknownDtype {
                name,
                dtype: dtype.name().to_owned(),
            },
            PartFault::Bits(None) => FormatError::MissingField {
                what: WHAT,
                field: format!("{name}.bits"),
            },
            PartFault::Bits(Some(bits)) => FormatError::UnsupportedFeature {
                feature: format!("{name}.bits"),
                value: bits.to_string(),
            },
            PartFault::Shape(shape) => FormatError::BadShape {
                name,
                shape: shape.into_iter().map(u64::from).collect(),
            },
        }
    }
}

/// Bytes of a part by its shape: weights have 4 or 8 bits a value in whole words, scales and biases two bytes.
fn expected_size(part: ExpertPart, tensor: &PartLayout) -> Result<u64, PartFault> {
    let dtype = if part.is_weight() {
        Dtype::U32
    } else {
        Dtype::BF16
    };
    if tensor.dtype != dtype {
        return Err(PartFault::Dtype(tensor.dtype));
    }
    let bits = match (part.is_weight(), tensor.bits) {
        (true, Some(bits @ (4 | 8))) => u64::from(bits),
        (false, None) => 8 * dtype.size(),
        (_, bits) => return Err(PartFault::Bits(bits)),
    };
    let bits = tensor
        .shape
        .iter()
        .try_fold(bits, |bits, &n| bits.checked_mul(n.into()));
    match bits {
        Some(bits) if !tensor.shape.is_empty() && bits.is_multiple_of(8 * dtype.size()) => {
            Ok(bits / 8)
        }
        _ => Err(PartFault::Shape(tensor.shape.clone())),
    }
}

fn decode_layer(object: &Object<'_, '_>) -> Result<LayerLayout, FormatError> {
    Ok(LayerLayout {
        layer: object.need("layer")?.u32()?,
        file: object.need("file")?.text()?.to_owned(),
        experts: object
            .need("experts")?
            .array()?
            .map(|expert| decode_expert(&expert.object()?))
            .collect::<Result<_, _>>()?,
    })
}

fn decode_expert(object: &Object<'_, '_>) -> Result<ExpertLayout, FormatError> {
    let mut tensors = BTreeMap::new();
    for (name, field) in object.need("tensors")?.object()?.fields() {
        // A minor version may add parts; those of this version keep their meaning.
        if let Some(part) = ExpertPart::from_name(name) {
            tensors.insert(part, decode_part(&field)?);
        }
    }
    Ok(ExpertLayout {
        expert: object.need("expert")?.u32()?,
        offset: object.need("offset")?.u64()?,
        size: object.need("size")?.u64()?,
        physical_rank: object.optional("physicalRank", |rank| rank.u32())?,
        tensors,
    })
}

fn decode_part(field: &Field<'_, '_>) -> Result<PartLayout, FormatError> {
    let object = field.object()?;
    let dtype = object.need("dtype")?.text()?;
    Ok(PartLayout {
        offset: object.need("offset")?.u64()?,
        size: object.need("size")?.u64()?,
        dtype: Dtype::from_name(dtype).ok_or_else(|| FormatError::UnknownDtype {
            name: field.path().to_owned(),
            dtype: dtype.chars().take(80).collect(),
        })?,
        shape: object
            .need("shape")?
            .array()?
            .map(|n| n.u32())
            .collect::<Result<_, _>>()?,
        bits: object.optional("bits", |bits| bits.u32())?,
    })
}

impl Encode for PartLayout {
    fn encode(&self, w: &mut Writer) {
        let dtype = self.dtype.name();
        let mut fields: Vec<(&str, &dyn Encode)> = vec![
            ("offset", &self.offset),
            ("size", &self.size),
            ("dtype", &dtype),
            ("shape", &self.shape),
        ];
        if let Some(bits) = &self.bits {
            fields.push(("bits", bits));
        }
        w.object(fields);
    }
}

impl Encode for BTreeMap<ExpertPart, PartLayout> {
    fn encode(&self, w: &mut Writer) {
        w.object(
            self.iter()
                .map(|(part, tensor)| (part.name(), tensor as &dyn Encode))
                .collect(),
        );
    }
}

impl Encode for ExpertLayout {
    fn encode(&self, w: &mut Writer) {
        let mut fields: Vec<(&str, &dyn Encode)> = vec![
            ("expert", &self.expert),
            ("offset", &self.offset),
            ("size", &self.size),
            ("tensors", &self.tensors),
        ];
        if let Some(rank) = &self.physical_rank {
            fields.push(("physicalRank", rank));
        }
        w.object(fields);
    }
}

impl Encode for LayerLayout {
    fn encode(&self, w: &mut Writer) {
        let fields: Vec<(&str, &dyn Encode)> = vec![
            ("layer", &self.layer),
            ("file", &self.file),
            ("experts", &self.experts),
        ];
        w.object(fields);
    }
}

impl Encode for Layout {
    fn encode(&self, w: &mut Writer) {
        let fields: Vec<(&str, &dyn Encode)> = vec![
            ("expertStride", &self.expert_stride),
            ("numLayers", &self.num_layers),
            ("expertsPerLayer", &self.experts_per_layer),
            ("layers", &self.layers),
        ];
        w.object(fields);
    }
}
