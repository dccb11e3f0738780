//! Keys and values of the tokens so far.
//!
//! A sliding layer keeps exactly its window in a ring, a full layer every position. The block under way waits in one staging
//! buffer that all layers share: its queries must still see the rows that its own keys will overwrite, so they enter
//! the cache after attention. Where a key lies never shows in a result: attention is told absolute positions.

use std::ops::Range;

use half::f16;
use ouzel_kernels::{Isa, KvRows, KvSegment};

use crate::config::{Config, LayerKind, LayerShape};
use crate::{LayerId, Precision};

/// A run of positions lies in at most three pieces: two of the ring, one of the staging buffer.
const MAX_SEGMENTS: usize = 3;

/// Rows of one precision.
#[derive(Debug)]
enum Store {
    F32(Vec<f32>),
    F16(Vec<f16>),
}

impl Store {
    fn new(precision: Precision, len: usize) -> Store {
        match precision {
            Precision::Exact => Store::F32(vec![0.0; len]),
            Precision::Fast => Store::F16(vec![f16::ZERO; len]),
        }
    }

    fn rows(&self, range: Range<usize>) -> KvRows<'_> {
        match self {
            Store::F32(values) => KvRows::F32(&values[range]),
            Store::F16(values) => KvRows::F16(&values[range]),
        }
    }

    fn write(&mut self, isa: Isa, start: usize, values: &[f32]) {
        match self {
            Store::F32(store) => store[start..start + values.len()].copy_from_slice(values),
            Store::F16(store) => {
                ouzel_kernels::to_f16(isa, values, &mut store[start..start + values.len()])
            }
        }
    }

    fn copy_from(&mut self, start: usize, other: &Store, range: Range<usize>) {
        match (self, other) {
            (Store::F32(to), Store::F32(from)) => {
                to[start..start + range.len()].copy_from_slice(&from[range])
            }
            (Store::F16(to), Store::F16(from)) => {
                to[start..start + range.len()].copy_from_slice(&from[range])
            }
            _ => unreachable!("a cache and its staging buffer have one precision"),
        }
    }
}

#[derive(Debug)]
struct LayerKv {
    shape: LayerShape,
    /// Rows that the layer keeps.
    capacity: usize,
    /// `[n_kv_heads, capacity, head_dim]`.
    keys: Store,
    /// `[n_kv_heads, capacity, head_dim]`.
    values: Store,
}

/// The keys and values of one session.
#[derive(Debug)]
pub struct KvCache {
    layers: Vec<LayerKv>,
    /// The block under way, `[n_kv_heads, n, head_dim]`.
    staged_keys: Store,
    staged_values: Store,
}

