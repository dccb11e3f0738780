//! Keys and values of the tokens so far.
//!
//! A sliding layer keeps exactly its window in a ring, a full layer every position. Both lie in pages, several to a block of the
//! arena, which the cache takes as the context grows and gives back when it is cleared. The block of tokens under way waits in one
//! staging buffer that all layers share: its queries must still see the rows that its own keys will overwrite, so they
//! enter the cache after attention. Where a key lies never shows in a result: attention is told absolute positions.
//!
//! A ring forgets: the cache knows the oldest position of which every sliding layer still has the row, and can rewind as far as that
//! allows. What single tokens overwrite may be kept in a [`Trail`], so that an answer can be taken back.

mod rows;
mod trail;

use std::ops::Range;

use bytemuck::{cast_slice, cast_slice_mut};
use half::f16;
use ouzel_kernels::{Isa, KEY_BLOCK, KvRows, KvSegment};
use ouzel_storage::Region;

use crate::blocks::{BlockShape, Lender, element_bytes, kv_row_bytes};
use crate::budget::SPAN;
use crate::config::{Config, LayerKind, LayerShape};
use crate::{LayerId, Precision};

use trail::Trail;

/// A span of positions lies in at most so many pieces: its pages, one more at each end and where the ring closes, and the staged rows.
const MAX_SEGMENTS: usize = SPAN / KEY_BLOCK + 4;

/// The bytes of one layer's cache as a list of pages.
#[derive(Debug)]
struct LayerKv {
    shape: LayerShape,
    /// Rows that the layer keeps.
    capacity: usize,
    /// Where the layer's bytes begin among those of one position in all layers of its kind.
    row_offset: usize,
    /// Rows of a page, which is `[2, n_kv_heads, page_rows, head_dim]`: keys, then values.
    page_rows: usize,
    /// Pages in order of position.
    pages: Vec<u32>,
}

/// The keys and values of one session.
#[derive(Debug)]
pub struct KvCache {
    precision: Precision,
    blocks_shape: BlockShape,
    layers: Vec<LayerKv>,
    /// Page p is the `p % pages`-th of block `p / pages`.
    blocks: Vec<Region>,
    n_pages: usize,
    window: usize,
    /// The oldest position of which ring or trail has the row in every sliding layer.
    oldest: usize,
    trail: Trail,
    /// The block of tokens under way, keys and values, each `[n_kv_heads, n, head_dim]`.
    staged: [Vec<f32>; 2],
}

/// Keys, or values: their place in a page and among the staged rows.
#[derive(Clone, Copy)]
enum Side {
    Keys = 0,
    Values = 1,
}

/// Pieces that together hold a run of positions.
#[derive(Debug)]
pub struct Segments<'a> {
    pieces: [KvSegment<'a>; MAX_SEGMENTS],
    n: usize,
}

impl<'a> Segments<'a> {
    fn empty() -> Segments<'a> {
        let none = KvSegment {
            first_position: 0,
            keys: KvRows::F32(&[]),
            values: KvRows::F32(&[]),
        };
        Segments {
            pieces: [none; MAX_SEGMENTS],
            n: 0,
        }
    }

    fn push(&mut self, piece: KvSegment<'a>) {
        self.pieces[self.n] = piece;
        self.n += 1;
    }

    /// The pieces, ascending and without gaps.
    pub fn as_slice(&self) -> &[KvSegment<'a>] {
        &self.pieces[..self.n]
    }
}

/// A block of tokens at work: where it starts and how many rows of it are staged.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    /// Absolute position of the first staged row.
    pub position: usize,
    /// Staged rows.
    pub n: usize,
}

