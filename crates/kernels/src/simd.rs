//! What an instruction set must say for itself: sixteen lanes of f32, and the integer dot products of a quant group.
//!
//! Every method is one step of IEEE arithmetic per lane or exact in integers, so that implementations cannot differ in a
//! bit. Sixteen lanes are one register of AVX-512, two of AVX2 and four of NEON. Buffers come as references to arrays, so
//! that lengths are proven before a load. A value of a type that implements `Simd` proves that the machine has it.

use half::f16;

/// Lanes of a vector.
pub const LANES: usize = 16;

/// An operation, compiled once per instruction set.
pub trait Op {
    /// What it returns.
    type Output;

    /// The body. Implementations are `#[inline(always)]`, as is everything that they call down to the `Simd` methods: code
    /// inlined into a function with a target feature is compiled with that feature.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// The lane operations of one instruction set. `v` of `V` is `v[0..16]` below.
pub trait Simd: Copy {
    /// Sixteen lanes of f32.
    type V: Copy;
    /// Two groups of 4-bit codes, unpacked: even elements and odd elements.
    type Q4: Copy;
    /// A group of 8-bit codes, unpacked.
    type Q8: Copy;

    /// Output rows that a product keeps under way at once, for one activation row. Enough chains to hide the latency of a
    /// multiply-add.
    const MATVEC_TILE: usize;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::V;
    /// `x`.
    fn load(self, x: &[f32; LANES]) -> Self::V;
    /// Widened, exact.
    fn load_f16(self, x: &[f16; LANES]) -> Self::V;
    /// Little-endian bf16, widened, exact.
    fn load_bf16(self, x: &[u8; 2 * LANES]) -> Self::V;
    /// `y = v`.
    fn store(self, v: Self::V, y: &mut [f32; LANES]);
    /// Rounded to nearest, ties to even; too large becomes infinite.
    fn store_f16(self, v: Self::V, y: &mut [f16; LANES]);
    /// Rounded to nearest, ties to even. Lanes are within -127..=127.
    fn store_i8(self, v: Self::V, y: &mut [i8; LANES]);

    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a > b ? a : b`, so `b` if either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a < b ? a : b`, so `b` if either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    fn round(self, a: Self::V) -> Self::V;
    /// `2^n` for integers n in -126..=127.
    fn exp2i(self, n: Self::V) -> Self::V;

    /// The sum by halves: lanes i and i + 8, then i and i + 4, then 2, then 1.
    fn sum(self, v: Self::V) -> f32;

    /// Eight lanes `a`, eight lanes `b`.
    fn spread2(self, a: f32, b: f32) -> Self::V;
    /// Four lanes of each.
    fn spread4(self, x: &[f32; 4]) -> Self::V;

    /// `scale * q + bias`, rounded once, for the 64 codes q of a group, in order.
    fn dequantize_q4(self, packed: &[u8; 32], scale: f32, bias: f32) -> [Self::V; 4];
    /// As `dequantize_q4`, of 8-bit codes.
    fn dequantize_q8(self, packed: &[u8; 64], scale: f32, bias: f32) -> [Self::V; 4];

    /// The codes of two groups.
    fn unpack_q4(self, packed: &[u8; 64]) -> Self::Q4;
    /// Lane i: `sum over k = 4 i .. 4 i + 4 of even code[k] * even[k] + odd code[k] * odd[k]`, exact.
    fn dot_q4(self, codes: Self::Q4, even: &[i8; 64], odd: &[i8; 64]) -> Self::V;
    /// The codes of one group.
    fn unpack_q8(self, packed: &[u8; 64]) -> Self::Q8;
    /// Lane i: `sum over k = 4 i .. 4 i + 4 of code[k] * x[k]`, exact, where `x[2 j] = even[j]` and `x[2 j + 1] = odd[j]`.
    fn dot_q8(self, codes: Self::Q8, even: &[i8; 32], odd: &[i8; 32]) -> Self::V;
}

/// The first `x.len() < 16` lanes from `x`, the others 0.
#[inline(always)]
pub fn load_part<S: Simd>(s: S, x: &[f32]) -> S::V {
    let mut lanes = [0.0; LANES];
    lanes[..x.len()].copy_from_slice(x);
    s.load(&lanes)
}

/// The first `y.len() < 16` lanes to `y`.
#[inline(always)]
pub fn store_part<S: Simd>(s: S, v: S::V, y: &mut [f32]) {
    let mut lanes = [0.0; LANES];
    s.store(v, &mut lanes);
    y.copy_from_slice(&lanes[..y.len()]);
}
