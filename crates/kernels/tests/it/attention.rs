//! Attention: against f64, and the same bits however the keys lie.

use std::ops::Range;

use half::f16;
use ouzel_kernels::{
    Attend, Isa, KEY_BLOCK, KvRows, KvSegment, MAX_POSITIONS, Query, attend, merge_partials,
    partial_len,
};

use crate::data::{Random, assert_bits, others, seed};

/// Scores up to some 90 have an error of up to 1e-5, which `e^x` hands on to values of up to 4.5.
const ATTENTION_TOLERANCE: f64 = 5e-5;

/// Keys and values of positions `0..n` of one kv head.
struct Cache {
    d: usize,
    keys: Vec<f32>,
    values: Vec<f32>,
    keys_f16: Vec<f16>,
    values_f16: Vec<f16>,
}

impl Cache {
    /// All values are exact in f16, so that both types hold the same numbers.
    fn random(random: &mut Random, n: usize, d: usize) -> Cache {
        let mut draw = || -> Vec<f32> {
            random
                .normals(n * d)
                .iter()
                .map(|x| f16::from_f32(*x).to_f32())
                .collect()
        };
        let (keys, values) = (draw(), draw());
        let narrow = |x: &[f32]| x.iter().map(|x| f16::from_f32(*x)).collect();
        let (keys_f16, values_f16) = (narrow(&keys), narrow(&values));
        Cache {
            d,
            keys,
            values,
            keys_f16,
            values_f16,
        }
    }

    fn segment(&self, positions: Range<usize>, as_f16: bool) -> KvSegment<'_> {
        let range = positions.start * self.d..positions.end * self.d;
        let (keys, values) = if as_f16 {
            (
                KvRows::F16(&self.keys_f16[range.clone()]),
                KvRows::F16(&self.values_f16[range]),
            )
        } else {
            (
                KvRows::F32(&self.keys[range.clone()]),
                KvRows::F32(&self.values[range]),
            )
        };
        KvSegment {
            first_position: positions.start,
            keys,
            values,
        }
    }

    fn partial(
        &self,
        isa: Isa,
        q: &[f32],
        segments: &[KvSegment<'_>],
        visible: Range<usize>,
    ) -> Vec<f32> {
        let mut partial = vec![f32::NAN; partial_len(q.len() / self.d, self.d)];
        let op = Attend {
            queries: &[Query { heads: q, visible }],
            g: q.len() / self.d,
            head_dim: self.d,
            segments,
        };
        attend(isa, &op, &mut partial);
        partial
    }

    /// Softmax attention of one head in f64.
    fn naive(&self, q: &[f32], visible: Range<usize>) -> Vec<f64> {
        let row = |x: &[f32], p: usize| x[p * self.d..(p + 1) * self.d].to_vec();
        let scores: Vec<f64> = visible
            .clone()
            .map(|p| {
                row(&self.keys, p)
                    .iter()
                    .zip(q)
                    .map(|(k, q)| f64::from(*k) * f64::from(*q))
                    .sum()
            })
            .collect();
        let highest = scores.iter().fold(f64::MIN, |m, s| m.max(*s));
        let total: f64 = scores.iter().map(|s| (s - highest).exp()).sum();
        let mut y = vec![0.0; self.d];
        for (p, score) in visible.zip(scores) {
            for (y, v) in y.iter_mut().zip(row(&self.values, p)) {
                *y += (score - highest).exp() / total * f64::from(v);
            }
        }
        y
    }
}

fn merged(isa: Isa, partials: &[f32], g: usize, d: usize) -> Vec<f32> {
    let mut y = vec![f32::NAN; g * d];
    merge_partials(isa, (partials, partial_len(g, d)), g, d, &mut y);
    y
}

