//! Rotary position embedding with NeoX pairs: element `i` turns with element `i + d / 2`.

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{fma, map, mul, piece, update};

/// Rotates one head `x` of `d` elements: `x_i' = x_i cos_i - x_(i + d/2) sin_i`, `x_(i + d/2)' = x_(i + d/2) cos_i + x_i sin_i`.
///
/// # Panics
/// If `cos` or `sin` is not half as long as `x`.
pub fn rope(isa: Isa, x: &mut [f32], cos: &[f32], sin: &[f32]) {
    let half = x.len() / 2;
    assert_eq!(half * 2, x.len(), "length of x is odd");
    assert_eq!(half, cos.len(), "length of cos");
    assert_eq!(half, sin.len(), "length of sin");
    isa.run(Rope { x, cos, sin });
}

struct Rope<'a> {
    x: &'a mut [f32],
    cos: &'a [f32],
    sin: &'a [f32],
}

impl Op for Rope<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let Rope { x, cos, sin } = self;
        let (first, second) = x.split_at_mut(cos.len());
        let n_pieces = cos.len().div_ceil(16);
        for i in 0..n_pieces {
            let range = i * 16..cos.len().min(i * 16 + 16);
            let (a, b) = (piece(first, i), piece(second, i));
            let (cos, sin) = (piece(cos, i), piece(sin, i));
            update(&mut first[range.clone()], |_, _| {
                fma(a, cos, map(mul(b, sin), |v| -v))
            });
            update(&mut second[range], |_, _| fma(b, cos, mul(a, sin)));
        }
    }
}
