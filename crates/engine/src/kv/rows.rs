//! Rows out of the cache and into it: what it takes to keep a context elsewhere, and to take an answer back.
//!
//! The rows of some consecutive positions in all layers of one kind travel as `[layers][keys, values][n_kv_heads][n, head_dim]`, in
//! the elements that the cache keeps. Where a row lies in a ring is not part of it, so a context may return to another place.

use std::ops::Range;

use super::{KvCache, LayerKv, Side};
use crate::blocks::{Lender, element_bytes};
use crate::config::LayerKind;

impl KvCache {
    /// The positions before `position` whose rows are at hand in all layers of a kind.
    pub fn held(&self, kind: LayerKind, position: usize) -> Range<usize> {
        match kind {
            LayerKind::Full => 0..position,
            LayerKind::Sliding => self.oldest.min(position)..position,
        }
    }

    /// Whether a cache that stands at `position` may be rewound to `target`: what the next query sees must be at hand, and the first
    /// query of all sees nothing old.
    pub fn can_rewind(&self, position: usize, target: usize) -> bool {
        let oldest_seen = (target + 1).saturating_sub(self.window);
        target == 0 || target == position || (target < position && self.oldest <= oldest_seen)
    }

    /// Whether one token more behind `position` costs what a query at `target` sees.
    pub fn is_about_to_lose(&self, position: usize, target: usize) -> bool {
        let oldest_left = (position + 1).saturating_sub(self.window);
        let seen_from = self.seen(LayerKind::Sliding, target).start;
        (self.oldest..oldest_left).contains(&seen_from) && !self.trail.has_room()
    }

    /// Whether what a query at `position` sees is at hand.
    pub fn can_stay(&self, position: usize) -> bool {
        self.oldest <= self.seen(LayerKind::Sliding, position).start
    }

    /// The rows that a query at `position` sees behind it.
    pub fn seen(&self, kind: LayerKind, position: usize) -> Range<usize> {
        match kind {
            LayerKind::Full => 0..position,
            LayerKind::Sliding => {
                (position + 1).saturating_sub(self.window).min(position)..position
            }
        }
    }

    /// Goes back to `target`, as [`KvCache::can_rewind`] allows: what the tokens behind it had overwritten returns to the rings.
    pub fn rewind(&mut self, target: usize) {
        let trail = std::mem::replace(&mut self.trail, super::Trail::new(0, 0, 0));
        let rows = trail.positions();
        let first = rows.start.max(target.saturating_sub(self.window));
        for position in first..rows.end.min(target) {
            let row = position..position + 1;
            self.load_rows(LayerKind::Sliding, row.clone(), trail.row(position), row);
        }
        self.trail = trail;
        self.trail.truncate(target.saturating_sub(self.window));
        self.trail.open();
    }

    /// Copies the rows of `positions`, which are held, to `out`, which is as long as they are.
    pub fn save_rows(&self, kind: LayerKind, positions: Range<usize>, out: &mut [u8]) {
        let mut rest = out;
        for layer in self.layers.iter().filter(|layer| layer.shape.kind == kind) {
            let row_bytes = layer.shape.head_dim * element_bytes(self.precision);
            for (side, head) in sides_and_heads(layer) {
                let (run, more) = rest.split_at_mut(positions.len() * row_bytes);
                rest = more;
                self.save_head(layer, (side, head), positions.clone(), run);
            }
        }
        assert!(rest.is_empty(), "a buffer of other rows");
    }

    /// Copies the rows of `wanted` out of `bytes`, which has those of `positions`.
    pub fn load_rows(
        &mut self,
        kind: LayerKind,
        positions: Range<usize>,
        bytes: &[u8],
        wanted: Range<usize>,
    ) {
        assert!(
            positions.start <= wanted.start && wanted.end <= positions.end,
            "rows {wanted:?} of {positions:?}"
        );
        let mut rest = bytes;
        for l in 0..self.layers.len() {
            if self.layers[l].shape.kind != kind {
                continue;
            }
            let row_bytes = self.layers[l].shape.head_dim * element_bytes(self.precision);
            for (side, head) in sides_and_heads(&self.layers[l]) {
                let (run, more) = rest.split_at(positions.len() * row_bytes);
                rest = more;
                let from = (wanted.start - positions.start) * row_bytes;
                let run = &run[from..from + wanted.len() * row_bytes];
                self.load_head(l, (side, head), wanted.clone(), run);
            }
        }
        assert!(rest.is_empty(), "a buffer of other rows");
    }

