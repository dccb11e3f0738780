//! A quantized matrix as the model directory has it: codes, scales and biases, borrowed and of any alignment.

use std::ops::Range;

/// Elements that share a scale and a bias.
pub const GROUP: usize = 64;

/// Bits of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bits {
    /// Two codes a byte, the even element in the low nibble.
    Q4,
    /// One code a byte.
    Q8,
}

impl Bits {
    /// Bytes of the codes of a group.
    pub(crate) const fn group_bytes(self) -> usize {
        match self {
            Bits::Q4 => GROUP / 2,
            Bits::Q8 => GROUP,
        }
    }
}

/// A row-major matrix `[n_out, n_in]` of unsigned codes q in groups of [`GROUP`] along n_in: an element is `scale * q + bias`, with the
/// scale and the bias of its group.
#[derive(Clone, Copy, Debug)]
pub struct QuantMatrix<'a> {
    /// Bits of every code.
    pub bits: Bits,
    /// Rows: elements of a result.
    pub n_out: usize,
    /// Columns: elements of an activation row; a multiple of [`GROUP`].
    pub n_in: usize,
    /// `[n_out, n_in]` codes.
    pub packed: &'a [u8],
    /// `[n_out, n_in / 64]`, little-endian bf16.
    pub scales: &'a [u8],
    /// As `scales`.
    pub biases: &'a [u8],
}

/// A row of a matrix.
#[derive(Clone, Copy)]
pub(crate) struct MatrixRow<'a> {
    /// Codes of the row, groups one after another.
    pub packed: &'a [u8],
    /// The scale of each group.
    pub scales: &'a [[u8; 2]],
    /// The bias of each group.
    pub biases: &'a [[u8; 2]],
}

impl<'a> QuantMatrix<'a> {
    /// A matrix over borrowed bytes.
    ///
    /// # Panics
    /// If n_in is not a multiple of [`GROUP`] or a length does not fit the shape.
    pub fn new(
        bits: Bits,
        n_out: usize,
        n_in: usize,
        packed: &'a [u8],
        scales: &'a [u8],
        biases: &'a [u8],
    ) -> QuantMatrix<'a> {
        assert!(n_in.is_multiple_of(GROUP), "{n_in} inputs are not whole groups");
        let n_groups = n_out * (n_in / GROUP);
        assert_eq!(packed.len(), n_groups * bits.group_bytes(), "codes of [{n_out}, {n_in}]");
        assert_eq!(scales.len(), n_groups * 2, "scales of [{n_out}, {n_in}]");
        assert_eq!(biases.len(), n_groups * 2, "biases of [{n_out}, {n_in}]");
        QuantMatrix {
            bits,
            n_out,
            n_in,
            packed,
            scales,
            biases,
        }
    }

    /// The matrix of some rows of this one.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn rows(&self, rows: Range<usize>) -> QuantMatrix<'a> {
        assert!(rows.start <= rows.end && rows.end <= self.n_out, "rows {rows:?} of {}", self.n_out);
        let n_groups = self.n_in / GROUP;
        let cut = |bytes: &'a [u8], group_bytes: usize| {
            &bytes[rows.start * n_groups * group_bytes..rows.end * n_groups * group_bytes]
        };
        QuantMatrix {
            n_out: rows.len(),
            packed: cut(self.packed, self.bits.group_bytes()),
            scales: cut(self.scales, 2),
            biases: cut(self.biases, 2),
            ..*self
        }
    }

    #[inline(always)]
    pub(crate) fn row(&self, row: usize) -> MatrixRow<'a> {
        let n_groups = self.n_in / GROUP;
        let row_bytes = n_groups * self.bits.group_bytes();
        MatrixRow {
            packed: &self.packed[row * row_bytes..(row + 1) * row_bytes],
            scales: &self.scales.as_chunks().0[row * n_groups..(row + 1) * n_groups],
            biases: &self.biases.as_chunks().0[row * n_groups..(row + 1) * n_groups],
        }
    }
}

/// A bf16, widened.
#[inline(always)]
pub(crate) fn widen([low, high]: [u8; 2]) -> f32 {
    f32::from_bits(u32::from_le_bytes([0, 0, low, high]))
}
