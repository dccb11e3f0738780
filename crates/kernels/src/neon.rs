//! aarch64 with NEON and the dot product.
//!
//! `sdot` and the f16 conversions go through inline assembly, because their intrinsics are not stable.

use std::arch::aarch64::*;
use std::arch::{asm, is_aarch64_feature_detected};
use std::hint::black_box;

use half::f16;

use crate::fast::{TILES, Tile, TileDots, TileGroup};
use crate::isa::{Lanes, Op};
use crate::lanes;
use crate::probe::{LINE, Streams};
use crate::quant_rows::Chunk;

/// Why it cannot run here.
pub(crate) fn missing() -> Option<&'static str> {
    let present = is_aarch64_feature_detected!("neon") && is_aarch64_feature_detected!("dotprod");
    if present {
        None
    } else {
        Some("the processor lacks NEON or its dot product")
    }
}

/// Runs `op` compiled for this instruction set.
///
/// # Panics
/// If the processor lacks it.
pub(crate) fn run<O: Op>(op: O) -> O::Output {
    if let Some(why) = missing() {
        panic!("{why}");
    }
    // SAFETY: `missing` found every feature that `with_features` enables.
    unsafe { with_features(op) }
}

#[target_feature(enable = "neon,dotprod")]
fn with_features<O: Op>(op: O) -> O::Output {
    op.run(Neon(()))
}

/// Only `with_features` makes one, so where a value is, the instructions are.
#[derive(Clone, Copy)]
struct Neon(());

impl Lanes for Neon {
    type Value = [f32; 16];

    const HAS_MANY_REGISTERS: bool = false;

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [f32; 16] {
        *x
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; 16]) -> [f32; 16] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { widen(x) }
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
        // SAFETY: `self` proves that the processor has the features.
        unsafe { narrow(x) }
    }

    #[inline(always)]
    fn sum(self, x: &[f32; 16]) -> f32 {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { sum(x) }
    }

    #[inline(always)]
    fn dots<const BITS: usize>(self, packed: &[u8], n: usize, x: &Chunk) -> [[i32; 16]; 2] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { dots::<BITS>(packed, n, x) }
    }

    #[inline(always)]
    fn transpose(self, m: &[[u32; 16]; 16], y: &mut [[u32; 16]; 16]) {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { transpose(m, y) }
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
        // SAFETY: `self` proves that the processor has the features.
        unsafe { read_sum(streams) }
    }

    #[inline(always)]
    fn int8_peak(self, n: u64) -> u64 {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { int8_peak(n) }
    }

    #[inline(always)]
    fn f32_peak(self, n: u64) -> u64 {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { f32_peak(n) }
    }
}

