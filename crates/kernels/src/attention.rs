//! Attention of the query heads that share a kv head, over blocks of keys.
//!
//! Keys are taken in blocks of [`KEY_BLOCK`] that start at absolute positions, however they are cut into segments. A block computes its own
//! maximum `m`, sum `s` of `e^(score - m)` and weighted values `a`, and is merged into the running partial in ascending order:
//! `m' = max(m, m_b)`, `s' = s e^(m - m') + s_b e^(m_b - m')`, likewise `a'`. Spans of positions computed apart and
//! merged by [`merge_partials`] follow the same rule.

use std::ops::Range;

use half::f16;

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{F, LANES, add, fma, largest, map, max, mul, sum};
use crate::math::{exp, exp1};

/// Keys of a block.
pub const KEY_BLOCK: usize = 64;
/// Query heads that share one pass over a block.
const TILE_HEADS: usize = 4;

/// Rows of keys or values, `[n, head_dim]`, contiguous.
#[derive(Clone, Copy, Debug)]
pub enum KvRows<'a> {
    /// As computed.
    F32(&'a [f32]),
    /// Rounded to f16; widened exactly.
    F16(&'a [f16]),
}

impl KvRows<'_> {
    fn len(&self) -> usize {
        match self {
            KvRows::F32(rows) => rows.len(),
            KvRows::F16(rows) => rows.len(),
        }
    }
}

/// Keys and values of consecutive positions.
#[derive(Clone, Copy, Debug)]
pub struct KvSegment<'a> {
    /// Absolute position of the first row.
    pub first_position: usize,
    /// `[n, head_dim]`.
    pub keys: KvRows<'a>,
    /// `[n, head_dim]`, the type of the keys.
    pub values: KvRows<'a>,
}

/// Arguments of [`attend`].
#[derive(Clone, Debug)]
pub struct Attend<'a> {
    /// `[g, head_dim]`: the query heads of one kv head.
    pub q: &'a [f32],
    /// A multiple of 16.
    pub head_dim: usize,
    /// Ascending, without gaps over `visible`; rows outside it are not read.
    pub segments: &'a [KvSegment<'a>],
    /// Absolute positions that the query sees.
    pub visible: Range<usize>,
}

/// f32 values of a partial of `g` heads of dimension `d`: maxima `[g]`, sums `[g]`, weighted values `[g, d]`.
pub const fn partial_len(g: usize, d: usize) -> usize {
    g * (d + 2)
}

/// The softmax partial of a query over `visible`. Scores are plain dot products. How the keys are cut into segments does not
/// change a bit.
///
/// # Panics
/// If `visible` is empty or not covered, shapes differ, `head_dim` is not a multiple of 16, or keys and values differ in type.
pub fn attend(isa: Isa, op: &Attend<'_>, partial: &mut [f32]) {
    let d = op.head_dim;
    assert!(
        d > 0 && d.is_multiple_of(LANES),
        "head_dim {d} is not a multiple of {LANES}"
    );
    assert!(
        op.q.len().is_multiple_of(d),
        "{} elements of q are not heads of {d}",
        op.q.len()
    );
    assert_eq!(
        partial.len(),
        partial_len(op.q.len() / d, d),
        "length of the partial"
    );
    check_segments(op);
    match op.segments[0].keys {
        KvRows::F32(_) => isa.run(AttendRows::<f32> {
            op,
            partial,
            rows: f32_rows,
        }),
        KvRows::F16(_) => isa.run(AttendRows::<f16> {
            op,
            partial,
            rows: f16_rows,
        }),
    }
}

fn check_segments(op: &Attend<'_>) {
    assert!(!op.visible.is_empty(), "no visible position");
    let mut next = op.visible.start;
    for segment in op.segments {
        assert_eq!(
            segment.keys.len(),
            segment.values.len(),
            "keys and values differ in length"
        );
        let rows = segment.keys.len() / op.head_dim;
        assert_eq!(
            segment.keys.len(),
            rows * op.head_dim,
            "keys are not rows of {}",
            op.head_dim
        );
        assert!(
            segment.first_position <= next,
            "a gap before position {}",
            segment.first_position
        );
        next = next.max(segment.first_position + rows);
    }
    assert!(
        next >= op.visible.end,
        "visible up to {}, keys up to {next}",
        op.visible.end
    );
}

/// A type of keys and values.
trait Element: Copy {
    fn widen<L: Lanes>(lanes: L, x: &[Self; LANES]) -> F;
}

impl Element for f32 {
    #[inline(always)]
    fn widen<L: Lanes>(_: L, x: &[f32; LANES]) -> F {
        *x
    }
}

impl Element for f16 {
    #[inline(always)]
    fn widen<L: Lanes>(lanes: L, x: &[f16; LANES]) -> F {
        lanes.widen(x)
    }
}

