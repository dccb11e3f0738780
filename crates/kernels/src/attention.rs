//! Attention of the query heads that share a kv head, over blocks of keys.
//!
//! Keys are taken in blocks of [`KEY_BLOCK`] that start at absolute positions, however they are cut into segments, in ascending order. A
//! block raises the running maximum `m` to its own, scales the running sum and values by `e^(m - m')`, and adds its weights
//! `e^(score - m')` and weighted values, key by key. Spans of positions computed apart are merged by [`merge_partials`].

use std::marker::PhantomData;
use std::ops::Range;

use half::f16;

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{F, LANES, add, fma, largest, map, max, mul};
use crate::math::{exp, exp1};

/// Keys of a block.
pub const KEY_BLOCK: usize = 64;
/// Keys whose values share each load and store of a sum.
const KEYS: usize = 4;

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
            element: PhantomData,
        }),
        KvRows::F16(_) => isa.run(AttendRows::<f16> {
            op,
            partial,
            element: PhantomData,
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
    fn rows<'a>(rows: &KvRows<'a>) -> &'a [Self];
    fn widen<L: Lanes>(lanes: L, x: &[Self; LANES]) -> F;
}

impl Element for f32 {
    fn rows<'a>(rows: &KvRows<'a>) -> &'a [f32] {
        match rows {
            KvRows::F32(rows) => rows,
            KvRows::F16(_) => panic!("keys and values are of different types"),
        }
    }

    #[inline(always)]
    fn widen<L: Lanes>(_: L, x: &[f32; LANES]) -> F {
        *x
    }
}

impl Element for f16 {
    fn rows<'a>(rows: &KvRows<'a>) -> &'a [f16] {
        match rows {
            KvRows::F16(rows) => rows,
            KvRows::F32(_) => panic!("keys and values are of different types"),
        }
    }

    #[inline(always)]
    fn widen<L: Lanes>(lanes: L, x: &[f16; LANES]) -> F {
        lanes.widen(x)
    }
}

struct AttendRows<'a, T> {
    op: &'a Attend<'a>,
    partial: &'a mut [f32],
    element: PhantomData<T>,
}

/// Some of the query heads, and their part of the partial.
struct Heads<'a> {
    /// `[HEADS, d]`.
    q: &'a [f32],
    maxima: &'a mut [f32],
    sums: &'a mut [f32],
    /// `[HEADS, d]`.
    values: &'a mut [f32],
}

impl<T: Element> Op for AttendRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let AttendRows { op, partial, .. } = self;
        let d = op.head_dim;
        let g = op.q.len() / d;
        let (maxima, rest) = partial.split_at_mut(g);
        let (sums, values) = rest.split_at_mut(g);
        maxima.fill(f32::NEG_INFINITY);
        sums.fill(0.0);
        values.fill(0.0);
        let mut start = op.visible.start;
        while start < op.visible.end {
            let block = start / KEY_BLOCK * KEY_BLOCK;
            let seen = start..op.visible.end.min(block + KEY_BLOCK);
            let mut h = 0;
            while h < g {
                let n = tile_heads(g - h);
                let heads = Heads {
                    q: &op.q[h * d..(h + n) * d],
                    maxima: &mut maxima[h..h + n],
                    sums: &mut sums[h..h + n],
                    values: &mut values[h * d..(h + n) * d],
                };
                match n {
                    4 => attend_block::<L, T, 4>(lanes, op, &seen, heads),
                    2 => attend_block::<L, T, 2>(lanes, op, &seen, heads),
                    _ => attend_block::<L, T, 1>(lanes, op, &seen, heads),
                }
                h += n;
            }
            start = seen.end;
        }
    }
}

/// Query heads that share one pass over a block, of `n` that are left.
fn tile_heads(n: usize) -> usize {
    match n {
        4.. => 4,
        2 | 3 => 2,
        _ => 1,
    }
}

