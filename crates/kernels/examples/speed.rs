//! How fast the products and attention are, on every instruction set at hand: `cargo run --release -p ouzel-kernels --example speed`.
//!
//! A matvec over a matrix far larger than the caches is held against a plain read loop over the same bytes, on two threads
//! and in turn, and the medians are compared: 100 % is the speed of reading. Products of many rows and attention are
//! given in multiply-adds a second on one thread, the best of several rounds.

use std::hint::black_box;
use std::time::Instant;

use half::f16;
use ouzel_kernels::{
    Attend, Bits, Columns, Isa, KvRows, KvSegment, QuantMatrix, QuantRows, Query, attend, matmul,
    matmul_i8, partial_len, quantize,
};

/// Rounds whose median counts.
const ROUNDS: usize = 9;
/// Bytes of codes of the large matrix: four times the largest cache that is common on servers.
const LARGE_BYTES: usize = 1 << 30;

struct Bytes {
    packed: Vec<u8>,
    scales: Vec<u8>,
    n_out: usize,
    n_in: usize,
}

impl Bytes {
    fn new(n_out: usize, n_in: usize) -> Bytes {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state >> 24
        };
        Bytes {
            packed: (0..n_out * n_in / 2).map(|_| next() as u8).collect(),
            // BF16 of about 0.01.
            scales: (0..n_out * n_in / 32)
                .map(|i| if i % 2 == 0 { next() as u8 } else { 0x3C })
                .collect(),
            n_out,
            n_in,
        }
    }

    fn matrix(&self) -> QuantMatrix<'_> {
        QuantMatrix::new(
            Bits::Q4,
            self.n_out,
            self.n_in,
            &self.packed,
            &self.scales,
            &self.scales,
        )
    }
}

fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

/// The shortest time: for work that fits the caches, whatever is above it is other programs' doing.
fn shortest(times: Vec<f64>) -> f64 {
    times.into_iter().fold(f64::INFINITY, f64::min)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Sums all bytes as u64 in eight chains.
fn read(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 8];
    for chunk in bytes.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    sums.iter().fold(0, |a, b| a.wrapping_add(*b))
}

/// Runs `f` on both halves of the output rows, on a thread each.
fn on_two_threads(
    w: &QuantMatrix<'_>,
    y: &mut [f32],
    f: impl Fn(&QuantMatrix<'_>, Columns<'_>) + Sync,
) {
    let half = w.n_out / 2;
    let (left, right) = Columns::new(y, 1, w.n_out).split_at(half);
    std::thread::scope(|scope| {
        scope.spawn(|| f(&w.rows(0..half), left));
        f(&w.rows(half..w.n_out), right);
    });
}

fn matvec(n_in: usize) {
    let bytes = Bytes::new(LARGE_BYTES * 2 / n_in, n_in);
    let w = bytes.matrix();
    let size = (w.packed.len() + 2 * w.scales.len()) as f64;
    let x: Vec<f32> = (0..n_in).map(|i| (i as f32).sin()).collect();
    let mut y = vec![0.0; w.n_out];
    for isa in Isa::available() {
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..if isa == Isa::Portable { 1 } else { ROUNDS } {
            times[0].push(seconds(|| {
                on_two_threads(&w, &mut y, |w, _| {
                    black_box(read(w.packed) ^ read(w.scales) ^ read(w.biases));
                });
            }));
            for planes in [1, 2] {
                let mut rows = QuantRows::new(1, n_in, planes);
                quantize(isa, &x, n_in, planes, &mut rows);
                times[planes].push(seconds(|| {
                    on_two_threads(&w, &mut y, |w, y| matmul_i8(isa, w, rows.all(), y))
                }));
            }
            times[3].push(seconds(|| {
                on_two_threads(&w, &mut y, |w, y| matmul(isa, w, &x, y))
            }));
        }
        let [read, one, two, exact] = times.map(median);
        println!(
            "matvec_q4 n_in {n_in} {:9}: read {:5.1} GB/s; fast {:3.0} %, two planes {:3.0} %, exact {:3.0} % of it",
            isa.name(),
            size / read / 1e9,
            100.0 * read / one,
            100.0 * read / two,
            100.0 * read / exact
        );
    }
}

