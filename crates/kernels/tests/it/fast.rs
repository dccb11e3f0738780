//! The product with int8 activations: its bits, its integers, its error.

use ouzel_kernels::{Bits, Columns, Isa, QuantMatrix, QuantRows, matmul_i8, quantize};

use crate::data::{Codes, Kind, Matrix, Random, assert_bits, others, seed, shapes};

/// Activations of +-127 quantize without error, so only f32 rounding is left, against `sum |w x|`.
const INTEGER_TOLERANCE: f64 = 1e-6;
/// Against the norm of the exact outputs, one plane. A block's step is `absmax / 127`; a gaussian block of 32 has
/// its absmax near 2.1, so the error is `2.1 / 127 / sqrt(12)` = 0.5 %.
const GAUSSIAN_TOLERANCE: f64 = 0.006;
/// An outlier drowns the other 31 elements of its block, which still are small beside the outputs it causes.
const OUTLIER_TOLERANCE: f64 = 0.001;
/// A product of heavy tails: larger steps.
const GEGLU_TOLERANCE: f64 = 0.012;
/// With a second plane for the outlier's block the other elements are as exact as without an outlier, against the outputs that they cause.
const OTHERS_TOLERANCE: f64 = GAUSSIAN_TOLERANCE;
/// Without it they are lost in that block, one of 66.
const LOST: f64 = 0.08;

fn product(isa: Isa, w: &QuantMatrix<'_>, x: &[f32], planes: usize) -> Vec<f32> {
    let n = x.len() / w.n_in;
    let mut rows = QuantRows::new(n, w.n_in, planes);
    quantize(isa, x, w.n_in, planes, &mut rows);
    let mut y = vec![f32::NAN; n * w.n_out];
    matmul_i8(isa, w, rows.all(), Columns::new(&mut y, n, w.n_out));
    y
}

