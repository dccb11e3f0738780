//! Work split over the threads of the pool that the caller runs in.
//!
//! Only outputs are split, never a sum, so that the number of threads cannot show in a result. Everything is borrowed and
//! nothing is allocated: `join` keeps its jobs on the stack.

use std::ops::Range;

use ouzel_kernels::Columns;

/// Output rows that a part of a matrix should at least have; below that a second thread costs more than it brings.
const MIN_COLUMNS: usize = 64;

/// Calls `f(i, chunk)` for every chunk of `chunk_len` elements, over up to `n_parts` threads.
///
/// # Panics
/// If `chunk_len` is 0 or does not divide the length.
pub fn for_each_chunk<T: Send>(
    data: &mut [T],
    chunk_len: usize,
    n_parts: usize,
    f: &(impl Fn(usize, &mut [T]) + Sync),
) {
    assert!(
        data.len().is_multiple_of(chunk_len),
        "{} elements are not whole chunks of {chunk_len}",
        data.len()
    );
    split_chunks(data, chunk_len, 0, n_parts, f);
}

fn split_chunks<T: Send>(
    data: &mut [T],
    chunk_len: usize,
    first: usize,
    n_parts: usize,
    f: &(impl Fn(usize, &mut [T]) + Sync),
) {
    let n_chunks = data.len() / chunk_len;
    if n_parts <= 1 || n_chunks <= 1 {
        for (i, chunk) in data.chunks_exact_mut(chunk_len).enumerate() {
            f(first + i, chunk);
        }
        return;
    }
    let left_parts = n_parts / 2;
    let left_chunks = n_chunks * left_parts / n_parts;
    let (left, right) = data.split_at_mut(left_chunks * chunk_len);
    rayon_core::join(
        || split_chunks(left, chunk_len, first, left_parts, f),
        || {
            split_chunks(
                right,
                chunk_len,
                first + left_chunks,
                n_parts - left_parts,
                f,
            )
        },
    );
}

/// Calls `f(range, columns)` for disjoint column ranges that cover `y`, over up to `n_parts` threads.
pub fn for_each_column_range(
    y: Columns<'_>,
    n_parts: usize,
    f: &(impl Fn(Range<usize>, Columns<'_>) + Sync),
) {
    split_columns(y, 0, n_parts, f);
}

fn split_columns(
    y: Columns<'_>,
    first: usize,
    n_parts: usize,
    f: &(impl Fn(Range<usize>, Columns<'_>) + Sync),
) {
    let n = y.n_cols();
    if n_parts <= 1 || n < 2 * MIN_COLUMNS {
        f(first..first + n, y);
        return;
    }
    let left_parts = n_parts / 2;
    // Whole groups of 16 rows keep both sides in the kernels' widest tile.
    let cut = (n * left_parts / n_parts) / 16 * 16;
    let (left, right) = y.split_at(cut);
    rayon_core::join(
        || split_columns(left, first, left_parts, f),
        || split_columns(right, first + cut, n_parts - left_parts, f),
    );
}