fn products(n_out: usize, n_in: usize, n: usize) {
    let bytes = Bytes::new(n_out, n_in);
    let w = bytes.matrix();
    let x: Vec<f32> = (0..n * n_in).map(|i| (i as f32).sin()).collect();
    let mut y = vec![0.0; n * n_out];
    for isa in Isa::available() {
        let mut times = [const { Vec::new() }; 4];
        for _ in 0..if isa == Isa::Portable { 1 } else { ROUNDS } {
            for planes in [1, 2] {
                let mut rows = QuantRows::new(n, n_in, planes);
                quantize(isa, &x, n_in, planes, &mut rows);
                times[0].push(seconds(|| quantize(isa, &x, n_in, planes, &mut rows)));
                times[planes].push(seconds(|| {
                    matmul_i8(isa, &w, rows.all(), Columns::new(&mut y, n, n_out))
                }));
            }
            times[3].push(seconds(|| {
                matmul(isa, &w, &x, Columns::new(&mut y, n, n_out))
            }));
        }
        let [quantize, one, two, exact] = times.map(shortest);
        let work = (n * n_out * n_in) as f64 / 1e9;
        println!(
            "matmul_q4 [{n_out}, {n_in}] x {n} {:9}: fast {:6.1}, two planes {:6.1}, exact {:6.1} G multiply-adds/s; quantize {:4.1} G elements/s",
            isa.name(),
            work / one,
            work / two,
            work / exact,
            (n * n_in) as f64 / quantize / 1e9,
        );
    }
}

fn attention((n_positions, g, d): (usize, usize, usize), n: usize) {
    let q: Vec<f32> = (0..n_positions * g * d).map(|i| (i as f32).sin()).collect();
    let queries: Vec<Query<'_>> = q
        .chunks(g * d)
        .map(|heads| Query {
            heads,
            visible: 0..n,
        })
        .collect();
    let narrow: Vec<f16> = (0..n * d)
        .map(|i| f16::from_f32((i as f32).cos()))
        .collect();
    let wide: Vec<f32> = narrow.iter().map(|x| x.to_f32()).collect();
    let mut partial = vec![0.0; n_positions * partial_len(g, d)];
    for isa in Isa::available() {
        let mut times = [const { Vec::new() }; 2];
        for _ in 0..if isa == Isa::Portable { 1 } else { ROUNDS } {
            for (rows, times) in [KvRows::F32(&wide), KvRows::F16(&narrow)]
                .into_iter()
                .zip(&mut times)
            {
                let segments = [KvSegment {
                    first_position: 0,
                    keys: rows,
                    values: rows,
                }];
                let op = Attend {
                    queries: &queries,
                    g,
                    head_dim: d,
                    segments: &segments,
                };
                times.push(seconds(|| attend(isa, &op, &mut partial)));
            }
        }
        let [f32_time, f16_time] = times.map(shortest);
        let work = (2 * n_positions * g * d * n) as f64 / 1e9;
        println!(
            "attend {n_positions} x {g} heads of {d} over {n} {:9}: f32 {:5.1}, f16 {:5.1} G multiply-adds/s",
            isa.name(),
            work / f32_time,
            work / f16_time
        );
    }
}

fn main() {
    let only = std::env::args().nth(1).unwrap_or_default();
    if "products".contains(&only) {
        products(704, 2816, 64);
        products(2816, 704, 64);
        products(704, 2816, 7);
    }
    if "attention".contains(&only) {
        attention((1, 2, 256), 1024);
        attention((4, 2, 256), 1024);
        attention((1, 8, 512), 4096);
    }
    if "matvec".contains(&only) {
        matvec(2816);
        matvec(704);
    }
}
