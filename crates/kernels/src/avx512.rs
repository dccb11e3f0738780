//! x86-64 with AVX-512 F, BW, VL, DQ and VNNI (Ice Lake, Zen 4 and later).

use std::arch::x86_64::*;
use std::arch::{asm, is_x86_feature_detected};
use std::hint::black_box;

use half::f16;

use crate::fast::{TILES, TileGroup};
use crate::isa::{Lanes, Op};
use crate::lanes;
use crate::probe::{LINE, Streams};
use crate::quant_rows::Chunk;

/// Why it cannot run here.
pub(crate) fn missing() -> Option<&'static str> {
    let present = crate::avx2::missing().is_none()
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vnni");
    if present {
        None
    } else {
        Some("the processor lacks AVX-512 F, BW, VL, DQ or VNNI")
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

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn with_features<O: Op>(op: O) -> O::Output {
    op.run(Avx512(()))
}

/// Only `with_features` makes one, so where a value is, the instructions are.
#[derive(Clone, Copy)]
struct Avx512(());

impl Lanes for Avx512 {
    type Value = __m512;

    const HAS_MANY_REGISTERS: bool = true;

    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> __m512 {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { load_f32(x) }
    }

    #[inline(always)]
    fn load_f16(self, x: &[f16; 16]) -> __m512 {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { load_f16(x) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn store(self, x: __m512, y: &mut [f32; 16]) {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { store_f32(y, x) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves that the processor has the features.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn sums(self, x: &[__m512], y: &mut [f32]) {
        if let (Ok(x), Ok(y)) = (x.try_into(), y.try_into()) {
            // SAFETY: `self` proves that the processor has the features.
            return unsafe { sums_of_sixteen(x, y) };
        }
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
    fn dequantize<const BITS: usize>(self, codes: &[u8], scale: f32, bias: f32) -> [[f32; 16]; 4] {
        if BITS == 4 {
            // SAFETY: `self` proves that the processor has the features.
            return unsafe { dequantize_q4(codes, scale, bias) };
        }
        lanes::dequantize::<BITS>(codes, scale, bias)
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
        // SAFETY: `self` proves that the processor has the features.
        unsafe {
            match group.planes {
                1 => eight_or_four_rows::<BITS, PLANES, 1>(group, x, acc),
                _ => eight_or_four_rows::<BITS, PLANES, PLANES>(group, x, acc),
            }
        }
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

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn load_f16(x: &[f16; 16]) -> __m512 {
    // SAFETY: reads the 32 bytes of sixteen f16 (each a transparent u16); any address will do.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(x.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn narrow(x: &[f32; 16]) -> [f16; 16] {
    let mut y = [f16::ZERO; 16];
    // SAFETY: reads the 64 bytes of sixteen f32 and writes the 32 bytes of sixteen f16 (each a transparent u16); both may lie
    // at any address.
    unsafe {
        let half = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm512_loadu_ps(x.as_ptr()));
        _mm256_storeu_si256(y.as_mut_ptr().cast(), half);
    }
    y
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn dots<const BITS: usize>(packed: &[u8], n: usize, x: &Chunk) -> [[i32; 16]; 2] {
    let zero = _mm512_setzero_si512();
    let low = four_pairs::<BITS>(packed, 0, x);
    let high = if n > 8 {
        four_pairs::<BITS>(packed, 4, x)
    } else {
        zero
    };
    // Lane `8 * (g % 2) + 4 * block + g / 2` of `low` belongs to group `g` of 0..8, and so on in `high`.
    let first = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 16, 24, 17, 25, 18, 26, 19, 27);
    let second = _mm512_add_epi32(first, _mm512_set1_epi32(4));
    let mut y = [[0; 16]; 2];
    store(&mut y[0], _mm512_permutex2var_epi32(low, first, high));
    store(&mut y[1], _mm512_permutex2var_epi32(low, second, high));
    y
}

/// The dots of the eight groups from pair `first` on: in each quarter of the register one block of even or odd groups.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn four_pairs<const BITS: usize>(packed: &[u8], first: usize, x: &Chunk) -> __m512i {
    let a = pair::<BITS>(packed, first, x);
    let b = pair::<BITS>(packed, first + 1, x);
    let c = pair::<BITS>(packed, first + 2, x);
    let d = pair::<BITS>(packed, first + 3, x);
    let ab = _mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_unpacklo_epi64(a, b),
        _mm512_unpackhi_epi64(a, b),
    ));
    let cd = _mm512_castsi512_ps(_mm512_add_epi32(
        _mm512_unpacklo_epi64(c, d),
        _mm512_unpackhi_epi64(c, d),
    ));
    let even = _mm512_castps_si512(_mm512_shuffle_ps::<0x88>(ab, cd));
    let odd = _mm512_castps_si512(_mm512_shuffle_ps::<0xdd>(ab, cd));
    _mm512_add_epi32(even, odd)
}

/// Two groups: four partial sums for each of their four blocks.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn pair<const BITS: usize>(packed: &[u8], i: usize, x: &Chunk) -> __m512i {
    let (even, odd) = if BITS == 4 {
        let mask = _mm512_set1_epi8(15);
        let codes = load_u8(packed, i);
        (
            _mm512_and_si512(codes, mask),
            _mm512_and_si512(_mm512_srli_epi16::<4>(codes), mask),
        )
    } else {
        let (a, b) = (load_u8(packed, 2 * i), load_u8(packed, 2 * i + 1));
        let mask = _mm512_set1_epi16(255);
        // `packus` interleaves the eighths of its arguments.
        let order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
        let even = _mm512_packus_epi16(_mm512_and_si512(a, mask), _mm512_and_si512(b, mask));
        let odd = _mm512_packus_epi16(_mm512_srli_epi16::<8>(a), _mm512_srli_epi16::<8>(b));
        (
            _mm512_permutexvar_epi64(order, even),
            _mm512_permutexvar_epi64(order, odd),
        )
    };
    let sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), even, load_i8(&x.even, i));
    _mm512_dpbusd_epi32(sum, odd, load_i8(&x.odd, i))
}

/// The `i`-th 64 bytes, zeros where there are fewer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn load_u8(bytes: &[u8], i: usize) -> __m512i {
    if let Some(bytes) = bytes.get(i * 64..(i + 1) * 64) {
        // SAFETY: reads the 64 bytes of the slice just cut; any address will do.
        return unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
    }
    match bytes.get(i * 64..) {
        None | Some([]) => _mm512_setzero_si512(),
        // SAFETY: the mask has one bit for each of the fewer than 64 bytes of the slice, and the others are not read.
        Some(rest) => unsafe {
            _mm512_maskz_loadu_epi8((1 << rest.len()) - 1, rest.as_ptr().cast())
        },
    }
}

