//! x86-64 with AVX2, FMA and F16C.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;
use std::hint::black_box;

use half::f16;

use crate::fast::{TILES, Tile, TileDots, TileGroup};
use crate::isa::{Lanes, Op};
use crate::lanes;
use crate::probe::{LINE, Streams};
use crate::quant_rows::Chunk;

/// Why it cannot run here.
pub(crate) fn missing() -> Option<&'static str> {
    let present = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c");
    if present {
        None
    } else {
        Some("the processor lacks AVX2, FMA or F16C")
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

#[target_feature(enable = "avx2,fma,f16c")]
fn with_features<O: Op>(op: O) -> O::Output {
    op.run(Avx2(()))
}

/// Only `with_features` makes one, so where a value is, the instructions are.
#[derive(Clone, Copy)]
struct Avx2(());

impl Lanes for Avx2 {
    type Value = [__m256; 2];

    const HAS_MANY_REGISTERS: bool = false;

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> [__m256; 2] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { load_f32(x) }
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; 16]) -> [__m256; 2] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { load_f16(x) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> [__m256; 2] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    fn store(self, x: [__m256; 2], y: &mut [f32; 16]) {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { store_f32(y, x) }
    }

    #[inline(always)]
    fn fma(self, a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { fma(a, b, c) }
    }

    #[inline(always)]
    fn sums(self, x: &[[__m256; 2]], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            // SAFETY: `self` proves that the processor has the features.
            *y = unsafe { sum(*x) };
        }
    }

    #[inline(always)]
    fn narrow(self, x: &[f32; 16]) -> [f16; 16] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { narrow(x) }
    }

    #[inline(always)]
    fn sum(self, x: &[f32; 16]) -> f32 {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { sum(load_f32(x)) }
    }

    #[inline(always)]
    fn bf16(self, bytes: &[u8], n: usize) -> [f32; 16] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { bf16(bytes, n) }
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
    fn prefetch<T>(self, x: &[T], i: usize) {
        if let Some(line) = x.get(i * 64 / size_of::<T>()) {
            // SAFETY: a prefetch reads nothing that the program sees and never faults; every x86-64 has it.
            unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *line).cast()) };
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

