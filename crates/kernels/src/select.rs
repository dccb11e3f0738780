//! Choosing the largest of few: top-k, and the softmax over what it chose.

use crate::lanes::{LANES, add, for_each_piece, largest, map, max, sum, update};
use crate::math::exp1;

/// The `ids.len()` largest elements of `x`, descending; the lower index first where they are equal. NaN counts as the lowest.
///
/// # Panics
/// If `ids` and `values` differ in length or ask for more than `x` has.
pub fn top_k(x: &[f32], ids: &mut [u32], values: &mut [f32]) {
    assert_eq!(ids.len(), values.len(), "length of values");
    assert!(
        ids.len() <= x.len(),
        "{} of {} elements",
        ids.len(),
        x.len()
    );
    let mut n = 0;
    for (id, &value) in x.iter().enumerate() {
        let value = if value.is_nan() {
            f32::NEG_INFINITY
        } else {
            value
        };
        if n == ids.len() && (n == 0 || value <= values[n - 1]) {
            continue;
        }
        // What equals the newcomer came earlier, has the lower index, and stays in front.
        let place = values[..n].partition_point(|v| *v >= value);
        n = (n + 1).min(ids.len());
        values.copy_within(place..n - 1, place + 1);
        ids.copy_within(place..n - 1, place + 1);
        values[place] = value;
        ids[place] = id as u32;
    }
}

/// `x_i = e^(x_i - max) / sum`.
pub fn softmax(x: &mut [f32]) {
    let mut highest = [f32::NEG_INFINITY; LANES];
    for_each_piece(x, f32::NEG_INFINITY, |_, x| highest = max(x, highest));
    let highest = largest(highest);
    for v in x.iter_mut() {
        *v = exp1(*v - highest);
    }
    let mut total = [0.0; LANES];
    for_each_piece(x, 0.0, |_, x| total = add(total, x));
    let total = sum(total);
    update(x, |_, x| map(x, |v| v / total));
}
