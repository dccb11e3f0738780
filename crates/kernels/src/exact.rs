//! Products of quantized matrices with f32 activations.
//!
//! A weight is dequantized to f32 (`w = scale * code + bias`, rounded once) and enters the chain of its lane: element `i` of a row
//! goes to lane `i % 16`, in ascending order, and the lanes end in the tree of `lanes.rs`. Four output rows run side by side
//! to hide the chain's latency, and each dequantized group serves all rows of activations.

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{F, LANES, fma, sum};
use crate::quant_matrix::{GROUP, bf16_at};
use crate::{Bits, Columns, QuantMatrix};

/// Output rows side by side.
const TILE_OUT: usize = 4;
/// Activation rows that share a dequantized group.
const TILE_ROWS: usize = 4;

/// `y = W x` for f32 rows `x`, `[n, n_in]`; `y` is `[n, n_out]`. A row's bits do not depend on the other rows.
///
/// # Panics
/// If the shapes differ.
pub fn matmul(isa: Isa, w: &QuantMatrix<'_>, x: &[f32], y: Columns<'_>) {
    w.check();
    assert_eq!(w.n_out, y.n_cols(), "columns of y");
    assert_eq!(
        Some(x.len()),
        y.n_rows().checked_mul(w.n_in),
        "x is not [{}, {}]",
        y.n_rows(),
        w.n_in
    );
    match w.bits {
        Bits::Q4 => isa.run(Matmul::<4> { w, x, y }),
        Bits::Q8 => isa.run(Matmul::<8> { w, x, y }),
    }
}

struct Matmul<'a, const BITS: usize> {
    w: &'a QuantMatrix<'a>,
    x: &'a [f32],
    y: Columns<'a>,
}

impl<const BITS: usize> Op for Matmul<'_, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let Matmul { w, x, mut y } = self;
        let mut r = 0;
        while r < y.n_rows() {
            if y.n_rows() - r >= TILE_ROWS {
                tiles::<BITS, TILE_ROWS>(w, x, r, &mut y);
                r += TILE_ROWS;
            } else {
                tiles::<BITS, 1>(w, x, r, &mut y);
                r += 1;
            }
        }
    }
}

/// All output rows for the activation rows `r..r + ROWS`.
#[inline(always)]
fn tiles<const BITS: usize, const ROWS: usize>(
    w: &QuantMatrix<'_>,
    x: &[f32],
    r: usize,
    y: &mut Columns<'_>,
) {
    let x: [&[f32]; ROWS] = std::array::from_fn(|i| &x[(r + i) * w.n_in..(r + i + 1) * w.n_in]);
    let mut o = 0;
    while o < w.n_out {
        if w.n_out - o >= TILE_OUT {
            let sums = tile::<BITS, TILE_OUT, ROWS>(w, o, &x);
            for (i, sums) in sums.iter().enumerate() {
                y.row_mut(r + i)[o..o + TILE_OUT].copy_from_slice(sums);
            }
            o += TILE_OUT;
        } else {
            let sums = tile::<BITS, 1, ROWS>(w, o, &x);
            for (i, sums) in sums.iter().enumerate() {
                y.row_mut(r + i)[o] = sums[0];
            }
            o += 1;
        }
    }
}

/// The output rows `o..o + OUT` times `ROWS` rows of activations.
#[inline(always)]
fn tile<const BITS: usize, const OUT: usize, const ROWS: usize>(
    w: &QuantMatrix<'_>,
    o: usize,
    x: &[&[f32]; ROWS],
) -> [[f32; OUT]; ROWS] {
    let mut acc = [[[0.0; LANES]; OUT]; ROWS];
    for g in 0..w.n_groups() {
        let mut weights = [[0.0; GROUP]; OUT];
        for (i, weights) in weights.iter_mut().enumerate() {
            let (packed, scales, biases) = w.row(o + i);
            let codes = &packed[g * BITS * 8..(g + 1) * BITS * 8];
            *weights = dequantize::<BITS>(codes, bf16_at(scales, g), bf16_at(biases, g));
        }
        for (acc, x) in acc.iter_mut().zip(x) {
            let (pieces, _) = x[g * GROUP..(g + 1) * GROUP].as_chunks::<LANES>();
            for (c, x) in pieces.iter().enumerate() {
                for (acc, weights) in acc.iter_mut().zip(&weights) {
                    let weights: &F = &weights.as_chunks::<LANES>().0[c];
                    *acc = fma(*weights, *x, *acc);
                }
            }
        }
    }
    let mut y = [[0.0; OUT]; ROWS];
    for (y, acc) in y.iter_mut().zip(&acc) {
        for (y, acc) in y.iter_mut().zip(acc) {
            *y = sum(*acc);
        }
    }
    y
}

/// The weights of a group.
#[inline(always)]
fn dequantize<const BITS: usize>(codes: &[u8], scale: f32, bias: f32) -> [f32; GROUP] {
    let mut w = [0.0; GROUP];
    if BITS == 4 {
        for (w, byte) in w.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
            w[0] = f32::from(byte & 15).mul_add(scale, bias);
            w[1] = f32::from(byte >> 4).mul_add(scale, bias);
        }
    } else {
        for (w, code) in w.iter_mut().zip(codes) {
            *w = f32::from(*code).mul_add(scale, bias);
        }
    }
    w
}

/// `y = factor * W[row]`, the lookup of an embedding.
///
/// # Panics
/// If there is no such row or `y` is not `n_in` long.
pub fn dequantize_row(isa: Isa, w: &QuantMatrix<'_>, row: usize, factor: f32, y: &mut [f32]) {
    w.check();
    assert!(row < w.n_out, "row {row} of {}", w.n_out);
    assert_eq!(w.n_in, y.len(), "length of y");
    isa.run(DequantizeRow { w, row, factor, y });
}

struct DequantizeRow<'a> {
    w: &'a QuantMatrix<'a>,
    row: usize,
    factor: f32,
    y: &'a mut [f32],
}

impl Op for DequantizeRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let (packed, scales, biases) = self.w.row(self.row);
        let codes = packed.chunks_exact(self.w.bits.group_bytes());
        for (g, (y, codes)) in self
            .y
            .as_chunks_mut::<GROUP>()
            .0
            .iter_mut()
            .zip(codes)
            .enumerate()
        {
            let (scale, bias) = (bf16_at(scales, g), bf16_at(biases, g));
            let w = match self.w.bits {
                Bits::Q4 => dequantize::<4>(codes, scale, bias),
                Bits::Q8 => dequantize::<8>(codes, scale, bias),
            };
            for (y, w) in y.iter_mut().zip(w) {
                *y = self.factor * w;
            }
        }
    }
}