#[test]
fn attention_is_softmax_and_has_one_set_of_bits() {
    let mut random = Random(seed());
    for (g, d) in [
        (1, 16),
        (2, 32),
        (3, 48),
        (4, 64),
        (5, 16),
        (8, 32),
        (2, 256),
        (8, 512),
    ] {
        let cache = Cache::random(&mut random, 300, d);
        let q = random.normals(g * d);
        for visible in [
            0..1,
            0..64,
            0..65,
            63..64,
            64..65,
            60..70,
            1..300,
            0..300,
            17..191,
            128..256,
        ] {
            let what = format!("{g} heads of {d} over {visible:?}");
            let segments = [cache.segment(0..300, false)];
            let partial = cache.partial(Isa::Portable, &q, &segments, visible.clone());
            let y = merged(Isa::Portable, &partial, g, d);
            for (q, y) in q.chunks(d).zip(y.chunks(d)) {
                for (y, want) in y.iter().zip(cache.naive(q, visible.clone())) {
                    let error = (f64::from(*y) - want).abs();
                    assert!(error <= ATTENTION_TOLERANCE, "{what}: {y}, not {want}");
                }
            }
            let segments = [cache.segment(0..300, true)];
            assert_bits(
                &what,
                &cache.partial(Isa::Portable, &q, &segments, visible.clone()),
                &partial,
            );
            for isa in others() {
                for as_f16 in [false, true] {
                    let segments = [cache.segment(0..300, as_f16)];
                    let other = cache.partial(isa, &q, &segments, visible.clone());
                    assert_bits(&format!("{what} on {}", isa.name()), &other, &partial);
                }
                assert_bits(
                    &format!("{what} merged on {}", isa.name()),
                    &merged(isa, &partial, g, d),
                    &y,
                );
            }
        }
    }
}

/// Whatever positions come together, and whatever each of them sees, a query has the partial that it has alone.
#[test]
fn queries_do_not_show() {
    let mut random = Random(seed());
    for (g, d) in [(1, 16), (2, 32), (3, 16), (2, 256), (8, 64)] {
        let cache = Cache::random(&mut random, 300, d);
        for n in 1..=MAX_POSITIONS {
            let heads = random.normals(n * g * d);
            // A window of 130 that slides over the keys, and one position that sees nothing.
            let visible = |i: usize| {
                let end = 150 + 21 * i;
                if i == 5 { 0..0 } else { end - 130..end }
            };
            let queries: Vec<Query<'_>> = (0..n)
                .map(|i| Query {
                    heads: &heads[i * g * d..(i + 1) * g * d],
                    visible: visible(i),
                })
                .collect();
            for isa in Isa::available() {
                let segments = [cache.segment(0..200, true), cache.segment(200..300, true)];
                let op = Attend {
                    queries: &queries,
                    g,
                    head_dim: d,
                    segments: &segments,
                };
                let mut partials = vec![f32::NAN; n * partial_len(g, d)];
                attend(isa, &op, &mut partials);
                for (i, partial) in partials.chunks(partial_len(g, d)).enumerate() {
                    let what = format!("query {i} of {n}, {g} heads of {d} on {}", isa.name());
                    let alone = cache.partial(isa, queries[i].heads, &segments, visible(i));
                    assert_bits(&what, partial, &alone);
                }
            }
        }
    }
}

#[test]
fn segments_do_not_show() {
    let mut random = Random(seed());
    let (g, d, n) = (6, 32, 260);
    let cache = Cache::random(&mut random, n, d);
    let q = random.normals(g * d);
    for isa in Isa::available() {
        for visible in [0..n, 3..250, 100..130] {
            let whole = cache.partial(isa, &q, &[cache.segment(0..n, true)], visible.clone());
            for cut in 1..n {
                let cuts = [0, cut, (cut + 1 + random.below(n - cut)).min(n), n];
                let segments: Vec<_> = cuts
                    .windows(2)
                    .map(|c| cache.segment(c[0]..c[1], true))
                    .collect();
                let what = format!("{visible:?} cut at {cuts:?} on {}", isa.name());
                assert_bits(
                    &what,
                    &cache.partial(isa, &q, &segments, visible.clone()),
                    &whole,
                );
            }
        }
    }
}

