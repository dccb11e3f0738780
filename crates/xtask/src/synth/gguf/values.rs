//! A row of a tensor in the types of GGUF.
//!
//! Q4_1 is the same arithmetic as ours, `d * q + m`, over blocks of 32 instead of groups of 64, with f16 instead of bf16, and with its halves
//! interleaved: byte j of a block holds value j low and value j + 16 high. Scales were chosen so that the change loses nothing.

use half::{bf16, f16};

use crate::synth::rows::Rows;
use crate::synth::tensors::{Fill, GROUP, Part, Tensor};

/// Values of a Q4_1 block.
const BLOCK: usize = 32;
/// Its bytes: d, m, sixteen pairs.
const BLOCK_BYTES: usize = 20;

/// How GGUF keeps a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// 32 bits a value.
    F32,
    /// 5 bits a value.
    Q4_1,
}

impl Type {
    /// The type for a tensor filled like this: only what has 4 bits keeps them.
    pub fn of(fill: Fill) -> Type {
        match fill {
            Fill::Weights | Fill::Embedding => Type::Q4_1,
            Fill::Router(_) | Fill::Vector(..) => Type::F32,
        }
    }

    /// Its code in the list of tensors.
    pub fn code(self) -> u32 {
        match self {
            Type::F32 => 0,
            Type::Q4_1 => 3,
        }
    }

    /// Bytes of a row of `n_in` values.
    pub fn row_bytes(self, n_in: usize) -> usize {
        match self {
            Type::F32 => 4 * n_in,
            Type::Q4_1 => n_in / BLOCK * BLOCK_BYTES,
        }
    }
}

/// Turns rows of one tensor.
pub struct Converter {
    to: Type,
    values: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
}

impl Converter {
    /// For rows of `tensor`.
    pub fn new(tensor: &Tensor) -> Converter {
        let room = |part| vec![0; tensor.row_bytes(part)];
        Converter {
            to: Type::of(tensor.fill),
            values: room(Part::Values),
            scales: room(Part::Scales),
            biases: room(Part::Biases),
        }
    }

    /// Fills `out`, [`Type::row_bytes`] long, with row `row`.
    pub fn fill(&mut self, rows: &Rows<'_>, row: usize, out: &mut [u8]) {
        rows.fill(Part::Values, row, &mut self.values);
        rows.fill(Part::Scales, row, &mut self.scales);
        rows.fill(Part::Biases, row, &mut self.biases);
        match self.to {
            Type::Q4_1 => self.blocks(out),
            Type::F32 if self.scales.is_empty() => {
                for (out, pair) in out.chunks_exact_mut(4).zip(self.values.chunks_exact(2)) {
                    out.copy_from_slice(&float(pair).to_le_bytes());
                }
            }
            Type::F32 => self.dequantized(out),
        }
    }

    fn blocks(&self, out: &mut [u8]) {
        let blocks = self.values.chunks_exact(BLOCK / 2);
        for (nth, (out, packed)) in out.chunks_exact_mut(BLOCK_BYTES).zip(blocks).enumerate() {
            let group = nth * BLOCK / GROUP;
            let half = |bytes: &[u8]| f16::from_f32(float(&bytes[2 * group..])).to_le_bytes();
            out[..2].copy_from_slice(&half(&self.scales));
            out[2..4].copy_from_slice(&half(&self.biases));
            // Value 2k is the low half of byte k, and value 2k + 1 the high one.
            let (first, second) = packed.split_at(BLOCK / 4);
            for (k, (a, b)) in first.iter().zip(second).enumerate() {
                out[4 + 2 * k] = a & 15 | b << 4;
                out[5 + 2 * k] = a >> 4 | b & 0xf0;
            }
        }
    }

    /// One byte a value: `scale * q + bias`, exact in f32.
    fn dequantized(&self, out: &mut [u8]) {
        for (i, (out, &q)) in out.chunks_exact_mut(4).zip(&self.values).enumerate() {
            let group = 2 * (i / GROUP);
            let (scale, bias) = (float(&self.scales[group..]), float(&self.biases[group..]));
            out.copy_from_slice(&(scale * f32::from(q) + bias).to_le_bytes());
        }
    }
}

/// The BF16 value that `bytes` begin with.
fn float(bytes: &[u8]) -> f32 {
    bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32()
}