impl TileDots for Neon {
    #[inline(always)]
    fn tile_dots<const BITS: usize>(self, tile: &Tile, x: &Chunk, g: usize) -> [[i32; 16]; 2] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { tile_dots::<BITS>(tile, x, g) }
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn widen(x: &[f16; 16]) -> [f32; 16] {
    let mut y = [0.0; 16];
    for (y, x) in y
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip(x.as_chunks::<4>().0)
    {
        let wide: float32x4_t;
        // SAFETY: the load reads the 8 bytes of four f16 (each a transparent u16), the store writes the 16 bytes of four f32, both
        // at any address; the instruction between them belongs to NEON and touches registers only.
        unsafe {
            let half = vld1_u16(x.as_ptr().cast());
            asm!("fcvtl {y:v}.4s, {x:v}.4h", y = out(vreg) wide, x = in(vreg) half, options(pure, nomem, nostack));
            vst1q_f32(y.as_mut_ptr(), wide);
        }
    }
    y
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn narrow(x: &[f32; 16]) -> [f16; 16] {
    let mut y = [f16::ZERO; 16];
    for (y, x) in y
        .as_chunks_mut::<4>()
        .0
        .iter_mut()
        .zip(x.as_chunks::<4>().0)
    {
        let half: uint16x4_t;
        // SAFETY: the load reads the 16 bytes of four f32, the store writes the 8 bytes of four f16 (each a transparent u16), both
        // at any address; the instruction between them belongs to NEON and touches registers only.
        unsafe {
            let wide = vld1q_f32(x.as_ptr());
            asm!("fcvtn {y:v}.4h, {x:v}.4s", y = out(vreg) half, x = in(vreg) wide, options(pure, nomem, nostack));
            vst1_u16(y.as_mut_ptr().cast(), half);
        }
    }
    y
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dots<const BITS: usize>(packed: &[u8], n: usize, x: &Chunk) -> [[i32; 16]; 2] {
    let mut y = [[0; 16]; 2];
    for quarter in 0..4 {
        if quarter * 4 >= n {
            break;
        }
        for (block, y) in y.iter_mut().enumerate() {
            let mut parts = [vdupq_n_s32(0); 4];
            for (j, part) in parts.iter_mut().enumerate() {
                let i = (quarter * 4 + j) * 2 + block;
                if let Some(codes) = packed.get(i * BITS * 4..(i + 1) * BITS * 4) {
                    let (even, odd) = (load_i8(&x.even, i), load_i8(&x.odd, i));
                    *part = if BITS == 4 {
                        dot_q4(codes, even, odd)
                    } else {
                        dot_q8(codes, even, odd)
                    };
                }
            }
            let sums = vpaddq_s32(
                vpaddq_s32(parts[0], parts[1]),
                vpaddq_s32(parts[2], parts[3]),
            );
            store(y, quarter, sums);
        }
    }
    y
}

/// Four partial sums of a block.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot_q4(codes: &[u8], even: int8x16_t, odd: int8x16_t) -> int32x4_t {
    let codes = load_u8(codes, 0);
    let low = vreinterpretq_s8_u8(vandq_u8(codes, vdupq_n_u8(15)));
    let high = vreinterpretq_s8_u8(vshrq_n_u8::<4>(codes));
    sdot(sdot(vdupq_n_s32(0), low, even), high, odd)
}

/// The same of 8-bit codes: `sdot` is signed, so it takes `code - 128`, and 128 times the activations is added back.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot_q8(codes: &[u8], even: int8x16_t, odd: int8x16_t) -> int32x4_t {
    let (a, b) = (load_u8(codes, 0), load_u8(codes, 1));
    let flip = vdupq_n_u8(128);
    let even_codes = vreinterpretq_s8_u8(veorq_u8(vuzp1q_u8(a, b), flip));
    let odd_codes = vreinterpretq_s8_u8(veorq_u8(vuzp2q_u8(a, b), flip));
    let signed = sdot(sdot(vdupq_n_s32(0), even_codes, even), odd_codes, odd);
    let lowest = vreinterpretq_s8_u8(flip);
    let minus_128 = sdot(sdot(vdupq_n_s32(0), lowest, even), lowest, odd);
    vsubq_s32(signed, minus_128)
}

/// Adds to each lane of `sum` four products of `a` and `b`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot(mut sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    // SAFETY: the enclosing function enables the dot product, and the instruction touches registers only.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inout(vreg) sum, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack),
        );
    }
    sum
}

/// The `i`-th 16 bytes.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_u8(bytes: &[u8], i: usize) -> uint8x16_t {
    let bytes = &bytes[i * 16..(i + 1) * 16];
    // SAFETY: reads the 16 bytes of the slice just cut; any address will do.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

/// The `i`-th 16 codes.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_i8(codes: &[i8; 512], i: usize) -> int8x16_t {
    let codes = &codes[i * 16..(i + 1) * 16];
    // SAFETY: reads the 16 bytes of the slice just cut; any address will do.
    unsafe { vld1q_s8(codes.as_ptr()) }
}

/// Writes the `i`-th four elements.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn store(y: &mut [i32; 16], i: usize, v: int32x4_t) {
    let y = &mut y[i * 4..(i + 1) * 4];
    // SAFETY: writes the 16 bytes of the slice just cut; any address will do.
    unsafe { vst1q_s32(y.as_mut_ptr(), v) }
}

