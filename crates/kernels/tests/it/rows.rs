//! Operations on rows: norms, rotation, activations, choices.

use half::f16;
use ouzel_kernels::{
    Isa, add_scaled, geglu, rms_norm, rms_norm_in_place, rope, scale, softcap, softmax, to_f16,
    top_k,
};

use crate::data::{Random, assert_bits, others, seed};

/// Sixteen lanes of up to 200 sums, one root, one division, two products.
const NORM_TOLERANCE: f64 = 2e-6;
/// Two products and one rounding, against the larger element of the pair.
const ROPE_TOLERANCE: f64 = 2e-7;
/// Relative, where the gate is above -3; the factor `1 / (1 + e^z)` has an error of `|z|` times f32's step.
const GELU_TOLERANCE: f64 = 1.2e-6;
/// Relative, in the tail below -3, where `e^z` multiplies z's rounding by up to 87. The values there are below 4e-3.
const GELU_TAIL_TOLERANCE: f64 = 2e-5;
/// Relative: tanh, one division and one product.
const SOFTCAP_TOLERANCE: f64 = 6e-7;
/// The rounding of `e^x`, of the sum and, times the distance from the largest element, of the exponent.
const SOFTMAX_TOLERANCE: f64 = 3e-7;

/// Every length around the sixteen lanes, and the model's.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=70).chain([255, 256, 512, 704, 2112, 2816])
}

/// Runs `f` on `portable`, holds the others against it, and returns its output.
fn on_all(what: &str, y: &[f32], f: impl Fn(Isa, &mut [f32])) -> Vec<f32> {
    let run = |isa| {
        let mut y = y.to_vec();
        f(isa, &mut y);
        y
    };
    let portable = run(Isa::Portable);
    for isa in others() {
        assert_bits(&format!("{what} on {}", isa.name()), &run(isa), &portable);
    }
    portable
}

fn assert_close(what: &str, got: f32, want: f64, tolerance: f64) {
    assert!(
        (f64::from(got) - want).abs() <= tolerance,
        "{what} is {got}, not {want}"
    );
}

#[test]
fn rms_norm_is_the_formula() {
    let mut random = Random(seed());
    for n in lengths().skip(1) {
        for (size, eps) in [(1.0, 1e-6), (1.3e5, 1e-6), (1e-4, 1e-6)] {
            let x: Vec<f32> = random.normals(n).iter().map(|x| x * size).collect();
            let weight = random.normals(n);
            for weight in [None, Some(weight.as_slice())] {
                let y = on_all(&format!("norm of {n}"), &x, |isa, y| {
                    rms_norm(isa, &x, weight, eps, y)
                });
                let in_place = on_all(&format!("norm of {n}"), &x, |isa, y| {
                    rms_norm_in_place(isa, y, weight, eps)
                });
                assert_bits("in place", &in_place, &y);
                let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / n as f64;
                for i in 0..n {
                    let want = f64::from(x[i]) / (mean + f64::from(eps)).sqrt()
                        * weight.map_or(1.0, |w| f64::from(w[i]));
                    assert_close(
                        &format!("norm of {n}, element {i}"),
                        y[i],
                        want,
                        NORM_TOLERANCE * want.abs(),
                    );
                }
            }
        }
    }
}

#[test]
fn rope_turns_pairs_half_a_head_apart() {
    let mut random = Random(seed());
    for half in lengths() {
        let x = random.normals(2 * half);
        let angles: Vec<f64> = (0..half).map(|_| 100.0 * random.unit()).collect();
        let cos: Vec<f32> = angles.iter().map(|a| a.cos() as f32).collect();
        let sin: Vec<f32> = angles.iter().map(|a| a.sin() as f32).collect();
        let y = on_all(&format!("rope of {half} pairs"), &x, |isa, y| {
            rope(isa, y, &cos, &sin)
        });
        for i in 0..half {
            let (a, b) = (f64::from(x[i]), f64::from(x[i + half]));
            let (c, s) = (f64::from(cos[i]), f64::from(sin[i]));
            let tolerance = ROPE_TOLERANCE * a.abs().max(b.abs());
            assert_close("first of a pair", y[i], a * c - b * s, tolerance);
            assert_close("second of a pair", y[i + half], b * c + a * s, tolerance);
        }
    }
}