/// The `i`-th 64 codes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn load_i8(codes: &[i8; 512], i: usize) -> __m512i {
    let codes = &codes[i * 64..(i + 1) * 64];
    // SAFETY: reads the 64 bytes of the slice just cut; any address will do.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn store(y: &mut [i32; 16], v: __m512i) {
    // SAFETY: writes the 64 bytes of the array; any address will do.
    unsafe { _mm512_storeu_si512(y.as_mut_ptr().cast(), v) }
}

/// Four rounds that swap ever larger squares: single words, pairs, fours, eights.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn transpose(m: &[[u32; 16]; 16], y: &mut [[u32; 16]; 16]) {
    let mut v = [_mm512_setzero_si512(); 16];
    for (v, row) in v.iter_mut().zip(m) {
        *v = load_u32(row);
    }
    let mut pairs = v;
    for i in (0..16).step_by(2) {
        pairs[i] = _mm512_unpacklo_epi32(v[i], v[i + 1]);
        pairs[i + 1] = _mm512_unpackhi_epi32(v[i], v[i + 1]);
    }
    // Quarter `q` of `fours[4 i + j]` is column `4 q + j` of rows `4 i..4 i + 4`.
    let mut fours = v;
    for i in (0..16).step_by(4) {
        fours[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
        fours[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
        fours[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
        fours[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
    }
    for j in 0..4 {
        let (a, b, c, d) = (fours[j], fours[4 + j], fours[8 + j], fours[12 + j]);
        // Quarters 0 and 2 of two registers, then 1 and 3.
        let (ab_even, ab_odd) = (
            _mm512_shuffle_i32x4::<0x88>(a, b),
            _mm512_shuffle_i32x4::<0xdd>(a, b),
        );
        let (cd_even, cd_odd) = (
            _mm512_shuffle_i32x4::<0x88>(c, d),
            _mm512_shuffle_i32x4::<0xdd>(c, d),
        );
        store_u32(&mut y[j], _mm512_shuffle_i32x4::<0x88>(ab_even, cd_even));
        store_u32(
            &mut y[8 + j],
            _mm512_shuffle_i32x4::<0xdd>(ab_even, cd_even),
        );
        store_u32(&mut y[4 + j], _mm512_shuffle_i32x4::<0x88>(ab_odd, cd_odd));
        store_u32(&mut y[12 + j], _mm512_shuffle_i32x4::<0xdd>(ab_odd, cd_odd));
    }
}

/// Half a group of a panel times rows of activations: `[row][tile]`. Sixteen chains hide the latency of the multiply-adds, and an
/// activation loaded serves both tiles.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn block_dots<const BITS: usize, const ROWS: usize>(
    codes: &[&[[u32; 16]]; TILES],
    x: &[&Chunk; ROWS],
    g: usize,
    block: usize,
) -> [[__m512i; TILES]; ROWS] {
    let mut sums = [[_mm512_setzero_si512(); TILES]; ROWS];
    for k in block * 4..(block + 1) * 4 {
        let [(even_0, odd_0), (even_1, odd_1)] =
            [split::<BITS>(codes[0], k), split::<BITS>(codes[1], k)];
        for r in 0..ROWS {
            let x = quad(&x[r].even, g * 8 + k);
            sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], even_0, x);
            sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], even_1, x);
        }
        for [a, b] in &mut sums {
            keep_order(a, b);
        }
        for r in 0..ROWS {
            let x = quad(&x[r].odd, g * 8 + k);
            sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], odd_0, x);
            sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], odd_1, x);
        }
        for [a, b] in &mut sums {
            keep_order(a, b);
        }
    }
    sums
}

