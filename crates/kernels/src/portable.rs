//! Plain Rust: complete, and the yardstick of the others.

use std::hint::black_box;

use half::f16;

use crate::fast::{TILES, Tile, TileDots, TileGroup};
use crate::isa::{Lanes, Op};
use crate::lanes;
use crate::probe::{LINE, Streams};
use crate::quant_rows::Chunk;

/// Runs `op` with what every machine of the target has.
pub(crate) fn run<O: Op>(op: O) -> O::Output {
    op.run(Portable)
}

#[derive(Clone, Copy)]
struct Portable;

impl Lanes for Portable {
    type Value = [f32; 16];

    const HAS_MANY_REGISTERS: bool = false;

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [f32; 16] {
        *x
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; 16]) -> [f32; 16] {
        x.map(|x| x.to_f32_const())
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [f32; 16] {
        [x; 16]
    }

    #[inline(always)]
    fn store(self, x: [f32; 16], y: &mut [f32; 16]) {
        *y = x;
    }

    #[inline(always)]
    fn fma(self, a: [f32; 16], b: [f32; 16], c: [f32; 16]) -> [f32; 16] {
        lanes::fma(a, b, c)
    }

    #[inline(always)]
    fn narrow(self, x: &[f32; 16]) -> [f16; 16] {
        x.map(f16::from_f32_const)
    }

    #[inline(always)]
    fn sum(self, x: &[f32; 16]) -> f32 {
        lanes::sum(*x)
    }

    #[inline(always)]
    fn dots<const BITS: usize>(self, packed: &[u8], n: usize, x: &Chunk) -> [[i32; 16]; 2] {
        let mut y = [[0; 16]; 2];
        for (i, codes) in packed.chunks_exact(BITS * 4).take(2 * n).enumerate() {
            let (even, odd) = (&x.even[i * 16..(i + 1) * 16], &x.odd[i * 16..(i + 1) * 16]);
            y[i % 2][i / 2] = block_dot::<BITS>(codes, even, odd);
        }
        y
    }

    #[inline(always)]
    fn transpose(self, m: &[[u32; 16]; 16], y: &mut [[u32; 16]; 16]) {
        for (i, column) in y.iter_mut().enumerate() {
            for (y, row) in column.iter_mut().zip(m) {
                *y = row[i];
            }
        }
    }

    #[inline(always)]
    fn tile_rows<const BITS: usize, const PLANES: usize>(
        self,
        group: &TileGroup<'_>,
        x: &[&[Chunk; PLANES]],
        acc: &mut [[[f32; 16]; TILES]],
    ) {
        group.rows_by_dots::<Self, BITS, PLANES>(self, x, acc);
    }

    #[inline(always)]
    fn read_sum(self, streams: Streams<'_>) -> u64 {
        let mut sums = [0u64; LINE / 8];
        for i in 0..streams[0].len() {
            for stream in streams {
                for (sum, word) in sums.iter_mut().zip(stream[i].as_chunks::<8>().0) {
                    *sum = sum.wrapping_add(u64::from_le_bytes(*word));
                }
            }
        }
        sums.into_iter().fold(0, u64::wrapping_add)
    }

    /// Both factors come from memory each time, as they do in the kernels; a compiler that saw them would multiply once.
    #[inline(always)]
    fn int8_peak(self, n: u64) -> u64 {
        let (codes, x) = ([7u8; 64], [-3i8; 64]);
        let mut sums = [0i32; 16];
        for _ in 0..n {
            let (codes, x) = (black_box(&codes), black_box(&x));
            for i in 0..64 {
                let product = i32::from(codes[i]) * i32::from(x[i]);
                sums[i % 16] = sums[i % 16].wrapping_add(product);
            }
        }
        black_box(sums);
        n * 64
    }

    #[inline(always)]
    fn f32_peak(self, n: u64) -> u64 {
        // The sums approach 1: neither denormal nor infinite.
        let (a, b) = (black_box([0.5; 16]), black_box([0.5; 16]));
        let mut sums = [[0.0; 16]; 2];
        for _ in 0..n {
            for sum in &mut sums {
                *sum = lanes::fma(*sum, a, b);
            }
        }
        black_box(sums);
        n * 2 * 16
    }
}

impl TileDots for Portable {
    #[inline(always)]
    fn tile_dots<const BITS: usize>(self, tile: &Tile, x: &Chunk, g: usize) -> [[i32; 16]; 2] {
        let mut y = [[0; 16]; 2];
        let (even_x, odd_x) = (x.even_quads(g), x.odd_quads(g));
        for k in 0..8 {
            let (even, odd) = (even_x[k].to_le_bytes(), odd_x[k].to_le_bytes());
            for (i, y) in y[k / 4].iter_mut().enumerate() {
                *y += quad_dot(tile.even[k][i], even) + quad_dot(tile.odd[k][i], odd);
            }
        }
        y
    }
}

/// Four codes times four activations.
#[inline(always)]
fn quad_dot(codes: u32, x: [u8; 4]) -> i32 {
    let codes = codes.to_le_bytes();
    (0..4)
        .map(|i| i32::from(codes[i]) * i32::from(x[i] as i8))
        .sum()
}

/// Code times activation over a block of 32.
#[inline(always)]
fn block_dot<const BITS: usize>(codes: &[u8], even: &[i8], odd: &[i8]) -> i32 {
    let mut sum = 0;
    for i in 0..16 {
        let (a, b) = if BITS == 4 {
            (codes[i] & 15, codes[i] >> 4)
        } else {
            (codes[2 * i], codes[2 * i + 1])
        };
        sum += i32::from(a) * i32::from(even[i]) + i32::from(b) * i32::from(odd[i]);
    }
    sum
}
