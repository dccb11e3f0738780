//! Operations on each element for itself.

use half::f16;

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{LANES, fma, map, mul, piece, update};
use crate::math::{gelu, tanh};

/// `gate = gelu(gate) * up`, gelu by its tanh formula; see `math.rs` for its error. Finite wherever the true product is.
///
/// # Panics
/// If the lengths differ.
pub fn geglu(isa: Isa, gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len(), "length of up");
    isa.run(Geglu { gate, up });
}

struct Geglu<'a> {
    gate: &'a mut [f32],
    up: &'a [f32],
}

impl Op for Geglu<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let up = self.up;
        update(self.gate, |i, gate| mul(gelu(gate), piece(up, i)));
    }
}

/// `x = cap * tanh(x / cap)`.
pub fn softcap(isa: Isa, x: &mut [f32], cap: f32) {
    isa.run(Softcap { x, cap });
}

struct Softcap<'a> {
    x: &'a mut [f32],
    cap: f32,
}

impl Op for Softcap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let cap = self.cap;
        update(self.x, |_, x| map(tanh(map(x, |x| x / cap)), |t| cap * t));
    }
}

/// `y += a * x`, rounded once.
///
/// # Panics
/// If the lengths differ.
pub fn add_scaled(isa: Isa, y: &mut [f32], a: f32, x: &[f32]) {
    assert_eq!(y.len(), x.len(), "length of x");
    isa.run(AddScaled { y, a, x });
}

struct AddScaled<'a> {
    y: &'a mut [f32],
    a: f32,
    x: &'a [f32],
}

impl Op for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let (a, x) = ([self.a; LANES], self.x);
        update(self.y, |i, y| fma(a, piece(x, i), y));
    }
}

/// `y *= a`.
pub fn scale(isa: Isa, y: &mut [f32], a: f32) {
    isa.run(Scale { y, a });
}

struct Scale<'a> {
    y: &'a mut [f32],
    a: f32,
}

impl Op for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let a = self.a;
        update(self.y, |_, y| map(y, |y| y * a));
    }
}

/// Rounds to f16, to nearest, ties to even; beyond 65,504 infinite.
///
/// # Panics
/// If the lengths differ.
pub fn to_f16(isa: Isa, x: &[f32], y: &mut [f16]) {
    assert_eq!(x.len(), y.len(), "length of y");
    isa.run(ToF16 { x, y });
}

struct ToF16<'a> {
    x: &'a [f32],
    y: &'a mut [f16],
}

impl Op for ToF16<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for (i, y) in self.y.chunks_mut(LANES).enumerate() {
            let narrow = lanes.narrow(&piece(self.x, i));
            y.copy_from_slice(&narrow[..y.len()]);
        }
    }
}