/// The `k`-th four codes of even and of odd index of a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn split<const BITS: usize>(codes: &[[u32; 16]], k: usize) -> (__m512i, __m512i) {
    if BITS == 8 {
        return (load_u32(&codes[2 * k]), load_u32(&codes[2 * k + 1]));
    }
    let mask = _mm512_set1_epi8(15);
    let both = load_u32(&codes[k]);
    (
        _mm512_and_si512(both, mask),
        _mm512_and_si512(_mm512_srli_epi32::<4>(both), mask),
    )
}

/// Nothing, at this point of the program: the compiler would otherwise put the multiply-adds of a row behind each other, where each waits
/// five cycles for the one before.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn keep_order(a: &mut __m512i, b: &mut __m512i) {
    // SAFETY: no instruction at all; both registers come out as they went in.
    unsafe {
        asm!(
            "/* {0} {1} */",
            inout(zmm_reg) * a,
            inout(zmm_reg) * b,
            options(nomem, nostack, preserves_flags)
        );
    }
}

/// Four codes from the `i`-th four on, in every lane.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn quad(codes: &[i8; 512], i: usize) -> __m512i {
    assert!(i < 128);
    // SAFETY: reads four of the 512 codes: `i` is below a quarter of that; any address will do.
    _mm512_set1_epi32(unsafe { codes.as_ptr().add(4 * i).cast::<i32>().read_unaligned() })
}

