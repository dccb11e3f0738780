//! Attention of the queries that share a kv head, over blocks of keys.
//!
//! A query is one head of one position. All heads of a kv head's group and the positions of a prompt that stand next to each other go over
//! the keys together, because a key that was loaded and widened may as well serve eight queries as one.
//!
//! Keys are taken in blocks of [`KEY_BLOCK`] that start at absolute positions, however they are cut into segments, in ascending order. A
//! block raises the running maximum `m` to its own, scales the running sum and values by `e^(m - m')`, and adds its weights
//! `e^(score - m')` and weighted values, key by key. Spans of positions computed apart are merged by [`merge_partials`].

use std::marker::PhantomData;
use std::ops::Range;

use half::f16;

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{LANES, add, fma, largest, map, max, mul};
use crate::math::{exp, exp1};

/// Keys of a block.
pub const KEY_BLOCK: usize = 64;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Cache lines of keys that are asked for ahead of use: the processor by itself stops at each page's end.
const AHEAD_LINES: usize = 64;
/// The most positions of one [`Attend`].
pub const MAX_POSITIONS: usize = 8;

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

/// The query heads of one position.
#[derive(Clone, Debug)]
pub struct Query<'a> {
    /// `[g, head_dim]`.
    pub heads: &'a [f32],
    /// Absolute positions that they see; none gives no partial.
    pub visible: Range<usize>,
}

/// Arguments of [`attend`].
#[derive(Clone, Debug)]
pub struct Attend<'a> {
    /// Of one kv head, up to [`MAX_POSITIONS`].
    pub queries: &'a [Query<'a>],
    /// Query heads of the kv head.
    pub g: usize,
    /// A multiple of 16.
    pub head_dim: usize,
    /// Ascending, without gaps over all that is visible; rows outside it are not read.
    pub segments: &'a [KvSegment<'a>],
}

/// f32 values of a partial of `g` heads of dimension `d`: maxima `[g]`, sums `[g]`, weighted values `[g, d]`.
pub const fn partial_len(g: usize, d: usize) -> usize {
    g * (d + 2)
}

/// The softmax partials of the queries over what they see, `[n_queries, partial_len]`. Scores are plain dot products. Neither how the keys are
/// cut into segments nor which queries come together changes a bit.
///
/// # Panics
/// If what is visible is not covered, shapes differ, there are too many queries, `head_dim` is not a multiple of 16, or keys and
/// values differ in type.
pub fn attend(isa: Isa, op: &Attend<'_>, partials: &mut [f32]) {
    let d = op.head_dim;
    assert!(
        d > 0 && d.is_multiple_of(LANES),
        "head_dim {d} is not a multiple of {LANES}"
    );
    assert!(
        op.queries.len() <= MAX_POSITIONS,
        "{} queries at once",
        op.queries.len()
    );
    for query in op.queries {
        assert_eq!(query.heads.len(), op.g * d, "query heads of {d}");
    }
    assert_eq!(
        partials.len(),
        op.queries.len() * partial_len(op.g, d),
        "length of the partials"
    );
    let Some(first) = op.segments.first() else {
        assert!(union(op.queries).is_empty(), "no keys for what is visible");
        return;
    };
    check_segments(op);
    match first.keys {
        KvRows::F32(_) => isa.run(AttendRows::<f32> {
            op,
            partials,
            element: PhantomData,
        }),
        KvRows::F16(_) => isa.run(AttendRows::<f16> {
            op,
            partials,
            element: PhantomData,
        }),
    }
}

/// From the first to the last position that any query sees.
fn union(queries: &[Query<'_>]) -> Range<usize> {
    let seen = queries.iter().map(|query| &query.visible);
    let seen = seen.filter(|visible| !visible.is_empty());
    let start = seen.clone().map(|visible| visible.start).min();
    let end = seen.map(|visible| visible.end).max();
    start.unwrap_or(0)..end.unwrap_or(0)
}

fn check_segments(op: &Attend<'_>) {
    let visible = union(op.queries);
    let mut next = visible.start;
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
        next >= visible.end,
        "visible up to {}, keys up to {next}",
        visible.end
    );
}