/// Sixteen squares of four by four.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn transpose(m: &[[u32; 16]; 16], y: &mut [[u32; 16]; 16]) {
    for top in 0..4 {
        for left in 0..4 {
            let mut v = [vdupq_n_u32(0); 4];
            for (i, v) in v.iter_mut().enumerate() {
                *v = load_u32(&m[top * 4 + i], left);
            }
            // Columns 0 and 2, then 1 and 3, of two rows.
            let (ab_even, ab_odd) = (vtrn1q_u32(v[0], v[1]), vtrn2q_u32(v[0], v[1]));
            let (cd_even, cd_odd) = (vtrn1q_u32(v[2], v[3]), vtrn2q_u32(v[2], v[3]));
            store_u64(
                &mut y[left * 4],
                top,
                vtrn1q_u64(pairs(ab_even), pairs(cd_even)),
            );
            store_u64(
                &mut y[left * 4 + 1],
                top,
                vtrn1q_u64(pairs(ab_odd), pairs(cd_odd)),
            );
            store_u64(
                &mut y[left * 4 + 2],
                top,
                vtrn2q_u64(pairs(ab_even), pairs(cd_even)),
            );
            store_u64(
                &mut y[left * 4 + 3],
                top,
                vtrn2q_u64(pairs(ab_odd), pairs(cd_odd)),
            );
        }
    }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn pairs(v: uint32x4_t) -> uint64x2_t {
    vreinterpretq_u64_u32(v)
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn tile_dots<const BITS: usize>(tile: &Tile, x: &Chunk, g: usize) -> [[i32; 16]; 2] {
    let flip = vdupq_n_u8(if BITS == 4 { 0 } else { 128 });
    let mut y = [[0; 16]; 2];
    let (even_x, odd_x) = (x.even_quads(g), x.odd_quads(g));
    for (block, y) in y.iter_mut().enumerate() {
        let mut start = 0;
        if BITS == 8 {
            // The codes below are 128 too small; see `dot_q8`.
            let i = 2 * g + block;
            let total = vaddlvq_s8(load_i8(&x.even, i)) + vaddlvq_s8(load_i8(&x.odd, i));
            start = 128 * i32::from(total);
        }
        let mut sums = [vdupq_n_s32(start); 4];
        for k in block * 4..(block + 1) * 4 {
            let even = vreinterpretq_s8_s32(vdupq_n_s32(even_x[k]));
            let odd = vreinterpretq_s8_s32(vdupq_n_s32(odd_x[k]));
            for (i, sum) in sums.iter_mut().enumerate() {
                let even_codes = veorq_u8(vreinterpretq_u8_u32(load_u32(&tile.even[k], i)), flip);
                let odd_codes = veorq_u8(vreinterpretq_u8_u32(load_u32(&tile.odd[k], i)), flip);
                *sum = sdot(*sum, vreinterpretq_s8_u8(even_codes), even);
                *sum = sdot(*sum, vreinterpretq_s8_u8(odd_codes), odd);
            }
        }
        for (i, sum) in sums.into_iter().enumerate() {
            store(y, i, sum);
        }
    }
    y
}

/// The `i`-th four words.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn load_u32(x: &[u32; 16], i: usize) -> uint32x4_t {
    let x = &x[i * 4..(i + 1) * 4];
    // SAFETY: reads the 16 bytes of the slice just cut; any address will do.
    unsafe { vld1q_u32(x.as_ptr()) }
}

/// Writes the `i`-th four words.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn store_u64(y: &mut [u32; 16], i: usize, v: uint64x2_t) {
    let y = &mut y[i * 4..(i + 1) * 4];
    // SAFETY: writes the 16 bytes of the slice just cut; any address will do.
    unsafe { vst1q_u32(y.as_mut_ptr(), vreinterpretq_u32_u64(v)) }
}

#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sum(x: &[f32; 16]) -> f32 {
    let mut v = [vdupq_n_f32(0.0); 4];
    for (v, x) in v.iter_mut().zip(x.as_chunks::<4>().0) {
        // SAFETY: reads the 16 bytes of four elements; any address will do.
        *v = unsafe { vld1q_f32(x.as_ptr()) };
    }
    let v = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
    let v = vadd_f32(vget_low_f32(v), vget_high_f32(v));
    vget_lane_f32::<0>(v) + vget_lane_f32::<1>(v)
}

/// Twenty-four chains: `sdot` takes three cycles and up to four may start in each, some processors' more of both.
#[target_feature(enable = "neon,dotprod")]
fn int8_peak(n: u64) -> u64 {
    let (codes, x) = (vdupq_n_s8(black_box(7)), vdupq_n_s8(black_box(-3)));
    let mut sums = [vdupq_n_s32(0); 24];
    for _ in 0..n {
        for sum in &mut sums {
            *sum = sdot(*sum, codes, x);
        }
    }
    black_box(sums);
    n * 24 * 16
}

/// Twenty-four chains: an fma takes four cycles and up to four may start in each.
#[target_feature(enable = "neon,dotprod")]
fn f32_peak(n: u64) -> u64 {
    // The sums approach 1: neither denormal nor infinite.
    let (a, b) = (vdupq_n_f32(black_box(0.5)), vdupq_n_f32(black_box(0.5)));
    let mut sums = [vdupq_n_f32(0.0); 24];
    for _ in 0..n {
        for sum in &mut sums {
            *sum = vfmaq_f32(b, *sum, a);
        }
    }
    black_box(sums);
    n * 24 * 4
}

#[target_feature(enable = "neon,dotprod")]
fn read_sum(streams: Streams<'_>) -> u64 {
    let mut sums = [vdupq_n_u64(0); 16];
    for i in 0..streams[0].len() {
        for (sums, stream) in sums.as_chunks_mut::<4>().0.iter_mut().zip(streams) {
            let line: &[u8; LINE] = &stream[i];
            for (sum, quarter) in sums.iter_mut().zip(line.as_chunks::<16>().0) {
                // SAFETY: reads the 16 bytes of the array; any address will do.
                let words = unsafe { vld1q_u8(quarter.as_ptr()) };
                *sum = vaddq_u64(*sum, vreinterpretq_u64_u8(words));
            }
        }
    }
    let sums = sums.map(|sum| vaddvq_u64(sum));
    sums.into_iter().fold(0, u64::wrapping_add)
}
