//! Safetensors headers and their index: names, types, shapes and places of a checkpoint's tensors.
//!
//! A file is a u64 length, that many bytes of JSON, then data. Real shards pad nothing: the header may have any length, so data starts
//! anywhere, and tensors come in any order. Offsets here are from the file's start. Bytes that no tensor claims are allowed;
//! bytes that two claim are not.

use std::collections::{BTreeMap, BTreeSet};

use crate::json::{self, Object};
use crate::resident::{check_disjoint, range_within};
use crate::{Dtype, Extent, FormatError, paths};

const WHAT: &str = "the safetensors header";
const WHAT_INDEX: &str = "model.safetensors.index.json";
const LENGTH_BYTES: usize = 8;
/// The longest header read, its length included; those of the real checkpoint have 64 KB.
const MAX_HEADER_BYTES: u64 = 16 << 20;
const METADATA: &str = "__metadata__";
/// The most dimensions of a tensor; the format sets no limit, no checkpoint comes near.
const MAX_DIMENSIONS: usize = 16;

/// The type of a tensor's elements, little endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, non_camel_case_types)] // The format's own names.
pub enum TensorDtype {
    Bool,
    U8,
    I8,
    F8_E4M3,
    F8_E5M2,
    U16,
    I16,
    F16,
    BF16,
    U32,
    I32,
    F32,
    U64,
    I64,
    F64,
}

impl TensorDtype {
    const ALL: [TensorDtype; 15] = [
        TensorDtype::Bool,
        TensorDtype::U8,
        TensorDtype::I8,
        TensorDtype::F8_E4M3,
        TensorDtype::F8_E5M2,
        TensorDtype::U16,
        TensorDtype::I16,
        TensorDtype::F16,
        TensorDtype::BF16,
        TensorDtype::U32,
        TensorDtype::I32,
        TensorDtype::F32,
        TensorDtype::U64,
        TensorDtype::I64,
        TensorDtype::F64,
    ];

    /// Bytes of one element.
    pub fn size(self) -> u64 {
        match self {
            TensorDtype::Bool
            | TensorDtype::U8
            | TensorDtype::I8
            | TensorDtype::F8_E4M3
            | TensorDtype::F8_E5M2 => 1,
            TensorDtype::U16 | TensorDtype::I16 | TensorDtype::F16 | TensorDtype::BF16 => 2,
            TensorDtype::U32 | TensorDtype::I32 | TensorDtype::F32 => 4,
            TensorDtype::U64 | TensorDtype::I64 | TensorDtype::F64 => 8,
        }
    }

    /// The name in headers.
    pub fn name(self) -> &'static str {
        match self {
            TensorDtype::Bool => "BOOL",
            TensorDtype::U8 => "U8",
            TensorDtype::I8 => "I8",
            TensorDtype::F8_E4M3 => "F8_E4M3",
            TensorDtype::F8_E5M2 => "F8_E5M2",
            TensorDtype::U16 => "U16",
            TensorDtype::I16 => "I16",
            TensorDtype::F16 => "F16",
            TensorDtype::BF16 => "BF16",
            TensorDtype::U32 => "U32",
            TensorDtype::I32 => "I32",
            TensorDtype::F32 => "F32",
            TensorDtype::U64 => "U64",
            TensorDtype::I64 => "I64",
            TensorDtype::F64 => "F64",
        }
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<TensorDtype> {
        TensorDtype::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name)
    }

    /// The same type in a model directory, where it has one.
    pub fn resident(self) -> Option<Dtype> {
        Dtype::from_name(self.name())
    }
}

/// A tensor of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: TensorDtype,
    /// Its shape; empty for a scalar.
    pub shape: Vec<u64>,
    /// Its first byte, from the file's start; any number, odd ones included.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
}

impl TensorInfo {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }
}

/// The decoded header of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// In the order of the header.
    pub tensors: Vec<TensorInfo>,
    /// Where data starts.
    pub data_start: u64,
}

impl Header {
    /// How many bytes from the file's start are the header, its length included, by its first 8.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], [`FormatError::TooLarge`].
    pub fn header_size(first_8: &[u8]) -> Result<u64, FormatError> {
        let Some(length) = first_8.first_chunk::<LENGTH_BYTES>() else {
            let (expected, actual) = (LENGTH_BYTES as u64, first_8.len() as u64);
            return Err(FormatError::Truncated {
                what: WHAT,
                expected,
                actual,
            });
        };
        let size = u64::from_le_bytes(*length).saturating_add(LENGTH_BYTES as u64);
        if size > MAX_HEADER_BYTES {
            return Err(FormatError::TooLarge {
                what: WHAT,
                limit: MAX_HEADER_BYTES,
                actual: size,
            });
        }
        Ok(size)
    }

    /// Decodes and checks the header of a file of `file_size` bytes; `bytes` start with its length and may go on behind it.
    ///
    /// # Errors
    /// A [`FormatError`] that names the tensor.
    pub fn parse(bytes: &[u8], file_size: u64) -> Result<Header, FormatError> {
        let data_start = Header::header_size(bytes)?;
        if file_size < data_start {
            return Err(FormatError::Truncated {
                what: WHAT,
                expected: data_start,
                actual: file_size,
            });
        }
        let json = bytes
            .get(LENGTH_BYTES..data_start as usize)
            .ok_or(FormatError::Truncated {
                what: WHAT,
                expected: data_start,
                actual: bytes.len() as u64,
            })?;
        let json = json::parse(WHAT, MAX_HEADER_BYTES, json)?;
        let mut tensors = Vec::new();
        for (name, field) in json.root(WHAT)?.fields() {
            if name == METADATA {
                for (_, text) in field.object()?.fields() {
                    text.text()?;
                }
            } else {
                tensors.push(parse_tensor(name, &field.object()?, data_start, file_size)?);
            }
        }
        let mut ranges: Vec<_> = tensors
            .iter()
            .filter(|tensor| tensor.size() > 0)
            .map(|tensor| (tensor.start, tensor.end, tensor.name.as_str()))
            .collect();
        check_disjoint(&mut ranges)?;
        Ok(Header {
            tensors,
            data_start,
        })
    }
}