impl TileDots for Avx2 {
    #[inline(always)]
    fn tile_dots<const BITS: usize>(self, tile: &Tile, x: &Chunk, g: usize) -> [[i32; 16]; 2] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { tile_dots::<BITS>(tile, x, g) }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f16(x: &[f16; 16]) -> [__m256; 2] {
    let half = |i: usize| &x[i * 8..(i + 1) * 8];
    // SAFETY: each reads the 16 bytes of eight f16 (each a transparent u16); any address will do.
    let (low, high) = unsafe {
        (
            _mm_loadu_si128(half(0).as_ptr().cast()),
            _mm_loadu_si128(half(1).as_ptr().cast()),
        )
    };
    [_mm256_cvtph_ps(low), _mm256_cvtph_ps(high)]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_f32(x: &[f32; 16]) -> [__m256; 2] {
    let half = |i: usize| &x[i * 8..(i + 1) * 8];
    // SAFETY: each reads the 32 bytes of eight f32; any address will do.
    unsafe {
        [
            _mm256_loadu_ps(half(0).as_ptr()),
            _mm256_loadu_ps(half(1).as_ptr()),
        ]
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store_f32(y: &mut [f32; 16], [low, high]: [__m256; 2]) {
    let (y_low, y_high) = y.split_at_mut(8);
    // SAFETY: each writes the 32 bytes of eight f32; any address will do.
    unsafe {
        _mm256_storeu_ps(y_low.as_mut_ptr(), low);
        _mm256_storeu_ps(y_high.as_mut_ptr(), high);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fma(a: [__m256; 2], b: [__m256; 2], c: [__m256; 2]) -> [__m256; 2] {
    [
        _mm256_fmadd_ps(a[0], b[0], c[0]),
        _mm256_fmadd_ps(a[1], b[1], c[1]),
    ]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn narrow(x: &[f32; 16]) -> [f16; 16] {
    let mut y = [f16::ZERO; 16];
    for (y, x) in y
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(x.as_chunks::<8>().0)
    {
        // SAFETY: reads the 32 bytes of eight f32 and writes the 16 bytes of eight f16 (each a transparent u16); both may lie
        // at any address.
        unsafe {
            let half = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(x.as_ptr()));
            _mm_storeu_si128(y.as_mut_ptr().cast(), half);
        }
    }
    y
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dots<const BITS: usize>(packed: &[u8], n: usize, x: &Chunk) -> [[i32; 16]; 2] {
    let mut y = [[0; 16]; 2];
    for half in 0..2 {
        if half * 8 >= n {
            break;
        }
        let mut groups = [_mm256_setzero_si256(); 8];
        for (j, group) in groups.iter_mut().enumerate() {
            let g = half * 8 + j;
            if let Some(codes) = packed.get(g * BITS * 8..(g + 1) * BITS * 8) {
                *group = if BITS == 4 {
                    dot_q4(codes, x, g)
                } else {
                    dot_q8(codes, x, g)
                };
            }
        }
        let [a, b, c, d, e, f, g, h] = groups;
        // Four lanes a block become one: `[groups 0..4 of block 0 | of block 1]`, and the same of groups 4..8.
        let low = _mm256_hadd_epi32(_mm256_hadd_epi32(a, b), _mm256_hadd_epi32(c, d));
        let high = _mm256_hadd_epi32(_mm256_hadd_epi32(e, f), _mm256_hadd_epi32(g, h));
        store(
            &mut y[0],
            half,
            _mm256_permute2x128_si256::<0x20>(low, high),
        );
        store(
            &mut y[1],
            half,
            _mm256_permute2x128_si256::<0x31>(low, high),
        );
    }
    y
}

/// Four partial sums of block 0, then four of block 1. A pair of products is at most `2 * 15 * 127`, so i16 holds two pairs.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot_q4(codes: &[u8], x: &Chunk, g: usize) -> __m256i {
    let mask = _mm256_set1_epi8(15);
    let codes = load_u8(codes, 0);
    let low = _mm256_and_si256(codes, mask);
    let high = _mm256_and_si256(_mm256_srli_epi16::<4>(codes), mask);
    let even = _mm256_maddubs_epi16(low, load_i8(&x.even, g));
    let odd = _mm256_maddubs_epi16(high, load_i8(&x.odd, g));
    _mm256_madd_epi16(_mm256_add_epi16(even, odd), _mm256_set1_epi16(1))
}

/// The same of 8-bit codes, widened first: `maddubs` would saturate at `2 * 255 * 127`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot_q8(codes: &[u8], x: &Chunk, g: usize) -> __m256i {
    let (even, odd) = (load_i8(&x.even, g), load_i8(&x.odd, g));
    let first = dot_q8_block(
        load_u8(codes, 0),
        _mm256_castsi256_si128(even),
        _mm256_castsi256_si128(odd),
    );
    let (even, odd) = (
        _mm256_extracti128_si256::<1>(even),
        _mm256_extracti128_si256::<1>(odd),
    );
    let second = dot_q8_block(load_u8(codes, 1), even, odd);
    let low = _mm256_permute2x128_si256::<0x20>(first, second);
    let high = _mm256_permute2x128_si256::<0x31>(first, second);
    _mm256_add_epi32(low, high)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn dot_q8_block(codes: __m256i, even: __m128i, odd: __m128i) -> __m256i {
    let even_codes = _mm256_and_si256(codes, _mm256_set1_epi16(255));
    let odd_codes = _mm256_srli_epi16::<8>(codes);
    let even = _mm256_madd_epi16(even_codes, _mm256_cvtepi8_epi16(even));
    let odd = _mm256_madd_epi16(odd_codes, _mm256_cvtepi8_epi16(odd));
    _mm256_add_epi32(even, odd)
}

/// The `i`-th 32 bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_u8(bytes: &[u8], i: usize) -> __m256i {
    let bytes = &bytes[i * 32..(i + 1) * 32];
    // SAFETY: reads the 32 bytes of the slice just cut; any address will do.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// The `i`-th 32 codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_i8(codes: &[i8; 512], i: usize) -> __m256i {
    let codes = &codes[i * 32..(i + 1) * 32];
    // SAFETY: reads the 32 bytes of the slice just cut; any address will do.
    unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
}

/// Writes the `i`-th eight elements.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store(y: &mut [i32; 16], i: usize, v: __m256i) {
    let y = &mut y[i * 8..(i + 1) * 8];
    // SAFETY: writes the 32 bytes of the slice just cut; any address will do.
    unsafe { _mm256_storeu_si256(y.as_mut_ptr().cast(), v) }
}

/// Four squares of eight by eight: words, pairs and halves of a register are swapped in turn.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn transpose(m: &[[u32; 16]; 16], y: &mut [[u32; 16]; 16]) {
    for top in 0..2 {
        for left in 0..2 {
            let mut v = [_mm256_setzero_si256(); 8];
            for (i, v) in v.iter_mut().enumerate() {
                *v = load_u32(&m[top * 8 + i], left);
            }
            let mut pairs = v;
            for i in (0..8).step_by(2) {
                pairs[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
                pairs[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
            }
            // Half `h` of `fours[4 i + j]` is column `4 h + j` of rows `4 i..4 i + 4`.
            let mut fours = v;
            for i in (0..8).step_by(4) {
                fours[i] = _mm256_unpacklo_epi64(pairs[i], pairs[i + 2]);
                fours[i + 1] = _mm256_unpackhi_epi64(pairs[i], pairs[i + 2]);
                fours[i + 2] = _mm256_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
                fours[i + 3] = _mm256_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
            }
            for j in 0..4 {
                let low = _mm256_permute2x128_si256::<0x20>(fours[j], fours[4 + j]);
                let high = _mm256_permute2x128_si256::<0x31>(fours[j], fours[4 + j]);
                store_u32(&mut y[left * 8 + j], top, low);
                store_u32(&mut y[left * 8 + 4 + j], top, high);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn tile_dots<const BITS: usize>(tile: &Tile, x: &Chunk, g: usize) -> [[i32; 16]; 2] {
    let mut y = [[0; 16]; 2];
    let (even_x, odd_x) = (x.even_quads(g), x.odd_quads(g));
    for (block, y) in y.iter_mut().enumerate() {
        let mut sums = [_mm256_setzero_si256(); 2];
        for k in block * 4..(block + 1) * 4 {
            let even = _mm256_set1_epi32(even_x[k]);
            let odd = _mm256_set1_epi32(odd_x[k]);
            for (half, sum) in sums.iter_mut().enumerate() {
                let (even_codes, odd_codes) =
                    (load_u32(&tile.even[k], half), load_u32(&tile.odd[k], half));
                *sum = if BITS == 4 {
                    // Eight pairs of products of at most `2 * 15 * 127` reach 30,480: i16 holds a block.
                    let sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(even_codes, even));
                    _mm256_add_epi16(sum, _mm256_maddubs_epi16(odd_codes, odd))
                } else {
                    let sum = _mm256_add_epi32(*sum, quads_q8(even_codes, even));
                    _mm256_add_epi32(sum, quads_q8(odd_codes, odd))
                };
            }
        }
        for (half, sum) in sums.into_iter().enumerate() {
            let sum = if BITS == 4 {
                _mm256_madd_epi16(sum, _mm256_set1_epi16(1))
            } else {
                sum
            };
            store(y, half, sum);
        }
    }
    y
}

/// Sums of four products of 8-bit codes, each pair widened to i16 first.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn quads_q8(codes: __m256i, x: __m256i) -> __m256i {
    let low = _mm256_and_si256(codes, _mm256_set1_epi16(255));
    let high = _mm256_srli_epi16::<8>(codes);
    let x_low = _mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(x));
    let x_high = _mm256_srai_epi16::<8>(x);
    _mm256_add_epi32(
        _mm256_madd_epi16(low, x_low),
        _mm256_madd_epi16(high, x_high),
    )
}

/// The `i`-th eight words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_u32(x: &[u32; 16], i: usize) -> __m256i {
    let x = &x[i * 8..(i + 1) * 8];
    // SAFETY: reads the 32 bytes of the slice just cut; any address will do.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

/// Writes the `i`-th eight words.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store_u32(y: &mut [u32; 16], i: usize, v: __m256i) {
    let y = &mut y[i * 8..(i + 1) * 8];
    // SAFETY: writes the 32 bytes of the slice just cut; any address will do.
    unsafe { _mm256_storeu_si256(y.as_mut_ptr().cast(), v) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sum([low, high]: [__m256; 2]) -> f32 {
    let v = _mm256_add_ps(low, high);
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

/// Loads all sixteen where the slice has them, and clears those from `n` on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn bf16(bytes: &[u8], n: usize) -> [f32; 16] {
    let Some(bytes) = bytes.first_chunk::<32>() else {
        return lanes::bf16(bytes, n);
    };
    let numbers = _mm256_setr_epi8(
        0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13,
        14, 14, 15, 15,
    );
    let wanted = _mm256_cmpgt_epi8(_mm256_set1_epi8(n.min(16) as i8), numbers);
    let half = _mm256_and_si256(load_u8(bytes, 0), wanted);
    let mut y = [0.0; 16];
    for (y, half) in y.as_chunks_mut::<8>().0.iter_mut().zip([
        _mm256_castsi256_si128(half),
        _mm256_extracti128_si256::<1>(half),
    ]) {
        let wide = _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(half));
        // SAFETY: writes the 32 bytes of eight f32; any address will do.
        unsafe { _mm256_storeu_ps(y.as_mut_ptr(), _mm256_castsi256_ps(wide)) };
    }
    y
}

/// Twelve chains: `vpmaddubsw` takes five cycles and two may start in each. Its own result is its next input, so that no product
/// can be taken out of the loop; the additions between them have a unit to spare.
#[target_feature(enable = "avx2,fma,f16c")]
fn int8_peak(n: u64) -> u64 {
    let x = _mm256_set1_epi8(black_box(-3));
    let mut sums = [_mm256_set1_epi8(black_box(7)); 12];
    for _ in 0..n {
        for sum in &mut sums {
            *sum = _mm256_maddubs_epi16(*sum, x);
        }
    }
    black_box(sums);
    n * 12 * 32
}

/// Twelve chains: an fma takes four or five cycles and two may start in each.
#[target_feature(enable = "avx2,fma,f16c")]
fn f32_peak(n: u64) -> u64 {
    // The sums approach 1: neither denormal nor infinite.
    let (a, b) = (
        _mm256_set1_ps(black_box(0.5)),
        _mm256_set1_ps(black_box(0.5)),
    );
    let mut sums = [_mm256_setzero_ps(); 12];
    for _ in 0..n {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
    n * 12 * 8
}

#[target_feature(enable = "avx2,fma,f16c")]
fn read_sum(streams: Streams<'_>) -> u64 {
    let mut sums = [_mm256_setzero_si256(); 8];
    for i in 0..streams[0].len() {
        for (sums, stream) in sums.as_chunks_mut::<2>().0.iter_mut().zip(streams) {
            let line: &[u8; LINE] = &stream[i];
            for (sum, half) in sums.iter_mut().zip(line.as_chunks::<32>().0) {
                // SAFETY: reads the 32 bytes of the array; any address will do.
                let words = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
                *sum = _mm256_add_epi64(*sum, words);
            }
        }
    }
    let mut sum = _mm256_setzero_si256();
    for part in sums {
        sum = _mm256_add_epi64(sum, part);
    }
    let words = [
        _mm256_extract_epi64::<0>(sum),
        _mm256_extract_epi64::<1>(sum),
        _mm256_extract_epi64::<2>(sum),
        _mm256_extract_epi64::<3>(sum),
    ];
    words.into_iter().fold(0, i64::wrapping_add) as u64
}
