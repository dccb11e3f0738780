//! Products of quantized matrices with int8 activations.
//!
//! Per output row, with `g` the group and `l = g % 16` its lane, in ascending order of `g`:
//! `t = sum over planes and blocks of sx * dot` (each `dot` an exact integer), then `acc_l = scale * t + acc_l` and
//! `acc_l = bias * s + acc_l`, where `s` is the group's sum of `sx * xq`: of the quantized values, because the exact sum of `x` would not
//! share their rounding error and makes the result worse. The lanes end in the tree of `lanes.rs`.

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{F, LANES, fma, mul, sum};
use crate::quant_matrix::bf16_lanes;
use crate::quant_rows::{CHUNK_GROUPS, Chunk};
use crate::{Bits, Columns, QuantMatrix, QuantRows};

/// `y = W x` for int8 rows `x`, `[n, n_in]`; `y` is `[n, n_out]`. A row's bits do not depend on the other rows.
///
/// # Panics
/// If the shapes differ.
pub fn matmul_i8(isa: Isa, w: &QuantMatrix<'_>, x: &QuantRows, y: Columns<'_>) {
    w.check();
    assert_eq!(w.n_in, x.n_in(), "width of x");
    assert_eq!(w.n_out, y.n_cols(), "columns of y");
    assert_eq!(x.n_rows(), y.n_rows(), "rows of y");
    match w.bits {
        Bits::Q4 => isa.run(MatmulI8::<4> { w, x, y }),
        Bits::Q8 => isa.run(MatmulI8::<8> { w, x, y }),
    }
}

struct MatmulI8<'a, const BITS: usize> {
    w: &'a QuantMatrix<'a>,
    x: &'a QuantRows,
    y: Columns<'a>,
}

impl<const BITS: usize> Op for MatmulI8<'_, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let MatmulI8 { w, x, mut y } = self;
        for r in 0..x.n_rows() {
            let (x_row, y_row) = (x.row(r), y.row_mut(r));
            for (o, y) in y_row.iter_mut().enumerate() {
                *y = if x.planes() == 1 {
                    row_dot::<L, BITS, 1>(lanes, w, o, x_row)
                } else {
                    row_dot::<L, BITS, 2>(lanes, w, o, x_row)
                };
            }
        }
    }
}

/// Output row `o` times one row of activations.
#[inline(always)]
fn row_dot<L: Lanes, const BITS: usize, const PLANES: usize>(
    lanes: L,
    w: &QuantMatrix<'_>,
    o: usize,
    x: &[Chunk],
) -> f32 {
    let mut acc = [0.0; LANES];
    let n_groups = w.n_groups();
    for (c, planes) in x.as_chunks::<PLANES>().0.iter().enumerate() {
        let n = (n_groups - c * CHUNK_GROUPS).min(CHUNK_GROUPS);
        // The slices reach to the end of the matrix, so that whole registers can be loaded at a row's end.
        let g = o * n_groups + c * CHUNK_GROUPS;
        let (packed, scales, biases) = (
            &w.packed[g * BITS * 8..],
            &w.scales[g * 2..],
            &w.biases[g * 2..],
        );
        let mut t = [0.0; LANES];
        for (p, plane) in planes.iter().enumerate() {
            let dots = lanes.dots::<BITS>(packed, n, plane);
            t = weigh(dots, &plane.scales, if p == 0 { None } else { Some(t) });
        }
        acc = fma(bf16_lanes(scales, n), t, acc);
        acc = fma(bf16_lanes(biases, n), planes[0].sums, acc);
    }
    sum(acc)
}

/// `before + sum over blocks of scale * dot`.
#[inline(always)]
fn weigh(dots: [[i32; 16]; 2], scales: &[F; 2], before: Option<F>) -> F {
    let [first, second] = dots.map(|dots| dots.map(|dot| dot as f32));
    let t = match before {
        None => mul(first, scales[0]),
        Some(before) => fma(first, scales[0], before),
    };
    fma(second, scales[1], t)
}
