//! A checkpoint in the MLX layout, read into memory whole: quantized matrices stay packed and are unpacked a row at a time.
//!
//! Meant for models of tests, not for those that do not fit. It copies bytes out instead of casting them, because tensors of
//! real shards start at any offset.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use half::bf16;
use ouzel_format::safetensors::{Header, Index, TensorDtype, TensorInfo};
use ouzel_format::{CheckpointConfig, FormatError, GROUP_SIZE, bits_from_shape, names};

const GROUP: usize = GROUP_SIZE as usize;

/// An opened checkpoint.
pub struct Checkpoint {
    pub config: CheckpointConfig,
    /// By name: its description and its bytes.
    tensors: BTreeMap<String, (TensorInfo, Vec<u8>)>,
}

/// An affine quantized matrix: a value is `scale * code + bias`, with one scale and bias for 64 of a row.
#[derive(Debug)]
pub struct Matrix {
    bits: usize,
    n_out: usize,
    n_in: usize,
    /// `[n_out, n_in]` codes, the first in the lowest bits.
    packed: Vec<u8>,
    /// `[n_out, n_in / 64]`.
    scales: Vec<f64>,
    /// `[n_out, n_in / 64]`.
    biases: Vec<f64>,
}

impl Checkpoint {
    pub fn open(dir: &Path) -> io::Result<Checkpoint> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read(&path).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", path.display()))
            })
        };
        let config = CheckpointConfig::parse(&read("config.json")?).map_err(invalid)?;
        let index = Index::parse(&read("model.safetensors.index.json")?).map_err(invalid)?;
        let mut tensors = BTreeMap::new();
        for shard in index.shards() {
            let bytes = read(shard)?;
            let header = Header::parse(&bytes, bytes.len() as u64).map_err(invalid)?;
            for tensor in header.tensors {
                let data = bytes[tensor.start as usize..tensor.end as usize].to_vec();
                tensors.insert(tensor.name.clone(), (tensor, data));
            }
        }
        Ok(Checkpoint { config, tensors })
    }

    /// An unquantized tensor of `len` values.
    pub fn vector(&self, name: &str, len: usize) -> io::Result<Vec<f64>> {
        let (_, bytes) = self.tensor(name, TensorDtype::BF16)?;
        check_len(name, "values", bytes.len() / 2, len)?;
        Ok(from_bf16(bytes))
    }

    /// A quantized tensor of `n_out` rows, which may have two dimensions, and of `n_in` columns.
    pub fn matrix(&self, name: &str, n_out: usize, n_in: usize) -> io::Result<Matrix> {
        let missing = || {
            invalid(FormatError::MissingTensor {
                name: name.to_owned(),
            })
        };
        let (scales, biases) = names::companions(name).ok_or_else(missing)?;
        let (info, packed) = self.tensor(name, TensorDtype::U32)?;
        let packed_cols = info.shape.last().copied().unwrap_or(0);
        let bits = bits_from_shape(packed_cols, n_in as u64).map_err(invalid)? as usize;
        check_len(name, "bytes", packed.len(), n_out * n_in * bits / 8)?;
        Ok(Matrix {
            bits,
            n_out,
            n_in,
            packed: packed.to_vec(),
            scales: self.vector(&scales, n_out * n_in / GROUP)?,
            biases: self.vector(&biases, n_out * n_in / GROUP)?,
        })
    }

    fn tensor(&self, name: &str, dtype: TensorDtype) -> io::Result<(&TensorInfo, &[u8])> {
        let missing = || {
            invalid(FormatError::MissingTensor {
                name: name.to_owned(),
            })
        };
        let (info, bytes) = self.tensors.get(name).ok_or_else(missing)?;
        if info.dtype != dtype {
            let (actual, expected) = (info.dtype.name(), dtype.name());
            return Err(io::Error::other(format!(
                "{name} is {actual}, not {expected}"
            )));
        }
        Ok((info, bytes))
    }
}

impl Matrix {
    /// One row, unpacked.
    pub fn row(&self, row: usize) -> Vec<f64> {
        let codes = &self.packed[row * self.n_in * self.bits / 8..][..self.n_in * self.bits / 8];
        let first_group = row * self.n_in / GROUP;
        (0..self.n_in)
            .map(|i| {
                let code = match self.bits {
                    8 => codes[i],
                    _ => codes[i / 2] >> (4 * (i % 2)) & 15,
                };
                let group = first_group + i / GROUP;
                self.scales[group] * f64::from(code) + self.biases[group]
            })
            .collect()
    }

    /// `y = W x` for every row of `x`.
    pub fn mul(&self, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let mut y = vec![vec![0.0; self.n_out]; x.len()];
        for row in 0..self.n_out {
            let w = self.row(row);
            for (x, y) in x.iter().zip(&mut y) {
                y[row] = crate::dot(&w, x);
            }
        }
        y
    }

    /// `y = W x` with the part `i` of `n` equal parts of the rows.
    pub fn mul_part(&self, x: &[f64], i: usize, n: usize) -> Vec<f64> {
        let n_rows = self.n_out / n;
        let rows = i * n_rows..(i + 1) * n_rows;
        rows.map(|row| crate::dot(&self.row(row), x)).collect()
    }
}

fn from_bf16(bytes: &[u8]) -> Vec<f64> {
    let value = |pair: &[u8]| bf16::from_le_bytes([pair[0], pair[1]]).to_f64();
    bytes.chunks_exact(2).map(value).collect()
}

fn check_len(name: &str, what: &str, actual: usize, expected: usize) -> io::Result<()> {
    if actual == expected {
        return Ok(());
    }
    let text = format!("{name} has {actual} {what}, not {expected}");
    Err(io::Error::new(io::ErrorKind::InvalidData, text))
}

fn invalid(error: FormatError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