fn f32_rows<'a>(rows: KvRows<'a>) -> &'a [f32] {
    match rows {
        KvRows::F32(rows) => rows,
        KvRows::F16(_) => panic!("keys and values are of different types"),
    }
}

fn f16_rows<'a>(rows: KvRows<'a>) -> &'a [f16] {
    match rows {
        KvRows::F16(rows) => rows,
        KvRows::F32(_) => panic!("keys and values are of different types"),
    }
}

struct AttendRows<'a, T> {
    op: &'a Attend<'a>,
    partial: &'a mut [f32],
    rows: for<'r> fn(KvRows<'r>) -> &'r [T],
}

/// A tile of query heads at work.
struct Tile<'a, const HEADS: usize> {
    d: usize,
    q: [&'a [f32]; HEADS],
    maxima: &'a mut [f32],
    sums: &'a mut [f32],
    /// `[HEADS, d]`.
    values: &'a mut [f32],
}

impl<T: Element> Op for AttendRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let AttendRows { op, partial, rows } = self;
        let d = op.head_dim;
        let g = op.q.len() / d;
        let (maxima, rest) = partial.split_at_mut(g);
        let (sums, values) = rest.split_at_mut(g);
        maxima.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        values.fill(0.0);
        let mut block = op.visible.start / KEY_BLOCK * KEY_BLOCK;
        while block < op.visible.end {
            let seen = op.visible.start.max(block)..op.visible.end.min(block + KEY_BLOCK);
            let mut h = 0;
            while h < g {
                let n = if g - h >= TILE_HEADS { TILE_HEADS } else { 1 };
                let (maxima, sums) = (&mut maxima[h..h + n], &mut sums[h..h + n]);
                let values = &mut values[h * d..(h + n) * d];
                if n == TILE_HEADS {
                    let q = std::array::from_fn(|i| &op.q[(h + i) * d..(h + i + 1) * d]);
                    let tile = Tile::<TILE_HEADS> {
                        d,
                        q,
                        maxima,
                        sums,
                        values,
                    };
                    attend_block(lanes, op.segments, rows, block, seen.clone(), tile);
                } else {
                    let q = [&op.q[h * d..(h + 1) * d]];
                    let tile = Tile::<1> {
                        d,
                        q,
                        maxima,
                        sums,
                        values,
                    };
                    attend_block(lanes, op.segments, rows, block, seen.clone(), tile);
                }
                h += n;
            }
            block += KEY_BLOCK;
        }
    }
}

/// Merges the block of keys that starts at `block` into the partial of a tile; `seen` are its visible positions.
#[inline(always)]
fn attend_block<L: Lanes, T: Element, const HEADS: usize>(
    lanes: L,
    segments: &[KvSegment<'_>],
    rows: for<'r> fn(KvRows<'r>) -> &'r [T],
    block: usize,
    seen: Range<usize>,
    tile: Tile<'_, HEADS>,
) {
    let mut weights = [[f32::NEG_INFINITY; KEY_BLOCK]; HEADS];
    for_each_run(segments, seen.clone(), tile.d, |range, first| {
        let keys = &rows(segments[range.0].keys)[range.1];
        score(lanes, keys, &tile.q, first - block, &mut weights);
    });
    let mut factors = [(0.0, 0.0); HEADS];
    for (h, weights) in weights.iter_mut().enumerate() {
        factors[h] = weigh(weights, &mut tile.maxima[h], &mut tile.sums[h]);
    }
    for c in 0..tile.d / LANES {
        let mut acc = [[0.0; LANES]; HEADS];
        for_each_run(segments, seen.clone(), tile.d, |range, first| {
            let values = &rows(segments[range.0].values)[range.1];
            gather(
                lanes,
                values,
                (c, tile.d),
                &weights,
                first - block,
                &mut acc,
            );
        });
        for (h, acc) in acc.into_iter().enumerate() {
            let (old, new) = factors[h];
            let at = h * tile.d + c * LANES;
            let y = &mut tile.values[at..at + LANES];
            for (y, a) in y.iter_mut().zip(acc) {
                *y = a.mul_add(new, *y * old);
            }
        }
    }
}