    /// Makes room for a context of `position` tokens whose rows will be loaded: those that [`KvCache::seen`] names, and of full layers
    /// only those that are not there already.
    pub fn begin_restore(&mut self, position: usize, blocks: &mut impl Lender) {
        self.forget_trail(blocks);
        self.trail.open();
        self.grow(position, blocks);
        self.oldest = self.seen(LayerKind::Sliding, position).start;
    }

    /// Keeps the row of a position that is about to be overwritten; `false` where there is no room.
    pub(super) fn keep_row(&mut self, position: usize, blocks: &mut impl Lender) -> bool {
        let mut trail = std::mem::replace(&mut self.trail, super::Trail::new(0, 0, 0));
        let record = trail.push(position, blocks);
        let is_kept = record.is_some();
        if let Some(record) = record {
            self.save_rows(LayerKind::Sliding, position..position + 1, record);
        }
        self.trail = trail;
        is_kept
    }

    /// Gives the trail up.
    pub fn forget_trail(&mut self, blocks: &mut impl Lender) {
        let end = self.trail.positions().end;
        if !self.trail.positions().is_empty() {
            self.oldest = self.oldest.max(end);
        }
        self.trail.clear(blocks);
    }

    fn save_head(
        &self,
        layer: &LayerKv,
        (side, head): (Side, usize),
        positions: Range<usize>,
        out: &mut [u8],
    ) {
        let row_bytes = layer.shape.head_dim * element_bytes(self.precision);
        let in_trail = match layer.shape.kind {
            LayerKind::Sliding => self.trail.positions(),
            LayerKind::Full => 0..0,
        };
        let of_row = layer.row_offset + (side as usize * layer.shape.n_kv_heads + head) * row_bytes;
        let mut position = positions.start;
        while position < positions.end {
            let to = (position - positions.start) * row_bytes;
            if in_trail.contains(&position) {
                let row = &self.trail.row(position)[of_row..of_row + row_bytes];
                out[to..to + row_bytes].copy_from_slice(row);
                position += 1;
                continue;
            }
            let (row, n) = layer.run(position, positions.end);
            let (block, bytes) = self.place(layer, side, head, row, n);
            out[to..to + n * row_bytes].copy_from_slice(&self.blocks[block][bytes]);
            position += n;
        }
    }

    fn load_head(
        &mut self,
        l: usize,
        (side, head): (Side, usize),
        positions: Range<usize>,
        rows: &[u8],
    ) {
        let row_bytes = self.layers[l].shape.head_dim * element_bytes(self.precision);
        let mut position = positions.start;
        while position < positions.end {
            let (row, n) = self.layers[l].run(position, positions.end);
            let (block, bytes) = self.place(&self.layers[l], side, head, row, n);
            let from = (position - positions.start) * row_bytes;
            self.blocks[block][bytes].copy_from_slice(&rows[from..from + n * row_bytes]);
            position += n;
        }
    }
}

impl LayerKv {
    /// The row of a position, and how many up to `end` follow it in the same page.
    pub(super) fn run(&self, position: usize, end: usize) -> (usize, usize) {
        let row = position % self.capacity;
        let to_page_end = self.page_rows - row % self.page_rows;
        let n = to_page_end.min(self.capacity - row).min(end - position);
        (row, n)
    }
}

fn sides_and_heads(layer: &LayerKv) -> impl Iterator<Item = (Side, usize)> + use<> {
    let heads = 0..layer.shape.n_kv_heads;
    [Side::Keys, Side::Values]
        .into_iter()
        .flat_map(move |side| heads.clone().map(move |head| (side, head)))
}
