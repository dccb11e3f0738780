//! The oracle against the golden tensors of the reference implementation.

mod demo;
mod golden;
mod tiny;

use std::path::{Path, PathBuf};

/// A path of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// The largest difference; panics by the stage's name above `tolerance`.
fn check(
    stage: &str,
    actual: impl IntoIterator<Item = f64>,
    expected: &[f32],
    tolerance: f64,
) -> f64 {
    let actual: Vec<f64> = actual.into_iter().collect();
    assert_eq!(actual.len(), expected.len(), "{stage}");
    let pairs = actual.iter().zip(expected);
    let differences = pairs.map(|(actual, expected)| (actual - f64::from(*expected)).abs());
    let (mut worst, mut at) = (0.0, 0);
    for (i, difference) in differences.enumerate() {
        assert!(
            difference.is_finite(),
            "{stage}: element {i} is {}",
            actual[i]
        );
        if difference > worst {
            (worst, at) = (difference, i);
        }
    }
    assert!(
        worst <= tolerance,
        "{stage}: element {at} is {}, the golden has {}: off by {worst:.1e}, allowed {tolerance:.0e}",
        actual[at],
        expected[at]
    );
    worst
}
