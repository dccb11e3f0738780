//! Products of quantized matrices with f32 activations.
//!
//! A weight is dequantized to f32 (`w = scale * code + bias`, rounded once) and enters the chain of its lane: element `i` of a row
//! goes to lane `i % 16`, in ascending order, and the lanes end in the tree of `lanes.rs`. Four output rows run side by side
//! to hide the chain's latency, or two with four rows of activations, which share each dequantized group.

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{F, LANES, fma};
use crate::quant_matrix::{GROUP, bf16_at};
use crate::{Bits, Columns, QuantMatrix};

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
    fn run<L: Lanes>(self, lanes: L) {
        let Matmul { w, x, mut y } = self;
        let mut r = 0;
        while r < y.n_rows() {
            if y.n_rows() - r >= TILE_ROWS {
                tiles::<L, BITS, TILE_ROWS, 2>(lanes, w, x, r, &mut y);
                r += TILE_ROWS;
            } else {
                tiles::<L, BITS, 1, 4>(lanes, w, x, r, &mut y);
                r += 1;
            }
        }
    }
}

/// All output rows, `OUT` at a time, for the activation rows `r..r + ROWS`.
#[inline(always)]
fn tiles<L: Lanes, const BITS: usize, const ROWS: usize, const OUT: usize>(
    lanes: L,
    w: &QuantMatrix<'_>,
    x: &[f32],
    r: usize,
    y: &mut Columns<'_>,
) {
    let x: [&[F]; ROWS] =
        std::array::from_fn(|i| x[(r + i) * w.n_in..(r + i + 1) * w.n_in].as_chunks().0);
    let whole = w.n_out / OUT * OUT;
    for o in (0..whole).step_by(OUT) {
        let sums = tile::<L, BITS, OUT, ROWS>(lanes, w, o, &x);
        for (i, sums) in sums.iter().enumerate() {
            y.row_mut(r + i)[o..o + OUT].copy_from_slice(sums);
        }
    }
    for o in whole..w.n_out {
        let sums = tile::<L, BITS, 1, ROWS>(lanes, w, o, &x);
        for (i, sums) in sums.iter().enumerate() {
            y.row_mut(r + i)[o] = sums[0];
        }
    }
}

/// The output rows `o..o + OUT` times `ROWS` rows of activations.
#[inline(always)]
fn tile<L: Lanes, const BITS: usize, const OUT: usize, const ROWS: usize>(
    lanes: L,
    w: &QuantMatrix<'_>,
    o: usize,
    x: &[&[F]; ROWS],
) -> [[f32; OUT]; ROWS] {
    let rows: [_; OUT] = std::array::from_fn(|i| w.row(o + i));
    let mut acc = [[[0.0; LANES]; OUT]; ROWS];
    for g in 0..w.n_groups() {
        for (i, (packed, scales, biases)) in rows.iter().enumerate() {
            let codes = &packed[g * BITS * 8..(g + 1) * BITS * 8];
            let weights = lanes.dequantize::<BITS>(codes, bf16_at(scales, g), bf16_at(biases, g));
            for (acc, x) in acc.iter_mut().zip(x) {
                for (weights, x) in weights.iter().zip(&x[g * 4..(g + 1) * 4]) {
                    acc[i] = fma(*weights, *x, acc[i]);
                }
            }
        }
    }
    let mut y = [[0.0; OUT]; ROWS];
    for (y, acc) in y.iter_mut().zip(&acc) {
        for (y, acc) in y.iter_mut().zip(acc) {
            *y = lanes.sum(acc);
        }
    }
    y
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
    fn run<L: Lanes>(self, lanes: L) {
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
                Bits::Q4 => lanes.dequantize::<4>(codes, scale, bias),
                Bits::Q8 => lanes.dequantize::<8>(codes, scale, bias),
            };
            for (y, w) in y.iter_mut().zip(w.as_flattened()) {
                *y = self.factor * w;
            }
        }
    }
}
