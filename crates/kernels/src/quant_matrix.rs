//! A matrix of 4- or 8-bit codes as the files hold it: groups of 64 along the input with a BF16 scale and bias each.
//!
//! `w = scale * code + bias`, codes unsigned, scales of either sign. The slices may start at any address: nothing is cast, all is
//! read byte by byte or by unaligned loads.

use std::ops::Range;

/// Elements that share a scale and a bias.
pub const GROUP: usize = 64;

/// Width of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bits {
    /// 4 bits: byte `k` of a row holds element `2k` in its low and `2k + 1` in its high half.
    Q4,
    /// 8 bits: one byte an element.
    Q8,
}

impl Bits {
    /// Bits a code.
    pub fn n_bits(self) -> usize {
        match self {
            Bits::Q4 => 4,
            Bits::Q8 => 8,
        }
    }

    /// Bytes of a group of codes.
    pub fn group_bytes(self) -> usize {
        GROUP * self.n_bits() / 8
    }
}

/// A quantized matrix, row-major `[n_out, n_in]`.
#[derive(Clone, Copy, Debug)]
pub struct QuantMatrix<'a> {
    /// Width of the codes.
    pub bits: Bits,
    /// Rows.
    pub n_out: usize,
    /// Columns, a multiple of [`GROUP`].
    pub n_in: usize,
    /// Codes, `[n_out, n_in * bits / 8]` bytes.
    pub packed: &'a [u8],
    /// BF16 little-endian, `[n_out, n_in / 64]`.
    pub scales: &'a [u8],
    /// BF16 little-endian, `[n_out, n_in / 64]`.
    pub biases: &'a [u8],
}

impl<'a> QuantMatrix<'a> {
    /// A matrix over bytes.
    ///
    /// # Panics
    /// If `n_in` is not whole groups or a length does not fit the shape.
    pub fn new(
        bits: Bits,
        n_out: usize,
        n_in: usize,
        packed: &'a [u8],
        scales: &'a [u8],
        biases: &'a [u8],
    ) -> QuantMatrix<'a> {
        let matrix = QuantMatrix {
            bits,
            n_out,
            n_in,
            packed,
            scales,
            biases,
        };
        matrix.check();
        matrix
    }

    /// The rows `range` of the matrix.
    ///
    /// # Panics
    /// If the range leaves the matrix.
    pub fn rows(&self, range: Range<usize>) -> QuantMatrix<'a> {
        assert!(
            range.start <= range.end && range.end <= self.n_out,
            "rows {range:?} of {}",
            self.n_out
        );
        let (packed, scales) = (self.row_bytes(), self.n_groups() * 2);
        QuantMatrix {
            n_out: range.len(),
            packed: &self.packed[range.start * packed..range.end * packed],
            scales: &self.scales[range.start * scales..range.end * scales],
            biases: &self.biases[range.start * scales..range.end * scales],
            ..*self
        }
    }

    /// Groups of a row.
    pub(crate) fn n_groups(&self) -> usize {
        self.n_in / GROUP
    }

    /// Bytes of a row's codes.
    pub(crate) fn row_bytes(&self) -> usize {
        self.n_groups() * self.bits.group_bytes()
    }

    /// Row `o`: codes, scales, biases.
    #[inline(always)]
    pub(crate) fn row(&self, o: usize) -> (&'a [u8], &'a [u8], &'a [u8]) {
        let (packed, scales) = (self.row_bytes(), self.n_groups() * 2);
        (
            &self.packed[o * packed..(o + 1) * packed],
            &self.scales[o * scales..(o + 1) * scales],
            &self.biases[o * scales..(o + 1) * scales],
        )
    }

    /// Asserts that the lengths fit the shape; the fields are open, so each operation asks again.
    pub(crate) fn check(&self) {
        assert!(
            self.n_in.is_multiple_of(GROUP),
            "n_in {} is not whole groups of {GROUP}",
            self.n_in
        );
        let scale_bytes = self.n_out * self.n_groups() * 2;
        assert_eq!(
            self.packed.len(),
            self.n_out * self.row_bytes(),
            "length of packed"
        );
        assert_eq!(self.scales.len(), scale_bytes, "length of scales");
        assert_eq!(self.biases.len(), scale_bytes, "length of biases");
    }
}

/// The `i`-th BF16 of `bytes`.
#[inline(always)]
pub(crate) fn bf16_at(bytes: &[u8], i: usize) -> f32 {
    let bits = u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]);
    f32::from_bits(u32::from(bits) << 16)
}