/// Calls `f((segment, elements of its rows), first position)` for each run of `seen` that lies in one segment, ascending.
#[inline(always)]
fn for_each_run(
    segments: &[KvSegment<'_>],
    seen: Range<usize>,
    d: usize,
    mut f: impl FnMut((usize, Range<usize>), usize),
) {
    let mut next = seen.start;
    for (i, segment) in segments.iter().enumerate() {
        let end = seen
            .end
            .min(segment.first_position + segment.keys.len() / d);
        if next < end {
            let first = next - segment.first_position;
            f((i, first * d..(end - segment.first_position) * d), next);
            next = end;
        }
    }
}

/// Scores of consecutive keys, the first at `at` in the block.
#[inline(always)]
fn score<L: Lanes, T: Element, const HEADS: usize>(
    lanes: L,
    keys: &[T],
    q: &[&[f32]; HEADS],
    at: usize,
    scores: &mut [[f32; KEY_BLOCK]; HEADS],
) {
    let d = q[0].len();
    for (i, key) in keys.chunks_exact(d).enumerate() {
        let mut acc = [[0.0; LANES]; HEADS];
        for (c, key) in key.as_chunks::<LANES>().0.iter().enumerate() {
            let key = T::widen(lanes, key);
            for (acc, q) in acc.iter_mut().zip(q) {
                *acc = fma(key, q.as_chunks::<LANES>().0[c], *acc);
            }
        }
        for (scores, acc) in scores.iter_mut().zip(acc) {
            scores[at + i] = sum(acc);
        }
    }
}

/// Turns a block's scores into weights, updates the running maximum and sum, and returns what the running values and the block's
/// values are multiplied by.
#[inline(always)]
fn weigh(
    scores: &mut [f32; KEY_BLOCK],
    running_max: &mut f32,
    running_sum: &mut f32,
) -> (f32, f32) {
    let pieces = scores.as_chunks_mut::<LANES>().0;
    let mut highest = [f32::NEG_INFINITY; LANES];
    for piece in pieces.iter() {
        highest = max(*piece, highest);
    }
    let highest = largest(highest);
    let mut total = [0.0; LANES];
    for piece in pieces.iter_mut() {
        *piece = exp(map(*piece, |score| score - highest));
        total = add(total, *piece);
    }
    let (old, new) = merge_factors(running_max, highest);
    *running_sum = sum(total).mul_add(new, *running_sum * old);
    (old, new)
}

/// Raises the running maximum to `other` and returns the factors of the running part and of the other.
#[inline(always)]
fn merge_factors(running: &mut f32, other: f32) -> (f32, f32) {
    let highest = if *running > other { *running } else { other };
    let factors = (exp1(*running - highest), exp1(other - highest));
    *running = highest;
    factors
}

/// Adds weight times value over consecutive keys, the first at `at` in the block, for elements `16 c..16 (c + 1)`.
#[inline(always)]
fn gather<L: Lanes, T: Element, const HEADS: usize>(
    lanes: L,
    values: &[T],
    (c, d): (usize, usize),
    weights: &[[f32; KEY_BLOCK]; HEADS],
    at: usize,
    acc: &mut [F; HEADS],
) {
    for (i, value) in values.chunks_exact(d).enumerate() {
        let value = T::widen(lanes, &value.as_chunks::<LANES>().0[c]);
        for (acc, weights) in acc.iter_mut().zip(weights) {
            *acc = fma([weights[at + i]; LANES], value, *acc);
        }
    }
}

/// Merges partials of consecutive spans in order and normalises: `out`, `[g, d]`.
///
/// # Panics
/// If there is no partial or a length does not fit.
pub fn merge_partials(isa: Isa, partials: &[f32], g: usize, d: usize, out: &mut [f32]) {
    assert!(
        d > 0 && d.is_multiple_of(LANES),
        "head_dim {d} is not a multiple of {LANES}"
    );
    assert_eq!(out.len(), g * d, "length of out");
    let len = partial_len(g, d);
    assert!(
        !partials.is_empty() && partials.len().is_multiple_of(len),
        "{} values of partials of {len}",
        partials.len()
    );
    isa.run(Merge {
        partials,
        g,
        d,
        out,
    });
}

struct Merge<'a> {
    partials: &'a [f32],
    g: usize,
    d: usize,
    out: &'a mut [f32],
}

impl Op for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let Merge {
            partials,
            g,
            d,
            out,
        } = self;
        out.fill(0.0);
        for (h, out) in out.chunks_exact_mut(d).enumerate() {
            let (mut highest, mut total) = (f32::NEG_INFINITY, 0.0);
            for partial in partials.chunks_exact(partial_len(g, d)) {
                let (old, new) = merge_factors(&mut highest, partial[h]);
                total = partial[g + h].mul_add(new, total * old);
                let values = &partial[2 * g + h * d..2 * g + (h + 1) * d];
                for (y, v) in out
                    .as_chunks_mut::<LANES>()
                    .0
                    .iter_mut()
                    .zip(values.as_chunks::<LANES>().0)
                {
                    *y = fma(*v, [new; LANES], mul(*y, [old; LANES]));
                }
            }
            for y in out.as_chunks_mut::<LANES>().0 {
                *y = map(*y, |v| v / total);
            }
        }
    }
}
