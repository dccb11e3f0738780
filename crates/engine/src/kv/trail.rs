//! The rows that single tokens overwrite in the rings, so that an answer can be taken back.
//!
//! One record a position, `[sliding layers][keys, values][n_kv_heads, head_dim]`, several to a block that is borrowed from the slots
//! when it is needed. It never grows beyond what it was allowed: then it gives everything up until the next prompt, since rows
//! that begin later than the prompt's end help nobody.

use std::ops::Range;

use ouzel_storage::Region;

use crate::blocks::Lender;

/// Rows of consecutive positions.
#[derive(Debug)]
pub struct Trail {
    row_bytes: usize,
    rows_a_block: usize,
    max_blocks: usize,
    blocks: Vec<Region>,
    first: usize,
    n: usize,
    is_open: bool,
}

impl Trail {
    /// An empty trail of records of `row_bytes` bytes in up to `max_blocks` blocks.
    pub fn new(row_bytes: usize, block_bytes: usize, max_blocks: usize) -> Trail {
        Trail {
            row_bytes,
            rows_a_block: block_bytes.checked_div(row_bytes).unwrap_or(0),
            max_blocks,
            blocks: Vec::with_capacity(max_blocks),
            first: 0,
            n: 0,
            is_open: true,
        }
    }

    /// The positions it has.
    pub fn positions(&self) -> Range<usize> {
        self.first..self.first + self.n
    }

    /// The record of a position that it has.
    pub fn row(&self, position: usize) -> &[u8] {
        let (block, bytes) = self.place(position - self.first);
        &self.blocks[block][bytes]
    }

    /// A record for `position`, which follows the last one; `None` where there is no room.
    pub fn push(&mut self, position: usize, blocks: &mut impl Lender) -> Option<&mut [u8]> {
        debug_assert!(self.n == 0 || position == self.first + self.n);
        if !self.has_room() {
            return None;
        }
        if self.n == self.rows_a_block * self.blocks.len() {
            self.blocks.push(blocks.lend());
        }
        if self.n == 0 {
            self.first = position;
        }
        self.n += 1;
        let (block, bytes) = self.place(self.n - 1);
        Some(&mut self.blocks[block][bytes])
    }

    /// Whether it takes another record.
    pub fn has_room(&self) -> bool {
        self.is_open && self.n < self.rows_a_block * self.max_blocks
    }

    /// Forgets the positions from `end` on.
    pub fn truncate(&mut self, end: usize) {
        self.n = self.n.min(end.saturating_sub(self.first));
    }

    /// Forgets everything and takes nothing more until it is opened.
    pub fn clear(&mut self, blocks: &mut impl Lender) {
        self.blocks
            .drain(..)
            .for_each(|block| blocks.give_back(block));
        self.n = 0;
        self.is_open = false;
    }

    /// Takes records again.
    pub fn open(&mut self) {
        self.is_open = true;
    }

    fn place(&self, nth: usize) -> (usize, Range<usize>) {
        let start = nth % self.rows_a_block * self.row_bytes;
        (nth / self.rows_a_block, start..start + self.row_bytes)
    }
}
