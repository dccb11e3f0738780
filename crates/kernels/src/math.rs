//! `exp`, `tanh` and the logistic function as polynomials over sixteen lanes, so that no system's libm shows in a result.
//!
//! Coefficients: weighted least squares on Chebyshev nodes, reweighted towards the minimax fit, then rounded to f32. The errors named
//! at each function are held by `math/tests.rs` and, for GELU and softcap, by the integration tests.

use crate::lanes::{F, map};

#[cfg(test)]
mod tests;

/// Below this `exp` is 0: the smallest normal number is `exp(-87.3365)`.
const EXP_LOW: f32 = -87.336_54;
/// Above this `exp` stays: the largest finite number is `exp(88.7228)`.
const EXP_HIGH: f32 = 88.722;
/// Adding and subtracting `1.5 * 2^23` rounds to the nearest integer, ties to even.
pub(crate) const ROUND: f32 = 12_582_912.0;
/// `ln 2` in two parts; the first has nine bits, so that its product with an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// `exp(r) = 1 + r + r^2 P(r)` for `|r| <= ln 2 / 2`.
const EXP: [f32; 5] = [
    0.5,
    0.166_665_12,
    0.041_666_187,
    0.008_369_599,
    0.001_395_171_9,
];
/// `tanh(u) = u + u^3 P(u^2)` for `|u| < 0.625`.
const TANH: [f32; 5] = [
    -0.333_332_84,
    0.133_314_92,
    -0.053_743_538,
    0.020_650_72,
    -0.005_717_2,
];
/// Up to here the polynomial, from here the exponential form, which cancels below.
const TANH_EDGE: f32 = 0.625;

/// `e^x`, relative error below 1.2e-7; 0 below -87.33, at most `e^88.722`.
#[inline(always)]
pub(crate) fn exp(x: F) -> F {
    let mut y = x;
    for y in &mut y {
        *y = exp1(*y);
    }
    y
}

/// One lane of [`exp`].
#[inline(always)]
pub(crate) fn exp1(x: f32) -> f32 {
    let x = if x > EXP_HIGH { EXP_HIGH } else { x };
    let clamped = if x < EXP_LOW { EXP_LOW } else { x };
    let shifted = clamped.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2_HIGH, clamped));
    let p = polynomial(&EXP, r);
    let y = (r * r).mul_add(p, r) + 1.0;
    // `shifted` holds n in its low bits; n lies in -126..=128, and y in 0.7..1.42, so halving the power in two steps never
    // leaves the range of exponents.
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let half = n >> 1;
    let y = y * power_of_two(half) * power_of_two(n - half);
    if x < EXP_LOW { 0.0 } else { y }
}

/// `tanh(x)`, relative error below 3e-7.
#[inline(always)]
pub(crate) fn tanh(x: F) -> F {
    map(x, |x| {
        let a = x.abs();
        let z = x * x;
        let small = (x * z).mul_add(polynomial(&TANH, z), x);
        let e = exp1(-2.0 * a);
        let large = ((1.0 - e) / (1.0 + e)).copysign(x);
        if a < TANH_EDGE { small } else { large }
    })
}

/// `1 / (1 + e^-x)`, relative error below 3e-7 for `|x| < 87`, beyond it 0 or 1.
#[inline(always)]
fn logistic1(x: f32) -> f32 {
    let e = exp1(-x.abs());
    let numerator = if x < 0.0 { e } else { 1.0 };
    numerator / (1.0 + e)
}

/// GELU by its tanh formula, `0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) = x logistic(2 sqrt(2 / pi) (x + ...))`.
#[inline(always)]
pub(crate) fn gelu(x: F) -> F {
    let mut y = x;
    for y in &mut y {
        *y = gelu1(*y);
    }
    y
}

#[inline(always)]
fn gelu1(x: f32) -> f32 {
    /// `2 sqrt(2 / pi)`.
    const LINEAR: f32 = 1.595_769;
    /// `0.044715 * 2 sqrt(2 / pi)`.
    const CUBIC: f32 = 0.071_354_82;
    x * logistic1(x * (x * x).mul_add(CUBIC, LINEAR))
}

#[inline(always)]
fn polynomial(coefficients: &[f32; 5], x: f32) -> f32 {
    let [a, b, c, d, e] = *coefficients;
    e.mul_add(x, d).mul_add(x, c).mul_add(x, b).mul_add(x, a)
}

/// `2^n` for `n` in -126..=127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) << 23) as u32)
}