fn parse_tensor(
    name: &str,
    object: &Object<'_, '_>,
    data_start: u64,
    file_size: u64,
) -> Result<TensorInfo, FormatError> {
    let dtype = object.need("dtype")?.text()?;
    let dtype = TensorDtype::from_name(dtype).ok_or_else(|| FormatError::UnknownDtype {
        name: name.to_owned(),
        dtype: dtype.chars().take(80).collect(),
    })?;
    let shape: Vec<u64> = object
        .need("shape")?
        .array()?
        .map(|n| n.u64())
        .collect::<Result<_, _>>()?;
    let offsets = object.need("data_offsets")?;
    let offsets: Vec<u64> = offsets
        .array()?
        .map(|offset| offset.u64())
        .collect::<Result<_, _>>()?;
    let &[from, to] = offsets.as_slice() else {
        return Err(FormatError::OutOfRange {
            field: object.path_of("data_offsets"),
            expected: "two numbers".into(),
            actual: format!("{} numbers", offsets.len()),
        });
    };
    let out_of_order = || FormatError::OutOfRange {
        field: object.path_of("data_offsets"),
        expected: "a start and an end that is not before it".into(),
        actual: format!("{from} and {to}"),
    };
    let actual = to.checked_sub(from).ok_or_else(out_of_order)?;
    let expected = tensor_size(dtype, &shape).ok_or_else(|| FormatError::BadShape {
        name: name.to_owned(),
        shape: shape.clone(),
    })?;
    if actual != expected {
        return Err(FormatError::SizeMismatch {
            name: name.to_owned(),
            expected,
            actual,
        });
    }
    let start = data_start
        .checked_add(from)
        .ok_or_else(|| FormatError::Overflow {
            name: name.to_owned(),
            offset: from,
            size: actual,
        })?;
    let (start, end, _) = range_within(
        name,
        Extent {
            offset: start,
            size: actual,
        },
        data_start,
        file_size,
    )?;
    Ok(TensorInfo {
        name: name.to_owned(),
        dtype,
        shape,
        start,
        end,
    })
}

/// Bytes of a tensor; `None` when no file could hold it, or it has absurdly many dimensions.
fn tensor_size(dtype: TensorDtype, shape: &[u64]) -> Option<u64> {
    if shape.len() > MAX_DIMENSIONS {
        return None;
    }
    shape
        .iter()
        .try_fold(dtype.size(), |size, &n| size.checked_mul(n))
}

/// The header, length included, of a file whose tensors follow each other in this order, padded with spaces to a multiple of 8.
///
/// # Panics
/// When the tensors exceed 2^64 bytes, or two have one name.
pub fn encode_header(tensors: &[(&str, TensorDtype, &[u64])]) -> Vec<u8> {
    let mut names = BTreeSet::new();
    let mut json = String::from("{");
    let mut start = 0_u64;
    for (name, dtype, shape) in tensors {
        assert!(
            names.insert(*name) && *name != METADATA,
            "the name {name} is taken"
        );
        let size = tensor_size(*dtype, shape).and_then(|size| start.checked_add(size));
        let Some(end) = size else {
            panic!("{name} does not fit any file")
        };
        if json.len() > 1 {
            json.push(',');
        }
        let name = serde_json::Value::from(*name);
        let shape: Vec<String> = shape.iter().map(u64::to_string).collect();
        let (dtype, shape) = (dtype.name(), shape.join(","));
        json += &format!(
            "{name}:{{\"dtype\":\"{dtype}\",\"shape\":[{shape}],\"data_offsets\":[{start},{end}]}}"
        );
        start = end;
    }
    json.push('}');
    let length = json.len().next_multiple_of(8);
    let mut out = Vec::with_capacity(LENGTH_BYTES + length);
    out.extend_from_slice(&(length as u64).to_le_bytes());
    out.extend_from_slice(json.as_bytes());
    out.resize(LENGTH_BYTES + length, b' ');
    out
}

/// The decoded `model.safetensors.index.json`: which shard holds which tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// Tensor name to the shard's file name, which is a bare one.
    pub weight_map: BTreeMap<String, String>,
}

impl Index {
    /// Decodes and checks an index.
    ///
    /// # Errors
    /// A [`FormatError`] that names the field or the path.
    pub fn parse(bytes: &[u8]) -> Result<Index, FormatError> {
        let json = json::parse(WHAT_INDEX, json::MAX_JSON_BYTES, bytes)?;
        let weight_map = json.root(WHAT_INDEX)?.need("weight_map")?.object()?;
        let weight_map = weight_map
            .fields()
            .map(|(name, shard)| {
                let shard = shard.text()?;
                paths::check_file_name(shard)?;
                Ok((name.to_owned(), shard.to_owned()))
            })
            .collect::<Result<_, _>>()?;
        Ok(Index { weight_map })
    }

    /// The shards, sorted by name.
    pub fn shards(&self) -> BTreeSet<&str> {
        self.weight_map.values().map(String::as_str).collect()
    }
}
