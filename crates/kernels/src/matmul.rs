//! The exact product: codes become f32 weights, activations stay f32, sums are f32.
//!
//! `w = fma(scale, q, bias)`, then lane i sums `fma(w, x, ·)` over the elements k = i mod 16 of the whole row, in order, and
//! the lanes are summed by halves. Tiles of outputs and activation rows share what they load; each output keeps
//! that order whatever the tile, so that one row of many has the bits it has alone.

use std::array::from_fn;

use crate::matrix::widen;
use crate::simd::{LANES, Op, Simd};
use crate::{Bits, Columns, GROUP, Isa, QuantMatrix};

/// Vectors of a group.
const VECTORS: usize = GROUP / LANES;
/// Outputs of a tile over one activation row: four chains of multiply-adds hide their latency.
const MATVEC_OUTPUTS: usize = 4;
/// Outputs and activation rows of a tile over several: eight sums fit the registers of every instruction set, and the weights
/// are dequantized once for four rows.
const MATMUL_OUTPUTS: usize = 2;
const MATMUL_ROWS: usize = 4;

/// Weights of group `g` of a row.
#[inline(always)]
fn dequantize_group<S: Simd>(s: S, w: &QuantMatrix<'_>, row: usize, g: usize) -> [S::V; VECTORS] {
    let row = w.row(row);
    let (scale, bias) = (widen(row.scales[g]), widen(row.biases[g]));
    match w.bits {
        Bits::Q4 => s.dequantize_q4(&row.packed.as_chunks().0[g], scale, bias),
        Bits::Q8 => s.dequantize_q8(&row.packed.as_chunks().0[g], scale, bias),
    }
}

struct MatMul<'a> {
    w: &'a QuantMatrix<'a>,
    x: &'a [f32],
    y: Columns<'a>,
}

impl MatMul<'_> {
    /// Outputs `o..o + O` of the activation rows `r..r + R`.
    #[inline(always)]
    fn tile<S: Simd, const O: usize, const R: usize>(&mut self, s: S, o: usize, r: usize) {
        let n_in = self.w.n_in;
        let x: [&[[f32; LANES]]; R] = from_fn(|i| self.x[(r + i) * n_in..(r + i + 1) * n_in].as_chunks().0);
        let mut sums = [[s.splat(0.0); R]; O];
        for g in 0..n_in / GROUP {
            for (i, sums) in sums.iter_mut().enumerate() {
                let w = dequantize_group(s, self.w, o + i, g);
                for (j, sum) in sums.iter_mut().enumerate() {
                    for (c, &w) in w.iter().enumerate() {
                        *sum = s.fma(w, s.load(&x[j][VECTORS * g + c]), *sum);
                    }
                }
            }
        }
        for j in 0..R {
            let y = &mut self.y.row_mut(r + j)[o..o + O];
            for (y, sums) in y.iter_mut().zip(&sums) {
                *y = s.sum(sums[j]);
            }
        }
    }

    /// Outputs `o..o + O` of all activation rows.
    #[inline(always)]
    fn outputs<S: Simd, const O: usize>(&mut self, s: S, o: usize) {
        let n_rows = self.y.n_rows();
        let whole = n_rows - n_rows % MATMUL_ROWS;
        for r in (0..whole).step_by(MATMUL_ROWS) {
            self.tile::<S, O, MATMUL_ROWS>(s, o, r);
        }
        for r in whole..n_rows {
            self.tile::<S, O, 1>(s, o, r);
        }
    }

    /// All outputs of all rows, `O` at a time.
    #[inline(always)]
    fn all<S: Simd, const O: usize>(&mut self, s: S) {
        let whole = self.w.n_out - self.w.n_out % O;
        for o in (0..whole).step_by(O) {
            self.outputs::<S, O>(s, o);
        }
        for o in whole..self.w.n_out {
            self.outputs::<S, 1>(s, o);
        }
    }
}

impl Op for MatMul<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        if self.y.n_rows() == 1 {
            self.all::<S, MATVEC_OUTPUTS>(s);
        } else {
            self.all::<S, MATMUL_OUTPUTS>(s);
        }
    }
}

/// `y = x W^T` with f32 activations: `x` is `[n, n_in]`, `y` is `[n, n_out]`; n = 1 is a matvec.
///
/// # Panics
/// If the shapes do not fit.
pub fn matmul(isa: Isa, w: &QuantMatrix<'_>, x: &[f32], y: Columns<'_>) {
    assert_eq!(x.len(), y.n_rows() * w.n_in, "activations of {} rows", y.n_rows());
    assert_eq!(w.n_out, y.n_cols(), "outputs of the matrix and columns to fill");
    isa.run(MatMul { w, x, y });
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
    fn run<S: Simd>(self, s: S) {
        let factor = s.splat(self.factor);
        let (groups, _) = self.y.as_chunks_mut::<GROUP>();
        for (g, y) in groups.iter_mut().enumerate() {
            let weights = dequantize_group(s, self.w, self.row, g);
            for (w, y) in weights.into_iter().zip(y.as_chunks_mut().0) {
                s.store(s.mul(w, factor), y);
            }
        }
    }
}

/// `y = factor * W[row]`, as an embedding is looked up.
///
/// # Panics
/// If there is no such row or `y` is not n_in long.
pub fn dequantize_row(isa: Isa, w: &QuantMatrix<'_>, row: usize, factor: f32, y: &mut [f32]) {
    assert!(row < w.n_out, "row {row} of {}", w.n_out);
    assert_eq!(y.len(), w.n_in, "the output of a row of {} elements", w.n_in);
    isa.run(DequantizeRow { w, row, factor, y });
}