/// A type of keys and values.
trait Element: Copy {
    fn rows<'a>(rows: &KvRows<'a>) -> &'a [Self];
    fn load<L: Lanes>(lanes: L, x: &[Self; LANES]) -> L::Value;
}

impl Element for f32 {
    fn rows<'a>(rows: &KvRows<'a>) -> &'a [f32] {
        match rows {
            KvRows::F32(rows) => rows,
            KvRows::F16(_) => panic!("keys and values are of different types"),
        }
    }

    #[inline(always)]
    fn load<L: Lanes>(lanes: L, x: &[f32; LANES]) -> L::Value {
        lanes.load(x)
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
    fn load<L: Lanes>(lanes: L, x: &[f16; LANES]) -> L::Value {
        lanes.load_f16(x)
    }
}

struct AttendRows<'a, T> {
    op: &'a Attend<'a>,
    partials: &'a mut [f32],
    element: PhantomData<T>,
}

/// One query head, and where its part of the partials starts: its maximum, its sum and its values.
#[derive(Clone, Copy)]
struct Head<'a> {
    q: &'a [f32],
    max: usize,
    sum: usize,
    values: usize,
}

impl<T: Element> Op for AttendRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let AttendRows { op, partials, .. } = self;
        for partial in partials.chunks_exact_mut(partial_len(op.g, op.head_dim)) {
            let (maxima, rest) = partial.split_at_mut(op.g);
            maxima.fill(f32::NEG_INFINITY);
            rest.fill(0.0);
        }
        let visible = union(op.queries);
        let mut start = visible.start;
        while start < visible.end {
            let block = start / KEY_BLOCK * KEY_BLOCK;
            let end = visible.end.min(block + KEY_BLOCK);
            let mut first = 0;
            while first < op.queries.len() {
                let seen = overlap(&op.queries[first].visible, &(start..end));
                let alike = op.queries[first..].iter();
                let n = alike
                    .take_while(|query| overlap(&query.visible, &(start..end)) == seen)
                    .count();
                if !seen.is_empty() {
                    attend_alike::<L, T>(lanes, op, first..first + n, &seen, partials);
                }
                first += n;
            }
            start = end;
        }
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    if start < end { start..end } else { 0..0 }
}

/// Merges the keys `seen` of one block into the partials of some queries, all of which see just these of it.
#[inline(always)]
fn attend_alike<L: Lanes, T: Element>(
    lanes: L,
    op: &Attend<'_>,
    queries: Range<usize>,
    seen: &Range<usize>,
    partials: &mut [f32],
) {
    let (g, d) = (op.g, op.head_dim);
    let head = |nth: usize| {
        let (query, h) = (queries.start + nth / g, nth % g);
        let partial = query * partial_len(g, d);
        Head {
            q: &op.queries[query].heads[h * d..(h + 1) * d],
            max: partial + h,
            sum: partial + g + h,
            values: partial + 2 * g + h * d,
        }
    };
    let n = queries.len() * g;
    let mut next = 0;
    while next < n {
        let mut heads = [head(next); 8];
        for (i, to) in heads.iter_mut().enumerate() {
            *to = head((next + i).min(n - 1));
        }
        // Keys or pieces of values at a time, so that sixteen sums are in registers, or four.
        next += match n - next {
            8.. if L::HAS_MANY_REGISTERS => {
                attend_block::<L, T, 8, 2>(lanes, op, seen, &heads, partials);
                8
            }
            4.. => {
                let heads = heads.first_chunk().expect("eight are more than four");
                if L::HAS_MANY_REGISTERS {
                    attend_block::<L, T, 4, 4>(lanes, op, seen, heads, partials);
                } else {
                    attend_block::<L, T, 4, 1>(lanes, op, seen, heads, partials);
                }
                4
            }
            2 | 3 => {
                let heads = heads.first_chunk().expect("eight are more than two");
                if L::HAS_MANY_REGISTERS {
                    attend_block::<L, T, 2, 8>(lanes, op, seen, heads, partials);
                } else {
                    attend_block::<L, T, 2, 2>(lanes, op, seen, heads, partials);
                }
                2
            }
            _ => {
                let heads = heads.first_chunk().expect("eight are more than one");
                if L::HAS_MANY_REGISTERS {
                    attend_block::<L, T, 1, 16>(lanes, op, seen, heads, partials);
                } else {
                    attend_block::<L, T, 1, 4>(lanes, op, seen, heads, partials);
                }
                1
            }
        };
    }
}

