//! A buffer of f32 rows, in memory of its own or in blocks borrowed from the arena.
//!
//! A chunk may be thousands of rows long, and the memory for it exists only because expert slots give way. Rows that are
//! taken together always lie in one block: the length of a block of rows divides that of an arena block.

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};
use ouzel_storage::Region;

use crate::blocks::Lender;

/// Rows of f32, all of one width at a time.
#[derive(Debug, Default)]
pub struct Buffer {
    /// For a few rows, while nothing is borrowed.
    own: Vec<f32>,
    borrowed: Vec<Region>,
    /// Rows in each borrowed block.
    block_rows: usize,
}

impl Buffer {
    /// `own_len` elements of its own, and room for `max_borrowed` blocks of `block_rows` rows each.
    pub fn new(own_len: usize, max_borrowed: usize, block_rows: usize) -> Buffer {
        Buffer {
            own: vec![0.0; own_len],
            borrowed: Vec::with_capacity(max_borrowed),
            block_rows,
        }
    }

    /// Borrows blocks until `n_rows` rows fit. What the rows held is lost when the first block comes.
    pub fn grow(&mut self, n_rows: usize, blocks: &mut impl Lender) {
        while self.borrowed.len() * self.block_rows < n_rows {
            self.borrowed.push(blocks.lend());
        }
    }

    /// Gives every borrowed block back.
    pub fn shrink(&mut self, blocks: &mut impl Lender) {
        self.borrowed
            .drain(..)
            .for_each(|block| blocks.give_back(block));
    }

    /// Rows `rows` of `width` elements, which lie in one block.
    pub fn rows(&self, rows: Range<usize>, width: usize) -> &[f32] {
        match self.block_of(&rows) {
            Some((block, rows)) => {
                let floats: &[f32] = cast_slice(&self.borrowed[block]);
                &floats[rows.start * width..rows.end * width]
            }
            None => &self.own[rows.start * width..rows.end * width],
        }
    }

    /// As [`Buffer::rows`], to be written.
    pub fn rows_mut(&mut self, rows: Range<usize>, width: usize) -> &mut [f32] {
        match self.block_of(&rows) {
            Some((block, rows)) => {
                let floats: &mut [f32] = cast_slice_mut(&mut self.borrowed[block]);
                &mut floats[rows.start * width..rows.end * width]
            }
            None => &mut self.own[rows.start * width..rows.end * width],
        }
    }

    /// The borrowed block of some rows, and the rows within it.
    fn block_of(&self, rows: &Range<usize>) -> Option<(usize, Range<usize>)> {
        if self.borrowed.is_empty() {
            return None;
        }
        let block = rows.start / self.block_rows;
        let first = block * self.block_rows;
        let within = rows.start - first..rows.end - first;
        assert!(within.end <= self.block_rows, "rows of two blocks");
        Some((block, within))
    }
}
