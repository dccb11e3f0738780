//! A row-major output that several workers fill at once, each in columns of its own.
//!
//! Columns of a row-major matrix interleave in memory, so `split_at_mut` cannot hand them out. `Columns` keeps a raw pointer
//! and lends one row's piece at a time; splitting consumes it, so no two values ever cover the same element.

use std::marker::PhantomData;

/// A range of columns of a row-major `[n_rows, n_out]` f32 matrix, exclusively borrowed.
#[derive(Debug)]
pub struct Columns<'a> {
    /// Element `[0, first column]`.
    start: *mut f32,
    n_rows: usize,
    /// Distance of rows.
    stride: usize,
    n_cols: usize,
    borrowed: PhantomData<&'a mut [f32]>,
}

// SAFETY: a shared `Columns` gives no access to elements except through `part`, whose callers promise disjoint ranges.
unsafe impl Sync for Columns<'_> {}
// SAFETY: it is the only access to its elements, as a `&mut [f32]` is (`split_at` hands out disjoint columns), and f32 is Send.
unsafe impl Send for Columns<'_> {}

impl<'a> Columns<'a> {
    /// All columns of `y`, `[n_rows, n_out]`.
    ///
    /// # Panics
    /// If the length is not `n_rows * n_out`.
    pub fn new(y: &'a mut [f32], n_rows: usize, n_out: usize) -> Columns<'a> {
        assert_eq!(
            Some(y.len()),
            n_rows.checked_mul(n_out),
            "y is not [{n_rows}, {n_out}]"
        );
        Columns {
            start: y.as_mut_ptr(),
            n_rows,
            stride: n_out,
            n_cols: n_out,
            borrowed: PhantomData,
        }
    }

    /// Number of rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Number of columns.
    pub fn n_cols(&self) -> usize {
        self.n_cols
    }

    /// The columns before `col`, and the rest.
    ///
    /// # Panics
    /// If `col` is beyond the last column.
    pub fn split_at(self, col: usize) -> (Columns<'a>, Columns<'a>) {
        assert!(col <= self.n_cols, "column {col} of {}", self.n_cols);
        let right = Columns {
            // An empty matrix has no element to point at, so the pointer may leave it and is never read.
            start: self.start.wrapping_add(col),
            n_cols: self.n_cols - col,
            ..self
        };
        let left = Columns {
            n_cols: col,
            ..self
        };
        (left, right)
    }

    /// The columns of `range`, without giving up the others.
    ///
    /// # Safety
    /// While the part lives, no other part that overlaps `range` may, and `self` may not be used otherwise.
    pub(crate) unsafe fn part(&self, range: std::ops::Range<usize>) -> Columns<'_> {
        assert!(range.start <= range.end && range.end <= self.n_cols);
        Columns {
            start: self.start.wrapping_add(range.start),
            n_cols: range.len(),
            ..*self
        }
    }

    /// This range's piece of row `r`.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row_mut(&mut self, r: usize) -> &mut [f32] {
        assert!(r < self.n_rows, "row {r} of {}", self.n_rows);
        // SAFETY: `new` checked that rows `0..n_rows` of `stride` elements lie in the borrowed slice, `split_at` that the columns
        // lie in a row, and above `r` is a row; so the piece is in bounds. No other `Columns` covers it (`split_at` consumes), and
        // the `&mut self` borrow keeps two pieces of this one from living at once.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(r * self.stride), self.n_cols) }
    }
}
