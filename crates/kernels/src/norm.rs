//! RMSNorm: `y = x (mean(x^2) + eps)^-1/2 w`.

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{LANES, fma, for_each_piece, map, mul, piece, update};

/// `y = x (mean(x^2) + eps)^-1/2 weight` of one row; no `weight` is all ones.
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm(isa: Isa, x: &[f32], weight: Option<&[f32]>, eps: f32, y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "length of y");
    y.copy_from_slice(x);
    rms_norm_in_place(isa, y, weight, eps);
}

/// [`rms_norm`] with `y = x`.
///
/// # Panics
/// If the lengths differ.
pub fn rms_norm_in_place(isa: Isa, x: &mut [f32], weight: Option<&[f32]>, eps: f32) {
    if let Some(weight) = weight {
        assert_eq!(x.len(), weight.len(), "length of weight");
    }
    isa.run(RmsNorm { x, weight, eps });
}

struct RmsNorm<'a> {
    x: &'a mut [f32],
    weight: Option<&'a [f32]>,
    eps: f32,
}

impl Op for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let RmsNorm { x, weight, eps } = self;
        let mut squares = [0.0; LANES];
        for_each_piece(x, 0.0, |_, x| squares = fma(x, x, squares));
        let factor = 1.0 / (lanes.sum(&squares) / x.len() as f32 + eps).sqrt();
        match weight {
            Some(weight) => update(x, |i, x| mul(map(x, |x| x * factor), piece(weight, i))),
            None => update(x, |_, x| map(x, |x| x * factor)),
        }
    }
}