impl KvCache {
    /// A cache for contexts of up to `context` tokens, whose trail may take `trail_blocks` blocks. It holds no block yet.
    pub fn new(
        config: &Config,
        precision: Precision,
        context: usize,
        blocks: BlockShape,
        trail_blocks: usize,
    ) -> KvCache {
        let mut layers: Vec<LayerKv> = Vec::with_capacity(config.n_layers());
        for l in config.layer_ids() {
            let shape = config.layer(l);
            let before = layers.iter().filter(|other| other.shape.kind == shape.kind);
            layers.push(LayerKv {
                shape,
                capacity: config.kv_rows(l, context),
                row_offset: before
                    .map(|other| kv_row_bytes(&other.shape, precision))
                    .sum(),
                page_rows: blocks.page_rows(&shape, precision),
                pages: Vec::with_capacity(blocks.layer_pages(config, l, precision, context)),
            });
        }
        let row_bytes = row_bytes(config, precision, LayerKind::Sliding);
        let staged = blocks.block_rows * max_kv_width(config) * element_bytes(precision) / 4;
        KvCache {
            precision,
            blocks_shape: blocks,
            layers,
            blocks: Vec::with_capacity(blocks.kv_blocks(config, precision, context)),
            n_pages: 0,
            window: config.sliding_window,
            oldest: 0,
            trail: Trail::new(row_bytes, blocks.bytes, trail_blocks),
            staged: [vec![0.0; staged], vec![0.0; staged]],
        }
    }

    /// Bytes of the staging buffers.
    pub fn staging_bytes(config: &Config, precision: Precision, block_rows: usize) -> u64 {
        (2 * block_rows * max_kv_width(config) * element_bytes(precision)) as u64
    }

    /// Makes room for `n` tokens more behind `position`, and keeps or forgets the rows that they will overwrite.
    pub fn reserve(&mut self, position: usize, n: usize, blocks: &mut impl Lender) {
        let oldest_left = (position + n).saturating_sub(self.window);
        if n > 1 {
            // A prompt needs the blocks itself, and begins what may be taken back later.
            self.forget_trail(blocks);
            self.oldest = self.oldest.max(oldest_left);
            self.trail.open();
        } else if oldest_left > self.oldest && !self.keep_row(oldest_left - 1, blocks) {
            self.forget_trail(blocks);
            self.oldest = oldest_left;
        }
        self.grow(position + n, blocks);
    }

    /// Makes room for a context of `n_tokens`.
    fn grow(&mut self, n_tokens: usize, blocks: &mut impl Lender) {
        for layer in &mut self.layers {
            let n_pages = n_tokens.min(layer.capacity).div_ceil(layer.page_rows);
            while layer.pages.len() < n_pages {
                if self.n_pages == self.blocks.len() * self.blocks_shape.pages {
                    self.blocks.push(blocks.lend());
                }
                layer.pages.push(self.n_pages as u32);
                self.n_pages += 1;
            }
        }
    }

    /// Forgets every token and gives every block back.
    pub fn clear(&mut self, blocks: &mut impl Lender) {
        self.layers.iter_mut().for_each(|layer| layer.pages.clear());
        self.n_pages = 0;
        self.oldest = 0;
        self.trail.clear(blocks);
        self.trail.open();
        self.blocks
            .drain(..)
            .for_each(|block| blocks.give_back(block));
    }

    /// Puts a block's keys and values, `[n, n_kv_heads, head_dim]`, into the staging buffer.
    pub fn stage(&mut self, isa: Isa, l: LayerId, n: usize, keys: &[f32], values: &[f32]) {
        let shape = self.layers[l.index()].shape;
        let (heads, d) = (shape.n_kv_heads, shape.head_dim);
        for (staged, rows) in self.staged.iter_mut().zip([keys, values]) {
            for row in 0..n {
                for head in 0..heads {
                    let from = (row * heads + head) * d;
                    let to = (head * n + row) * d;
                    store(
                        self.precision,
                        isa,
                        cast_slice_mut(staged),
                        to,
                        &rows[from..from + d],
                    );
                }
            }
        }
    }