#[test]
fn fast_product_has_one_set_of_bits() {
    let mut random = Random(seed());
    for bits in [Bits::Q4, Bits::Q8] {
        for (case, (n_out, n_in)) in shapes().into_iter().enumerate() {
            for planes in [1, 2] {
                let kind = Kind::ALL[case % 4];
                let codes = if case % 8 < 4 {
                    Codes::Random
                } else {
                    Codes::Largest
                };
                let w = Matrix::random(&mut random, bits, (n_out, n_in), codes, case % 3);
                let n = 1 + (case + planes) % 9;
                let x: Vec<f32> = (0..n).flat_map(|_| kind.row(&mut random, n_in)).collect();
                let what =
                    format!("{bits:?} [{n_out}, {n_in}] x {n} rows in {planes} planes, {kind:?}");
                let y = product(Isa::Portable, &w.view(), &x, planes);
                for isa in others() {
                    let other = product(isa, &w.view(), &x, planes);
                    assert_bits(&format!("{what}: {}", isa.name()), &other, &y);
                    for (r, x) in x.chunks(n_in).enumerate() {
                        let alone = product(isa, &w.view(), x, planes);
                        assert_bits(
                            &format!("{what}: row {r} alone on {}", isa.name()),
                            &alone,
                            &y[r * n_out..(r + 1) * n_out],
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn largest_codes_times_largest_activations_do_not_saturate() {
    let mut random = Random(seed());
    for bits in [Bits::Q4, Bits::Q8] {
        for codes in [Codes::Largest, Codes::Random] {
            let w = Matrix::random(&mut random, bits, (5, 1152), codes, 0);
            for _ in 0..4 {
                let x = Kind::Extreme.row(&mut random, 1152);
                for isa in Isa::available() {
                    let y = product(isa, &w.view(), &x, 1);
                    for (y, (want, size)) in y.iter().zip(w.product(&x)) {
                        let error = (f64::from(*y) - want).abs();
                        assert!(
                            error <= INTEGER_TOLERANCE * size,
                            "{bits:?} {codes:?} on {}: {y}",
                            isa.name()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn rows_cut_at_any_output_hold_the_same_bits() {
    let mut random = Random(seed());
    let w = Matrix::random(&mut random, Bits::Q4, (37, 704), Codes::Random, 1);
    let x = random.normals(6 * 704);
    for isa in Isa::available() {
        let whole = product(isa, &w.view(), &x, 2);
        let mut rows = QuantRows::new(6, 704, 2);
        quantize(isa, &x, 704, 2, &mut rows);
        for cut in 0..=37 {
            let mut y = vec![f32::NAN; 6 * 37];
            let (left, right) = Columns::new(&mut y, 6, 37).split_at(cut);
            matmul_i8(isa, &w.view().rows(0..cut), rows.all(), left);
            matmul_i8(isa, &w.view().rows(cut..37), rows.all(), right);
            assert_bits(&format!("{} cut at {cut}", isa.name()), &y, &whole);
        }
    }
}

#[test]
fn buffers_can_be_used_again_for_smaller_rows() {
    let mut random = Random(seed());
    let w = Matrix::random(&mut random, Bits::Q4, (4, 320), Codes::Random, 0);
    let x = random.normals(2 * 320);
    for isa in Isa::available() {
        let mut rows = QuantRows::new(3, 2816, 2);
        quantize(isa, &random.normals(3 * 2816), 2816, 2, &mut rows);
        quantize(isa, &x, 320, 1, &mut rows);
        let mut y = vec![f32::NAN; 8];
        matmul_i8(isa, &w.view(), rows.all(), Columns::new(&mut y, 2, 4));
        assert_bits(isa.name(), &y, &product(isa, &w.view(), &x, 1));
    }
}

/// Norm of the error over the norm of what the elements below `limit` give.
fn relative_error(random: &mut Random, kind: Kind, planes: usize, limit: f32) -> f64 {
    let w = Matrix::random(random, Bits::Q4, (256, 2112), Codes::Random, 0);
    let (mut error, mut size) = (0.0, 0.0);
    for _ in 0..4 {
        let x = kind.row(random, 2112);
        let below: Vec<f32> = x
            .iter()
            .map(|x| if x.abs() < limit { *x } else { 0.0 })
            .collect();
        let exact = w.product(&x).into_iter().zip(w.product(&below));
        for (y, ((want, _), (of_below, _))) in product(Isa::detect(), &w.view(), &x, planes)
            .iter()
            .zip(exact)
        {
            error += (f64::from(*y) - want).powi(2);
            size += of_below.powi(2);
        }
    }
    (error / size).sqrt()
}

#[test]
fn int8_error_is_within_its_bounds() {
    let mut random = Random(seed());
    for (kind, tolerance) in [
        (Kind::Gaussian, GAUSSIAN_TOLERANCE),
        (Kind::Outlier, OUTLIER_TOLERANCE),
        (Kind::GegluProduct, GEGLU_TOLERANCE),
    ] {
        for planes in [1, 2] {
            let error = relative_error(&mut random, kind, planes, f32::INFINITY);
            println!("{kind:?}, {planes} planes: {error:.2e} of the outputs' norm");
            assert!(error <= tolerance, "{kind:?}, {planes} planes: {error}");
        }
    }
}

#[test]
fn second_plane_saves_what_an_outlier_drowns() {
    const LIMIT: f32 = 1e3;
    let mut random = Random(seed());
    let [lost, saved] =
        [1, 2].map(|planes| relative_error(&mut random, Kind::Outlier, planes, LIMIT));
    println!("{lost:.2e} of the others' norm with one plane, {saved:.2e} with two");
    assert!(lost > LOST && saved <= OTHERS_TOLERANCE, "{lost}, {saved}");
}

#[test]
fn zeros_and_tiny_values_stay_finite() {
    let mut random = Random(seed());
    let w = Matrix::random(&mut random, Bits::Q4, (3, 128), Codes::Random, 0);
    for value in [0.0, -0.0, f32::from_bits(1), 1e-38, 1e-30, 3e38] {
        for isa in Isa::available() {
            let y = product(isa, &w.view(), &[value; 128], 2);
            assert!(
                y.iter().all(|y| y.is_finite() || value > 1e38),
                "{value} on {}: {y:?}",
                isa.name()
            );
            assert_bits(
                isa.name(),
                &y,
                &product(Isa::Portable, &w.view(), &[value; 128], 2),
            );
        }
    }
}