/// Merges the keys `seen` of one block into the partials of some heads.
#[inline(always)]
fn attend_block<L: Lanes, T: Element, const HEADS: usize, const WIDTH: usize>(
    lanes: L,
    op: &Attend<'_>,
    seen: &Range<usize>,
    heads: &[Head<'_>; HEADS],
    partials: &mut [f32],
) {
    let d = op.head_dim;
    let block = seen.start / KEY_BLOCK * KEY_BLOCK;
    let mut weights = [[f32::NEG_INFINITY; KEY_BLOCK]; HEADS];
    let mut next = seen.start;
    for segment in op.segments {
        let run = run_of(segment, d, next..seen.end);
        let (keys, values) = (T::rows(&segment.keys), T::rows(&segment.values));
        let (behind, keys) = (run.start, &keys[run.clone()]);
        let mut at = next - block;
        let many = keys.chunks_exact(WIDTH * d);
        let rest = many.remainder();
        for (i, keys) in many.enumerate() {
            // The next keys, and the values of these, which are wanted column by column.
            let here = behind + i * WIDTH * d;
            for line in 0..WIDTH * d * size_of::<T>() / LINE {
                lanes.prefetch(&T::rows(&segment.keys)[here..], AHEAD_LINES + line);
                lanes.prefetch(&values[here..], line);
            }
            score::<L, T, HEADS, WIDTH>(lanes, keys, heads, at, &mut weights);
            at += WIDTH;
        }
        for key in rest.chunks_exact(d) {
            score::<L, T, HEADS, 1>(lanes, key, heads, at, &mut weights);
            at += 1;
        }
        next += run.len() / d;
    }
    for (head, weights) in heads.iter().zip(&mut weights) {
        let (mut max, mut sum) = (partials[head.max], partials[head.sum]);
        let old = weigh(lanes, weights, &mut max, &mut sum);
        (partials[head.max], partials[head.sum]) = (max, sum);
        if old != 1.0 {
            let values = &mut partials[head.values..head.values + d];
            for y in values.as_chunks_mut::<LANES>().0 {
                *y = map(*y, |y| y * old);
            }
        }
    }
    let mut next = seen.start;
    for segment in op.segments {
        let run = run_of(segment, d, next..seen.end);
        let rows = &T::rows(&segment.values)[run.clone()];
        let weights = (&weights, next - block);
        let n_pieces = d / LANES;
        for c in (0..n_pieces / WIDTH * WIDTH).step_by(WIDTH) {
            add_values::<L, T, HEADS, WIDTH>(lanes, (rows, d, c), weights, heads, partials);
        }
        for c in n_pieces / WIDTH * WIDTH..n_pieces {
            add_values::<L, T, HEADS, 1>(lanes, (rows, d, c), weights, heads, partials);
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
fn score<L: Lanes, T: Element, const HEADS: usize, const KEYS: usize>(
    lanes: L,
    keys: &[T],
    heads: &[Head<'_>; HEADS],
    at: usize,
    scores: &mut [[f32; KEY_BLOCK]; HEADS],
) {
    let d = keys.len() / KEYS;
    let mut acc = [[lanes.splat(0.0); KEYS]; HEADS];
    let mut key = [lanes.splat(0.0); KEYS];
    for c in (0..d).step_by(LANES) {
        for (j, key) in key.iter_mut().enumerate() {
            *key = T::load(lanes, sixteen(&keys[j * d + c..]));
        }
        for (acc, head) in acc.iter_mut().zip(heads) {
            let q = lanes.load(sixteen(&head.q[c..]));
            for (acc, key) in acc.iter_mut().zip(key) {
                *acc = lanes.fma(key, q, *acc);
            }
        }
    }
    let mut sums = [[0.0; KEYS]; HEADS];
    lanes.sums(acc.as_flattened(), sums.as_flattened_mut());
    for (scores, sums) in scores.iter_mut().zip(sums) {
        scores[at..at + KEYS].copy_from_slice(&sums);
    }
}

#[inline(always)]
fn sixteen<T>(x: &[T]) -> &[T; LANES] {
    x.first_chunk().expect("rows are whole pieces of sixteen")
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

/// Adds weight times value of consecutive keys, the first at `at` in the block, in order: pieces `c..c + PIECES` of the values.
#[inline(always)]
fn add_values<L: Lanes, T: Element, const HEADS: usize, const PIECES: usize>(
    lanes: L,
    (rows, d, c): (&[T], usize, usize),
    (weights, at): (&[[f32; KEY_BLOCK]; HEADS], usize),
    heads: &[Head<'_>; HEADS],
    partials: &mut [f32],
) {
    let mut acc = [[lanes.splat(0.0); PIECES]; HEADS];
    for (acc, head) in acc.iter_mut().zip(heads) {
        for (i, acc) in acc.iter_mut().enumerate() {
            *acc = lanes.load(sixteen(&partials[head.values + (c + i) * LANES..]));
        }
    }
    let mut value = [lanes.splat(0.0); PIECES];
    for (j, row) in rows.chunks_exact(d).enumerate() {
        for (i, value) in value.iter_mut().enumerate() {
            *value = T::load(lanes, sixteen(&row[(c + i) * LANES..]));
        }
        for (acc, weights) in acc.iter_mut().zip(weights) {
            let weight = lanes.splat(weights[at + j]);
            for (acc, value) in acc.iter_mut().zip(value) {
                *acc = lanes.fma(weight, value, *acc);
            }
        }
    }
    for (acc, head) in acc.iter().zip(heads) {
        for (i, acc) in acc.iter().enumerate() {
            let at = head.values + (c + i) * LANES;
            let y = partials[at..].first_chunk_mut();
            lanes.store(*acc, y.expect("values are whole pieces of sixteen"));
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

/// Merges partials of consecutive spans in order and normalises: `out`, `[g, d]`. One partial starts every `stride` values.
///
/// # Panics
/// If there is no partial or a length does not fit.
pub fn merge_partials(
    isa: Isa,
    (partials, stride): (&[f32], usize),
    g: usize,
    d: usize,
    out: &mut [f32],
) {
    assert!(
        d > 0 && d.is_multiple_of(LANES),
        "head_dim {d} is not a multiple of {LANES}"
    );
    assert_eq!(out.len(), g * d, "length of out");
    let len = partial_len(g, d);
    assert!(
        stride >= len && partials.len() % stride == len % stride && !partials.is_empty(),
        "{} values of partials of {len}, one every {stride}",
        partials.len()
    );
    isa.run(Merge {
        partials,
        stride,
        g,
        d,
        out,
    });
}

struct Merge<'a> {
    partials: &'a [f32],
    stride: usize,
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
            stride,
            g,
            d,
            out,
        } = self;
        out.fill(0.0);
        for (h, out) in out.chunks_exact_mut(d).enumerate() {
            let (mut highest, mut total) = (f32::NEG_INFINITY, 0.0);
            for partial in partials.chunks(stride) {
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