/// GELU by its tanh formula in f64, without its cancellation.
fn gelu(x: f64) -> f64 {
    let z = 2.0 * (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    x / (1.0 + (-z).exp())
}

/// Both signs of a dense grid of magnitudes from 1e-8 to 1e12.
fn grid() -> Vec<f32> {
    let magnitudes = (0..40_000).map(|i| 10f64.powf(-8.0 + f64::from(i) / 2_000.0) as f32);
    magnitudes
        .flat_map(|x| [x, -x])
        .chain([0.0, 1.3e5, -1.3e5])
        .collect()
}

#[test]
fn geglu_is_accurate_and_finite_over_all_magnitudes() {
    let x = grid();
    let up = vec![1.0; x.len()];
    let y = on_all("geglu", &x, |isa, y| geglu(isa, y, &up));
    let (mut worst, mut worst_tail) = (0.0f64, 0.0f64);
    for (x, y) in x.iter().zip(y) {
        let want = gelu(f64::from(*x));
        assert!(y.is_finite(), "gelu({x}) is {y}");
        if want.abs() < f64::from(f32::MIN_POSITIVE) {
            assert!(f64::from(y.abs()) <= 1e-36, "gelu({x}) is {y}, not {want}");
            continue;
        }
        let error = (f64::from(y) - want).abs() / want.abs();
        if *x > -3.0 {
            worst = worst.max(error);
        } else if want.abs() > 1e-36 {
            worst_tail = worst_tail.max(error);
        }
    }
    println!("gelu: relative error {worst:.2e}, in the tail {worst_tail:.2e}");
    assert!(worst <= GELU_TOLERANCE && worst_tail <= GELU_TAIL_TOLERANCE);
    let mut random = Random(seed());
    for n in lengths() {
        let (gate, up) = (random.normals(n), random.normals(n));
        let y = on_all(&format!("geglu of {n}"), &gate, |isa, y| geglu(isa, y, &up));
        for i in 0..n {
            let want = gelu(f64::from(gate[i])) * f64::from(up[i]);
            assert_close("geglu", y[i], want, GELU_TAIL_TOLERANCE * want.abs());
        }
    }
}

#[test]
fn softcap_is_accurate_and_finite_over_all_magnitudes() {
    let x = grid();
    let y = on_all("softcap", &x, |isa, y| softcap(isa, y, 30.0));
    let mut worst = 0.0f64;
    for (x, y) in x.iter().zip(y) {
        let want = 30.0 * (f64::from(*x) / 30.0).tanh();
        let error = (f64::from(y) - want).abs();
        worst = worst.max(if want == 0.0 {
            error
        } else {
            error / want.abs()
        });
    }
    println!("softcap: relative error {worst:.2e}");
    assert!(worst <= SOFTCAP_TOLERANCE);
    let mut random = Random(seed());
    for n in lengths() {
        on_all(&format!("softcap of {n}"), &random.normals(n), |isa, y| {
            softcap(isa, y, 30.0)
        });
    }
}

#[test]
fn sums_and_products_round_once() {
    let mut random = Random(seed());
    for n in lengths() {
        let (x, y) = (random.normals(n), random.normals(n));
        let sum = on_all(&format!("add_scaled of {n}"), &y, |isa, y| {
            add_scaled(isa, y, 0.7, &x)
        });
        let want: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x.mul_add(0.7, *y)).collect();
        assert_bits("add_scaled", &sum, &want);
        let product = on_all(&format!("scale of {n}"), &y, |isa, y| scale(isa, y, 0.7));
        let want: Vec<f32> = y.iter().map(|y| y * 0.7).collect();
        assert_bits("scale", &product, &want);
    }
}

#[test]
fn to_f16_rounds_to_nearest_even() {
    let mut random = Random(seed());
    let mut x: Vec<f32> = (0..=0xFFFF)
        .map(|bits| f16::from_bits(bits).to_f32())
        .filter(|x| !x.is_nan())
        .collect();
    // Halfway between neighbours, and one step of f32 to both sides.
    let halves: Vec<f32> = x.windows(2).map(|pair| 0.5 * (pair[0] + pair[1])).collect();
    for half in halves {
        x.extend([
            half,
            f32::from_bits(half.to_bits() + 1),
            f32::from_bits(half.to_bits().saturating_sub(1)),
        ]);
    }
    x.extend([
        65504.0,
        65519.9,
        65520.0,
        1e9,
        -1e9,
        1e-9,
        f32::INFINITY,
        f32::NEG_INFINITY,
    ]);
    x.extend((0..1000).map(|_| random.normal()));
    x.retain(|x| !x.is_nan());
    for isa in Isa::available() {
        for n in (1..40).chain([x.len()]) {
            let mut y = vec![f16::NAN; n];
            to_f16(isa, &x[..n], &mut y);
            for (x, y) in x.iter().zip(y) {
                assert_eq!(
                    y.to_bits(),
                    f16::from_f32(*x).to_bits(),
                    "{x} on {}",
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn top_k_descends_and_prefers_the_lower_index() {
    let mut random = Random(seed());
    for n in 1..60 {
        for k in 0..=n.min(12) {
            // Few distinct values, so that ties abound.
            let x: Vec<f32> = (0..n).map(|_| random.below(6) as f32 - 3.0).collect();
            let (mut ids, mut values) = (vec![u32::MAX; k], vec![f32::NAN; k]);
            top_k(&x, &mut ids, &mut values);
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|a, b| x[*b].total_cmp(&x[*a]).then(a.cmp(b)));
            let want: Vec<u32> = order[..k].iter().map(|i| *i as u32).collect();
            assert_eq!(ids, want, "{x:?}");
            assert!(values.iter().zip(&ids).all(|(v, i)| *v == x[*i as usize]));
        }
    }
    let (mut ids, mut values) = ([9; 3], [0.0; 3]);
    top_k(&[f32::NAN, 1.0, f32::NEG_INFINITY], &mut ids, &mut values);
    assert_eq!(ids, [1, 0, 2], "NaN counts as the lowest");
}

#[test]
fn softmax_is_the_formula() {
    let mut random = Random(seed());
    for n in lengths().skip(1) {
        for size in [1.0, 30.0, 1000.0] {
            let x: Vec<f32> = random.normals(n).iter().map(|x| x * size).collect();
            let mut y = x.clone();
            softmax(&mut y);
            let highest = x.iter().fold(f64::MIN, |m, x| m.max(f64::from(*x)));
            let total: f64 = x.iter().map(|x| (f64::from(*x) - highest).exp()).sum();
            for (x, y) in x.iter().zip(y) {
                let below = highest - f64::from(*x);
                let want = (-below).exp() / total;
                assert_close(
                    "softmax",
                    y,
                    want,
                    SOFTMAX_TOLERANCE * (1.0 + below) * want + 1e-30,
                );
            }
        }
    }
}
