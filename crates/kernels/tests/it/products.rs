//! The exact product and the lookup.

use ouzel_kernels::{Bits, Columns, Isa, QuantMatrix, dequantize_row, matmul};

use crate::data::{Codes, Kind, Matrix, Random, assert_bits, others, seed, shapes};

/// f32 rounds each of the `n / 16` steps of a lane and a weight once: some 200 steps of 6e-8, against `sum |w x|`.
const EXACT_TOLERANCE: f64 = 1e-5;
/// A weight is rounded once, and once more by the factor.
const LOOKUP_TOLERANCE: f64 = 2e-7;

fn product(isa: Isa, w: &QuantMatrix<'_>, x: &[f32]) -> Vec<f32> {
    let n = x.len() / w.n_in;
    let mut y = vec![f32::NAN; n * w.n_out];
    matmul(isa, w, x, Columns::new(&mut y, n, w.n_out));
    y
}

#[test]
fn exact_product_has_the_oracles_values_and_one_set_of_bits() {
    let mut random = Random(seed());
    for bits in [Bits::Q4, Bits::Q8] {
        for (case, (n_out, n_in)) in shapes().into_iter().enumerate() {
            let kind = Kind::ALL[case % 4];
            let codes = if kind == Kind::Extreme {
                Codes::Largest
            } else {
                Codes::Random
            };
            let w = Matrix::random(&mut random, bits, (n_out, n_in), codes, case % 3);
            let n = 1 + case % 9;
            let x: Vec<f32> = (0..n).flat_map(|_| kind.row(&mut random, n_in)).collect();
            let what = format!("{bits:?} [{n_out}, {n_in}] x {n} rows, {kind:?}");
            let y = product(Isa::Portable, &w.view(), &x);
            for (r, x) in x.chunks(n_in).enumerate() {
                for (o, (want, size)) in w.product(x).into_iter().enumerate() {
                    let error = (f64::from(y[r * n_out + o]) - want).abs();
                    assert!(
                        error <= EXACT_TOLERANCE * size,
                        "{what}: [{r}, {o}] is off by {error} of {size}"
                    );
                }
                let alone = product(Isa::Portable, &w.view(), x);
                assert_bits(
                    &format!("{what}: row {r} alone"),
                    &alone,
                    &y[r * n_out..(r + 1) * n_out],
                );
            }
            for isa in others() {
                assert_bits(
                    &format!("{what}: {}", isa.name()),
                    &product(isa, &w.view(), &x),
                    &y,
                );
            }
        }
    }
}

#[test]
fn columns_filled_apart_hold_the_same_bits() {
    let mut random = Random(seed());
    let w = Matrix::random(&mut random, Bits::Q4, (23, 320), Codes::Random, 1);
    let x = random.normals(5 * 320);
    for isa in Isa::available() {
        let whole = product(isa, &w.view(), &x);
        for cut in 0..=23 {
            let mut y = vec![f32::NAN; 5 * 23];
            let (left, right) = Columns::new(&mut y, 5, 23).split_at(cut);
            std::thread::scope(|scope| {
                scope.spawn(|| matmul(isa, &w.view().rows(0..cut), &x, left));
                matmul(isa, &w.view().rows(cut..23), &x, right);
            });
            assert_bits(&format!("{} cut at {cut}", isa.name()), &y, &whole);
        }
    }
}

#[test]
fn lookup_dequantizes_a_row() {
    let mut random = Random(seed());
    for bits in [Bits::Q4, Bits::Q8] {
        for offset in 0..2 {
            let w = Matrix::random(&mut random, bits, (7, 448), Codes::Random, offset);
            for row in 0..7 {
                let mut y = vec![f32::NAN; 448];
                dequantize_row(Isa::Portable, &w.view(), row, 53.0, &mut y);
                for (i, y) in y.iter().enumerate() {
                    let want = 53.0 * w.weight(row, i);
                    // Code and bias may cancel, so the error is measured against the largest term.
                    let error = (f64::from(*y) - want).abs();
                    assert!(
                        error <= LOOKUP_TOLERANCE * 53.0 * 2.0,
                        "{bits:?} [{row}, {i}] is {y}, not {want}"
                    );
                }
                for isa in others() {
                    let mut other = vec![f32::NAN; 448];
                    dequantize_row(isa, &w.view(), row, 53.0, &mut other);
                    assert_bits(&format!("{bits:?} row {row} on {}", isa.name()), &other, &y);
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "length of scales")]
fn a_matrix_refuses_bytes_that_do_not_fit_its_shape() {
    QuantMatrix::new(Bits::Q4, 1, 64, &[0; 32], &[0; 3], &[0; 2]);
}

#[test]
#[should_panic(expected = "columns of y")]
fn a_product_refuses_an_output_of_another_shape() {
    let w = QuantMatrix::new(Bits::Q4, 1, 64, &[0; 32], &[0; 2], &[0; 2]);
    matmul(
        Isa::Portable,
        &w,
        &[0.0; 64],
        Columns::new(&mut [0.0; 2], 1, 2),
    );
}

#[test]
fn an_empty_product_writes_nothing() {
    for isa in Isa::available() {
        let w = QuantMatrix::new(Bits::Q4, 0, 64, &[], &[], &[]);
        matmul(isa, &w, &[1.0; 64], Columns::new(&mut [], 1, 0));
        let w = QuantMatrix::new(Bits::Q4, 1, 64, &[0; 32], &[0; 2], &[0; 2]);
        matmul(isa, &w, &[], Columns::new(&mut [], 0, 1));
    }
}