/// A ring of `capacity` rows holds the last `capacity` positions; wherever its seam lies, the result is that of plain rows.
#[test]
fn ring_phase_does_not_show() {
    let mut random = Random(seed());
    let (g, d, n, capacity) = (2, 16, 400, 100);
    let cache = Cache::random(&mut random, n, d);
    let q = random.normals(g * d);
    for isa in Isa::available() {
        for end in capacity..n {
            let seam = end / capacity * capacity;
            let visible = end - capacity..end;
            let ring = [
                cache.segment(visible.start..seam, false),
                cache.segment(seam..end, false),
            ];
            let plain = cache.partial(isa, &q, &[cache.segment(0..n, false)], visible.clone());
            assert_bits(
                &format!("end {end}"),
                &cache.partial(isa, &q, &ring, visible),
                &plain,
            );
        }
    }
}

#[test]
fn spans_merge_to_softmax() {
    let mut random = Random(seed());
    let (g, d, n) = (3, 32, 8 * KEY_BLOCK + 9);
    let cache = Cache::random(&mut random, n, d);
    let q = random.normals(g * d);
    let segments = [cache.segment(0..n, true)];
    for span in [64, 128, 256, 1024] {
        let mut partials = Vec::new();
        for start in (0..n).step_by(span) {
            partials.extend(cache.partial(
                Isa::Portable,
                &q,
                &segments,
                start..n.min(start + span),
            ));
        }
        let y = merged(Isa::Portable, &partials, g, d);
        for (q, y) in q.chunks(d).zip(y.chunks(d)) {
            for (y, want) in y.iter().zip(cache.naive(q, 0..n)) {
                assert!(
                    (f64::from(*y) - want).abs() <= ATTENTION_TOLERANCE,
                    "span {span}: {y}, not {want}"
                );
            }
        }
        for isa in others() {
            assert_bits(
                &format!("span {span} on {}", isa.name()),
                &merged(isa, &partials, g, d),
                &y,
            );
        }
    }
}

#[test]
fn far_apart_scores_stay_finite() {
    let d = 16;
    let keys: Vec<f32> = (0..130)
        .flat_map(|p| [if p % 2 == 0 { 1e4 } else { -1e4 }; 16])
        .collect();
    let values = vec![1.0; keys.len()];
    let segments = [KvSegment {
        first_position: 0,
        keys: KvRows::F32(&keys),
        values: KvRows::F32(&values),
    }];
    for isa in Isa::available() {
        for q in [[1.0; 16], [-1.0; 16]] {
            let mut partial = vec![0.0; partial_len(1, d)];
            attend(
                isa,
                &Attend {
                    queries: &[one(&q, 0..130)],
                    g: 1,
                    head_dim: d,
                    segments: &segments,
                },
                &mut partial,
            );
            assert_eq!(merged(isa, &partial, 1, d), [1.0; 16]);
        }
    }
}

#[test]
#[should_panic(expected = "no keys for what is visible")]
fn no_keys_are_refused() {
    attend(
        Isa::Portable,
        &Attend {
            queries: &[one(&[0.0; 16], 3..4)],
            g: 1,
            head_dim: 16,
            segments: &[],
        },
        &mut [0.0; 18],
    );
}

#[test]
#[should_panic(expected = "9 queries at once")]
fn too_many_queries_are_refused() {
    let queries: [Query<'_>; MAX_POSITIONS + 1] = std::array::from_fn(|_| one(&[0.0; 16], 0..0));
    attend(
        Isa::Portable,
        &Attend {
            queries: &queries,
            g: 1,
            head_dim: 16,
            segments: &[],
        },
        &mut [0.0; 18 * 9],
    );
}

fn one(heads: &[f32], visible: Range<usize>) -> Query<'_> {
    Query { heads, visible }
}

#[test]
#[should_panic(expected = "a gap before position 2")]
fn a_gap_is_refused() {
    let rows = [0.0; 16];
    let at = |p| KvSegment {
        first_position: p,
        keys: KvRows::F32(&rows),
        values: KvRows::F32(&rows),
    };
    attend(
        Isa::Portable,
        &Attend {
            queries: &[one(&rows, 0..3)],
            g: 1,
            head_dim: 16,
            segments: &[at(0), at(2)],
        },
        &mut [0.0; 18],
    );
}