/// [`tile_rows`] of rows that have codes in the first `USED` planes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn eight_or_four_rows<const BITS: usize, const PLANES: usize, const USED: usize>(
    group: &TileGroup<'_>,
    x: &[&[Chunk; PLANES]],
    acc: &mut [[[f32; 16]; TILES]],
) {
    let (x, acc) = (x.as_chunks::<8>(), acc.as_chunks_mut::<8>());
    for (x, acc) in x.0.iter().zip(acc.0) {
        tile_rows::<BITS, PLANES, USED, 8>(group, x, acc);
    }
    let (x, acc) = (x.1.as_chunks::<4>().0, acc.1.as_chunks_mut::<4>().0);
    for (x, acc) in x.iter().zip(acc) {
        tile_rows::<BITS, PLANES, USED, 4>(group, x, acc);
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn tile_rows<const BITS: usize, const PLANES: usize, const USED: usize, const ROWS: usize>(
    group: &TileGroup<'_>,
    x: &[&[Chunk; PLANES]; ROWS],
    acc: &mut [[[f32; 16]; TILES]; ROWS],
) {
    let g = group.g;
    let mut t = [[_mm512_setzero_ps(); TILES]; ROWS];
    let mut planes = [&x[0][0]; ROWS];
    for p in 0..USED {
        // Not `array::map`: it would be a call, and nothing stays in a register over a call.
        for (plane, x) in planes.iter_mut().zip(x) {
            *plane = &x[p];
        }
        for block in 0..2 {
            let dots = block_dots::<BITS, ROWS>(&group.codes, &planes, g, block);
            for r in 0..ROWS {
                let sx = _mm512_set1_ps(planes[r].scales[block][g]);
                for i in 0..TILES {
                    let dot = _mm512_cvtepi32_ps(dots[r][i]);
                    t[r][i] = if p == 0 && block == 0 {
                        _mm512_mul_ps(dot, sx)
                    } else {
                        _mm512_fmadd_ps(dot, sx, t[r][i])
                    };
                }
            }
        }
    }
    for i in 0..TILES {
        let scales = _mm512_castsi512_ps(load_u32(group.scales[i]));
        let biases = _mm512_castsi512_ps(load_u32(group.biases[i]));
        for r in 0..ROWS {
            let sum = _mm512_set1_ps(x[r][0].sums[g]);
            let before = if group.is_first {
                _mm512_setzero_ps()
            } else {
                load_f32(&acc[r][i])
            };
            let y = _mm512_fmadd_ps(scales, t[r][i], before);
            store_f32(&mut acc[r][i], _mm512_fmadd_ps(biases, sum, y));
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn load_f32(x: &[f32; 16]) -> __m512 {
    // SAFETY: reads the 64 bytes of the array; any address will do.
    unsafe { _mm512_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn load_u32(x: &[u32; 16]) -> __m512i {
    // SAFETY: reads the 64 bytes of the array; any address will do.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn store_u32(y: &mut [u32; 16], v: __m512i) {
    // SAFETY: writes the 64 bytes of the array; any address will do.
    unsafe { _mm512_storeu_si512(y.as_mut_ptr().cast(), v) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn sum(v: __m512) -> f32 {
    let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

/// Sums of sixteen registers at once. Each round adds one half of what is left of every sum to the other, lane `i + 8` to `i` first, and packs
/// two registers into one, so that a round costs half as much as the one before.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn sums_of_sixteen(x: &[__m512; 16], y: &mut [f32; 16]) {
    let mut eights = [_mm512_setzero_ps(); 8];
    for (i, v) in eights.iter_mut().enumerate() {
        // Halves of `i` and `i + 8`.
        let (a, b) = (x[i], x[i + 8]);
        *v = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0x44>(a, b),
            _mm512_shuffle_f32x4::<0xee>(a, b),
        );
    }
    let mut fours = [_mm512_setzero_ps(); 4];
    for (i, v) in fours.iter_mut().enumerate() {
        // Quarters of `i`, `i + 8`, `i + 4`, `i + 12`.
        let (a, b) = (eights[i], eights[i + 4]);
        *v = _mm512_add_ps(
            _mm512_shuffle_f32x4::<0x88>(a, b),
            _mm512_shuffle_f32x4::<0xdd>(a, b),
        );
    }
    let mut twos = [_mm512_setzero_ps(); 2];
    for (i, v) in twos.iter_mut().enumerate() {
        // Pairs of `i` and `i + 2` in each quarter.
        let (a, b) = (fours[i], fours[i + 2]);
        *v = _mm512_add_ps(
            _mm512_shuffle_ps::<0x44>(a, b),
            _mm512_shuffle_ps::<0xee>(a, b),
        );
    }
    let (a, b) = (twos[0], twos[1]);
    let sums = _mm512_add_ps(
        _mm512_shuffle_ps::<0x88>(a, b),
        _mm512_shuffle_ps::<0xdd>(a, b),
    );
    // A quarter holds `i`, `i + 2`, `i + 1`, `i + 3`; the quarters start at 0, 8, 4 and 12.
    let order = _mm512_setr_epi32(0, 2, 1, 3, 8, 10, 9, 11, 4, 6, 5, 7, 12, 14, 13, 15);
    store_f32(y, _mm512_permutexvar_ps(order, sums));
}

/// The sixteen possible weights of a group are one register; the codes look them up.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn dequantize_q4(codes: &[u8], scale: f32, bias: f32) -> [[f32; 16]; 4] {
    let all = _mm512_setr_ps(
        0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.,
    );
    let weights = _mm512_fmadd_ps(all, _mm512_set1_ps(scale), _mm512_set1_ps(bias));
    // Eight lanes take the first word and eight the second; each lane then moves its code to the low four bits.
    let words = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    let shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    let mut y = [[0.0; 16]; 4];
    for (y, bytes) in y.iter_mut().zip(codes.as_chunks::<8>().0) {
        let both = _mm512_set1_epi64(i64::from_le_bytes(*bytes));
        let codes = _mm512_srlv_epi32(_mm512_permutexvar_epi32(words, both), shifts);
        store_f32(y, _mm512_permutexvar_ps(codes, weights));
    }
    y
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn store_f32(y: &mut [f32; 16], v: __m512) {
    // SAFETY: writes the 64 bytes of the array; any address will do.
    unsafe { _mm512_storeu_ps(y.as_mut_ptr(), v) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn bf16(bytes: &[u8], n: usize) -> [f32; 16] {
    let pairs = bytes.as_chunks::<2>().0;
    let pairs = &pairs[..n.min(16)];
    // SAFETY: the mask has one bit for each of the at most sixteen pairs of the slice, and the others are not read.
    let half = unsafe {
        _mm256_maskz_loadu_epi16(((1u32 << pairs.len()) - 1) as u16, pairs.as_ptr().cast())
    };
    let mut y = [0.0; 16];
    store_f32(
        &mut y,
        _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(half))),
    );
    y
}

/// Sixteen chains: `vpdpbusd` takes five cycles and two may start in each.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn int8_peak(n: u64) -> u64 {
    let (codes, x) = (
        _mm512_set1_epi8(black_box(7)),
        _mm512_set1_epi8(black_box(-3)),
    );
    let mut sums = [_mm512_setzero_si512(); 16];
    for _ in 0..n {
        for sum in &mut sums {
            *sum = _mm512_dpbusd_epi32(*sum, codes, x);
        }
    }
    black_box(sums);
    n * 16 * 64
}

/// Sixteen chains: an fma takes four cycles and two may start in each.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn f32_peak(n: u64) -> u64 {
    // The sums approach 1: neither denormal nor infinite.
    let (a, b) = (
        _mm512_set1_ps(black_box(0.5)),
        _mm512_set1_ps(black_box(0.5)),
    );
    let mut sums = [_mm512_setzero_ps(); 16];
    for _ in 0..n {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    black_box(sums);
    n * 16 * 16
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
fn read_sum(streams: Streams<'_>) -> u64 {
    let mut sums = [_mm512_setzero_si512(); 4];
    for i in 0..streams[0].len() {
        for (sum, stream) in sums.iter_mut().zip(streams) {
            let line: &[u8; LINE] = &stream[i];
            // SAFETY: reads the 64 bytes of the array; any address will do.
            let words = unsafe { _mm512_loadu_si512(line.as_ptr().cast()) };
            *sum = _mm512_add_epi64(*sum, words);
        }
    }
    let sums = sums.map(|sum| _mm512_reduce_add_epi64(sum) as u64);
    sums.into_iter().fold(0, u64::wrapping_add)
}