/// Merges the visible keys `seen` of one block into the partial of some heads.
#[inline(always)]
fn attend_block<L: Lanes, T: Element, const HEADS: usize>(
    lanes: L,
    op: &Attend<'_>,
    seen: &Range<usize>,
    heads: Heads<'_>,
) {
    let d = op.head_dim;
    let block = seen.start / KEY_BLOCK * KEY_BLOCK;
    let q: [&[f32]; HEADS] = std::array::from_fn(|h| &heads.q[h * d..(h + 1) * d]);
    let mut weights = [[f32::NEG_INFINITY; KEY_BLOCK]; HEADS];
    let mut next = seen.start;
    for segment in op.segments {
        let run = run_of(segment, d, next..seen.end);
        score(
            lanes,
            &T::rows(&segment.keys)[run.clone()],
            &q,
            next - block,
            &mut weights,
        );
        next += run.len() / d;
    }
    for (h, weights) in weights.iter_mut().enumerate() {
        let old = weigh(lanes, weights, &mut heads.maxima[h], &mut heads.sums[h]);
        if old != 1.0 {
            for y in heads.values[h * d..(h + 1) * d].as_chunks_mut::<LANES>().0 {
                *y = map(*y, |y| y * old);
            }
        }
    }
    let mut next = seen.start;
    for segment in op.segments {
        let run = run_of(segment, d, next..seen.end);
        let rows = &T::rows(&segment.values)[run.clone()];
        let mut at = next - block;
        for four in rows.chunks_exact(KEYS * d) {
            add_values::<L, T, HEADS, KEYS>(lanes, four, d, (&weights, at), heads.values);
            at += KEYS;
        }
        for one in rows.chunks_exact(KEYS * d).remainder().chunks_exact(d) {
            add_values::<L, T, HEADS, 1>(lanes, one, d, (&weights, at), heads.values);
            at += 1;
        }
        next += run.len() / d;
    }
}

/// The elements of a segment's rows that belong to `wanted`, whose start is not before the segment.
fn run_of(segment: &KvSegment<'_>, d: usize, wanted: Range<usize>) -> Range<usize> {
    let end = wanted
        .end
        .min(segment.first_position + segment.keys.len() / d);
    if end <= wanted.start {
        return 0..0;
    }
    (wanted.start - segment.first_position) * d..(end - segment.first_position) * d
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
    let q: [&[F]; HEADS] = std::array::from_fn(|h| q[h].as_chunks::<LANES>().0);
    let n_pieces = q[0].len();
    for (i, key) in keys.chunks_exact(n_pieces * LANES).enumerate() {
        let key = &key.as_chunks::<LANES>().0[..n_pieces];
        let mut acc = [[0.0; LANES]; HEADS];
        for (c, key) in key.iter().enumerate() {
            let key = T::widen(lanes, key);
            for (acc, q) in acc.iter_mut().zip(&q) {
                *acc = fma(key, q[c], *acc);
            }
        }
        for (scores, acc) in scores.iter_mut().zip(acc) {
            scores[at + i] = lanes.sum(&acc);
        }
    }
}

/// Turns a block's scores into weights `e^(score - max)`, updates the running maximum and sum, and returns what the
/// running values are to be multiplied by.
#[inline(always)]
fn weigh<L: Lanes>(
    lanes: L,
    scores: &mut [f32; KEY_BLOCK],
    running_max: &mut f32,
    running_sum: &mut f32,
) -> f32 {
    let pieces = scores.as_chunks_mut::<LANES>().0;
    let mut highest = [*running_max; LANES];
    for piece in pieces.iter() {
        highest = max(*piece, highest);
    }
    let highest = largest(highest);
    let mut total = [0.0; LANES];
    for piece in pieces.iter_mut() {
        *piece = exp(map(*piece, |score| score - highest));
        total = add(total, *piece);
    }
    let old = exp1(*running_max - highest);
    *running_max = highest;
    *running_sum = running_sum.mul_add(old, lanes.sum(&total));
    old
}

/// Adds weight times value of `N` consecutive keys, the first at `at` in the block, in order.
#[inline(always)]
fn add_values<L: Lanes, T: Element, const HEADS: usize, const N: usize>(
    lanes: L,
    rows: &[T],
    d: usize,
    (weights, at): (&[[f32; KEY_BLOCK]; HEADS], usize),
    values: &mut [f32],
) {
    let rows: [&[T]; N] = std::array::from_fn(|j| &rows[j * d..(j + 1) * d]);
    for c in 0..d / LANES {
        let mut v = [[0.0; LANES]; N];
        for j in 0..N {
            v[j] = T::widen(lanes, &rows[j].as_chunks::<LANES>().0[c]);
        }
        for h in 0..HEADS {
            let y = &mut values[h * d..(h + 1) * d].as_chunks_mut::<LANES>().0[c];
            let mut sum = *y;
            for j in 0..N {
                sum = fma([weights[h][at + j]; LANES], v[j], sum);
            }
            *y = sum;
        }
    }
}

/// Raises the running maximum to `other` and returns the factors of the running part and of the other.
#[inline(always)]
fn merge_factors(running: &mut f32, other: f32) -> (f32, f32) {
    let highest = if *running > other { *running } else { other };
    let factors = (exp1(*running - highest), exp1(other - highest));
    *running = highest;
    factors
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
