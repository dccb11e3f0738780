//! What the golden tensors cannot see.

use super::{gelu, rms, softmax, top_k};

#[test]
fn the_lower_one_of_equals_comes_first() {
    assert_eq!(top_k(&[1.0, 3.0, 2.0, 3.0, 2.0], 3), [1, 3, 2]);
    assert_eq!(top_k(&[0.0; 4], 4), [0, 1, 2, 3]);
}

#[test]
fn outliers_neither_overflow_nor_vanish() {
    assert_eq!(softmax(&[1e5, 0.0]), [1.0, 0.0]);
    assert_eq!([gelu(1.3e5), gelu(-1.3e5)], [1.3e5, 0.0]);
    assert_eq!(rms(&[0.0, 0.0], None, 1e-6), [0.0, 0.0]);
}
