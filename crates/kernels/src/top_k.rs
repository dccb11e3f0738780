//! The largest few of many.

/// The `ids.len()` largest of `x`, descending, the lower index first among equals; NaN counts as smallest.
///
/// # Panics
/// If `ids` and `values` differ in length or are longer than `x`.
pub fn top_k(x: &[f32], ids: &mut [u32], values: &mut [f32]) {
    let k = ids.len();
    assert!(k == values.len() && k <= x.len(), "{k} ids and {} values of {}", values.len(), x.len());
    // Sorted insertion: k is 8 where it matters, and most elements fail against the last one at once.
    for (i, &new) in x.iter().enumerate() {
        let n = i.min(k);
        let beats = |old: f32| new > old || (old.is_nan() && !new.is_nan());
        let place = values[..n].iter().rposition(|&old| !beats(old)).map_or(0, |last| last + 1);
        if place < k {
            let end = (n + 1).min(k);
            values[place..end].rotate_right(1);
            ids[place..end].rotate_right(1);
            values[place] = new;
            ids[place] = i as u32;
        }
    }
}