    /// The rows of one kv head at the absolute positions `visible`, which the cache and the staged block must hold.
    pub fn segments(
        &self,
        l: LayerId,
        head: usize,
        staged: Staged,
        visible: Range<usize>,
    ) -> Segments<'_> {
        let layer = &self.layers[l.index()];
        let mut segments = Segments::empty();
        let mut position = visible.start;
        let cached_end = visible.end.min(staged.position);
        while position < cached_end {
            let (row, n) = layer.run(position, cached_end);
            let rows = |side| {
                let (block, bytes) = self.place(layer, side, head, row, n);
                self.rows(&self.blocks[block], bytes)
            };
            segments.push(KvSegment {
                first_position: position,
                keys: rows(Side::Keys),
                values: rows(Side::Values),
            });
            position += n;
        }
        if position < visible.end {
            let first = head * staged.n + position - staged.position;
            let row_bytes = layer.shape.head_dim * element_bytes(self.precision);
            let bytes = first * row_bytes..(first + visible.end - position) * row_bytes;
            segments.push(KvSegment {
                first_position: position,
                keys: self.rows(self.staged(Side::Keys), bytes.clone()),
                values: self.rows(self.staged(Side::Values), bytes),
            });
        }
        segments
    }

    /// Moves the staged block into the cache; of a block longer than the ring only the last rows stay.
    pub fn commit(&mut self, l: LayerId, staged: Staged) {
        let layer = &self.layers[l.index()];
        let row_bytes = layer.shape.head_dim * element_bytes(self.precision);
        let skipped = staged.n.saturating_sub(layer.capacity);
        for side in [Side::Keys, Side::Values] {
            for head in 0..layer.shape.n_kv_heads {
                for row in skipped..staged.n {
                    let from = (head * staged.n + row) * row_bytes;
                    let to_row = (staged.position + row) % layer.capacity;
                    let (block, to) = self.place(layer, side, head, to_row, 1);
                    let staged: &[u8] = cast_slice(&self.staged[side as usize]);
                    self.blocks[block][to].copy_from_slice(&staged[from..from + row_bytes]);
                }
            }
        }
    }

    /// Where `n` rows from `row` on, in one page, lie: block and bytes.
    fn place(
        &self,
        layer: &LayerKv,
        side: Side,
        head: usize,
        row: usize,
        n: usize,
    ) -> (usize, Range<usize>) {
        let page = layer.pages[row / layer.page_rows] as usize;
        let row_bytes = layer.shape.head_dim * element_bytes(self.precision);
        let first = (side as usize * layer.shape.n_kv_heads + head) * layer.page_rows
            + row % layer.page_rows;
        let shape = &self.blocks_shape;
        let start = page % shape.pages * shape.page_bytes + first * row_bytes;
        (page / shape.pages, start..start + n * row_bytes)
    }

    fn staged(&self, side: Side) -> &[u8] {
        cast_slice(&self.staged[side as usize])
    }

    fn rows<'a>(&self, bytes: &'a [u8], range: Range<usize>) -> KvRows<'a> {
        match self.precision {
            Precision::Exact => KvRows::F32(cast_slice(&bytes[range])),
            Precision::Fast => KvRows::F16(cast_slice(&bytes[range])),
        }
    }
}

/// Writes `values` as elements `start..` of `bytes`.
fn store(precision: Precision, isa: Isa, bytes: &mut [u8], start: usize, values: &[f32]) {
    let size = element_bytes(precision);
    let bytes = &mut bytes[start * size..(start + values.len()) * size];
    match precision {
        Precision::Exact => cast_slice_mut::<u8, f32>(bytes).copy_from_slice(values),
        Precision::Fast => ouzel_kernels::to_f16(isa, values, cast_slice_mut::<u8, f16>(bytes)),
    }
}

/// The positions that the query at `position` sees.
pub fn visible(shape: &LayerShape, window: usize, position: usize) -> Range<usize> {
    match shape.kind {
        LayerKind::Sliding => (position + 1).saturating_sub(window)..position + 1,
        LayerKind::Full => 0..position + 1,
    }
}

/// Bytes of one position in all layers of a kind.
pub fn row_bytes(config: &Config, precision: Precision, kind: LayerKind) -> usize {
    let of_kind = config.layers.iter().filter(|shape| shape.kind == kind);
    of_kind.map(|shape| kv_row_bytes(shape, precision)).sum()
}

fn max_kv_width(config: &Config) -> usize {
    config
        .layers
        .iter()
        .map(LayerShape::kv_width)
        .max()
        .unwrap_or(0)
}