/// Up to three pieces that together hold a run of positions.
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
    /// A cache for contexts of `context` tokens and blocks of `block_rows`.
    pub fn new(
        config: &Config,
        precision: Precision,
        context: usize,
        block_rows: usize,
    ) -> KvCache {
        let layers = config
            .layer_ids()
            .map(|l| {
                let shape = config.layer(l);
                let capacity = config.kv_rows(l, context);
                let len = capacity * shape.kv_width();
                LayerKv {
                    shape,
                    capacity,
                    keys: Store::new(precision, len),
                    values: Store::new(precision, len),
                }
            })
            .collect();
        let staged = block_rows * max_kv_width(config);
        KvCache {
            layers,
            staged_keys: Store::new(precision, staged),
            staged_values: Store::new(precision, staged),
        }
    }

    /// Bytes of a cache made with the same arguments.
    pub fn bytes(config: &Config, precision: Precision, context: usize) -> u64 {
        config
            .layer_ids()
            .map(|l| 2 * config.kv_rows(l, context) as u64 * config.layer(l).kv_width() as u64)
            .sum::<u64>()
            * element_bytes(precision)
    }

    /// Bytes of the staging buffers.
    pub fn staging_bytes(config: &Config, precision: Precision, block_rows: usize) -> u64 {
        2 * block_rows as u64 * max_kv_width(config) as u64 * element_bytes(precision)
    }

    /// Puts a block's keys and values, `[n, n_kv_heads, head_dim]`, into the staging buffer.
    pub fn stage(&mut self, isa: Isa, l: LayerId, n: usize, keys: &[f32], values: &[f32]) {
        let shape = self.layers[l.index()].shape;
        let (heads, d) = (shape.n_kv_heads, shape.head_dim);
        for row in 0..n {
            for head in 0..heads {
                let from = (row * heads + head) * d;
                let to = (head * n + row) * d;
                self.staged_keys.write(isa, to, &keys[from..from + d]);
                self.staged_values.write(isa, to, &values[from..from + d]);
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
        let d = layer.shape.head_dim;
        let mut segments = Segments::empty();
        let mut position = visible.start;
        let cached_end = visible.end.min(staged.position);
        while position < cached_end {
            let row = position % layer.capacity;
            let n = (cached_end - position).min(layer.capacity - row);
            let start = (head * layer.capacity + row) * d;
            segments.push(KvSegment {
                first_position: position,
                keys: layer.keys.rows(start..start + n * d),
                values: layer.values.rows(start..start + n * d),
            });
            position += n;
        }
        if position < visible.end {
            let row = position - staged.position;
            let start = (head * staged.n + row) * d;
            let end = start + (visible.end - position) * d;
            segments.push(KvSegment {
                first_position: position,
                keys: self.staged_keys.rows(start..end),
                values: self.staged_values.rows(start..end),
            });
        }
        segments
    }

    /// Moves the staged block into the cache; of a block longer than the ring only the last rows stay.
    pub fn commit(&mut self, l: LayerId, staged: Staged) {
        let layer = &mut self.layers[l.index()];
        let d = layer.shape.head_dim;
        let skipped = staged.n.saturating_sub(layer.capacity);
        for head in 0..layer.shape.n_kv_heads {
            for row in skipped..staged.n {
                let from = (head * staged.n + row) * d;
                let to = (head * layer.capacity + (staged.position + row) % layer.capacity) * d;
                layer.keys.copy_from(to, &self.staged_keys, from..from + d);
                layer
                    .values
                    .copy_from(to, &self.staged_values, from..from + d);
            }
        }
    }
}

/// The positions that the query at `position` sees.
pub fn visible(shape: &LayerShape, window: usize, position: usize) -> Range<usize> {
    match shape.kind {
        LayerKind::Sliding => (position + 1).saturating_sub(window)..position + 1,
        LayerKind::Full => 0..position + 1,
    }
}

/// Whether a cache that stands at `position` may be rewound to `target`: the ring must still hold what the next query sees,
/// and the first query of all sees nothing old.
pub fn can_rewind(window: usize, position: usize, target: usize) -> bool {
    let oldest_held = position.saturating_sub(window);
    let oldest_seen = (target + 1).saturating_sub(window);
    target == 0 || target == position || (target < position && oldest_held <= oldest_seen)
}

fn max_kv_width(config: &Config) -> usize {
    config
        .layers
        .iter()
        .map(LayerShape::kv_width)
        .max()
        .unwrap_or(0)
}

fn element_bytes(precision: Precision) -> u64 {
    match precision {
        Precision::Exact => 4,
        Precision::Fast => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::can_rewind;

    #[test]
    fn a_ring_rewinds_only_as_far_as_it_holds_the_rows() {
        // (window, position, target, may)
        for (window, position, target, may) in [
            (8, 5, 0, true),
            (8, 8, 0, true),
            (8, 8, 3, true),
            (8, 9, 8, true),
            (8, 9, 7, false),
            (8, 9, 9, true),
            (8, 100, 99, true),
            (8, 100, 98, false),
            (8, 5, 6, false),
            (8, 100, 0, true),
            (1, 100, 99, true),
        ] {
            assert_eq!(
                can_rewind(window, position, target),
                may,
                "window {window}, {position} -> {target}"
            );
        }
    }
}
