//! x86-64 with AVX2, FMA and F16C.

use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;

use half::f16;

use crate::isa::{Lanes, Op};
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
    #[inline(always)]
    fn widen(self, x: &[f16; 16]) -> [f32; 16] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { widen(x) }
    }

    #[inline(always)]
    fn narrow(self, x: &[f32; 16]) -> [f16; 16] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { narrow(x) }
    }

    #[inline(always)]
    fn dots<const BITS: usize>(self, packed: &[u8], n: usize, x: &Chunk) -> [[i32; 16]; 2] {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { dots::<BITS>(packed, n, x) }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn widen(x: &[f16; 16]) -> [f32; 16] {
    let mut y = [0.0; 16];
    for (y, x) in y
        .as_chunks_mut::<8>()
        .0
        .iter_mut()
        .zip(x.as_chunks::<8>().0)
    {
        // SAFETY: reads the 16 bytes of eight f16 (each a transparent u16) and writes the 32 bytes of eight f32; both may lie
        // at any address.
        unsafe {
            _mm256_storeu_ps(
                y.as_mut_ptr(),
                _mm256_cvtph_ps(_mm_loadu_si128(x.as_ptr().cast())),
            )
        };
    }
    y
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
