use super::{EXP_LOW, exp1, tanh};

/// One step of f32 is `1.2e-7`; the polynomial and the last rounding stay within it.
const EXP_TOLERANCE: f64 = 1.2e-7;
/// The exponential form rounds a sum, a difference and a quotient.
const TANH_TOLERANCE: f64 = 3e-7;

/// Largest relative error of `f` against `want` over `n` points from `low` to `high`.
fn worst(n: u32, low: f64, high: f64, f: impl Fn(f32) -> f32, want: impl Fn(f64) -> f64) -> f64 {
    let points = (0..=n).map(|i| (low + (high - low) * f64::from(i) / f64::from(n)) as f32);
    points.fold(0.0, |worst, x| {
        let want = want(f64::from(x));
        let error = (f64::from(f(x)) - want).abs();
        worst.max(if want == 0.0 {
            error
        } else {
            error / want.abs()
        })
    })
}

#[test]
fn exp_keeps_its_error() {
    let worst = worst(2_000_000, -87.33, 88.72, exp1, f64::exp);
    println!("exp: relative error {worst:.2e}");
    assert!(worst <= EXP_TOLERANCE);
}

#[test]
fn exp_at_its_edges() {
    assert_eq!(exp1(0.0), 1.0);
    assert_eq!(exp1(-0.0), 1.0);
    assert_eq!(exp1(f32::NEG_INFINITY), 0.0);
    assert_eq!(exp1(f32::from_bits(EXP_LOW.to_bits() + 1)), 0.0);
    assert!(exp1(EXP_LOW) >= f32::MIN_POSITIVE);
    assert!(exp1(f32::INFINITY).is_finite());
    assert!(exp1(f32::NAN).is_nan());
}

#[test]
fn tanh_keeps_its_error() {
    let one = |x| tanh([x; 16])[0];
    for (low, high) in [(-20.0, 20.0), (-0.7, 0.7), (-1e-3, 1e-3), (-1e9, 1e9)] {
        let worst = worst(400_000, low, high, one, f64::tanh);
        println!("tanh in {low}..{high}: relative error {worst:.2e}");
        assert!(worst <= TANH_TOLERANCE);
    }
    assert_eq!([one(f32::INFINITY), one(f32::NEG_INFINITY)], [1.0, -1.0]);
}
