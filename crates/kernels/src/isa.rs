//! The instruction sets, which of them this machine has, and how an operation gets compiled for each.
//!
//! An operation is a value of type [`Op`] whose `run` is written once, over arrays of sixteen lanes. Each instruction set's file has
//! one `#[target_feature]` function that calls it, so the compiler vectorises that body anew with the wider registers. It may
//! not reorder floating-point sums while doing so, which is why all of them return the same bits.

use half::f16;

use crate::fast::{TILES, TileGroup};
use crate::probe::Streams;
use crate::quant_rows::Chunk;
use crate::{absent, avx2, avx512, lanes, neon, portable};

/// An instruction set that the operations are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// What every machine of the target has; the yardstick of the others.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL, DQ and VNNI.
    Avx512,
    /// aarch64 with NEON and the dot product.
    Neon,
}

impl Isa {
    const ALL: [Isa; 4] = [Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Neon];

    /// The best instruction set of this machine.
    pub fn detect() -> Isa {
        let best = [Isa::Avx512, Isa::Avx2, Isa::Neon]
            .into_iter()
            .find(|isa| isa.missing().is_none());
        best.unwrap_or(Isa::Portable)
    }

    /// The instruction sets that this machine can run, from the plainest to the best.
    pub fn available() -> Vec<Isa> {
        Isa::ALL
            .into_iter()
            .filter(|isa| isa.missing().is_none())
            .collect()
    }

    /// The instruction sets that this machine cannot run, and why.
    pub fn unavailable() -> Vec<(Isa, &'static str)> {
        Isa::ALL
            .into_iter()
            .filter_map(|isa| Some((isa, isa.missing()?)))
            .collect()
    }

    /// The name in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }

    /// Why this machine cannot run it; `None` if it can.
    fn missing(self) -> Option<&'static str> {
        match self {
            Isa::Portable => None,
            Isa::Avx2 => avx2::missing(),
            Isa::Avx512 => avx512::missing(),
            Isa::Neon => neon::missing(),
        }
    }

    /// Runs `op` compiled for this instruction set.
    ///
    /// # Panics
    /// If this machine does not have it.
    pub(crate) fn run<O: Op>(self, op: O) -> O::Output {
        match self {
            Isa::Portable => portable::run(op),
            Isa::Avx2 => avx2::run(op),
            Isa::Avx512 => avx512::run(op),
            Isa::Neon => neon::run(op),
        }
    }
}

/// An operation with its arguments.
pub(crate) trait Op {
    type Output;

    /// Must be `#[inline(always)]`, and so must all it calls, to be compiled for the caller's instruction set.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// What a compiler does not find by itself: conversions and integer dot products of sixteen lanes.
///
/// A value of an implementing type is the proof that the machine has the instructions.
pub(crate) trait Lanes: Copy {
    /// Sixteen lanes, in as many registers as they take.
    type Value: Copy;

    /// Registers for sixteen values and what they are computed from; else for four.
    const HAS_MANY_REGISTERS: bool;

    fn load(self, x: &[f32; 16]) -> Self::Value;

    /// Exact.
    fn load_f16(self, x: &[f16; 16]) -> Self::Value;

    fn splat(self, x: f32) -> Self::Value;

    fn store(self, x: Self::Value, y: &mut [f32; 16]);

    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Value, b: Self::Value, c: Self::Value) -> Self::Value;

    /// The sum of the lanes of each, in the order of [`lanes::sum`].
    #[inline(always)]
    fn sums(self, x: &[Self::Value], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            let mut lanes = [0.0; 16];
            self.store(*x, &mut lanes);
            *y = self.sum(&lanes);
        }
    }

    /// Rounds to nearest, ties to even.
    fn narrow(self, x: &[f32; 16]) -> [f16; 16];

    /// The sum of the lanes in the order of [`lanes::sum`]. By hand, because the compiler packs the last steps of several sums
    /// together and pays more for the packing than it saves.
    fn sum(self, x: &[f32; 16]) -> f32;

    /// `scale * code + bias`, rounded once, of the 64 codes of a group, in order.
    #[inline(always)]
    fn dequantize<const BITS: usize>(self, codes: &[u8], scale: f32, bias: f32) -> [[f32; 16]; 4] {
        lanes::dequantize::<BITS>(codes, scale, bias)
    }

    /// The first `n` BF16 of `bytes`, which may hold more, widened; the other lanes 0.
    #[inline(always)]
    fn bf16(self, bytes: &[u8], n: usize) -> [f32; 16] {
        lanes::bf16(bytes, n)
    }

    /// Sums of code times activation of one plane over the `n` groups of a chunk: `[block of 32 in the group][group]`, 0 from
    /// group `n` on, because `x` is 0 there. `packed` starts at the first group and holds at least `n`; what follows is not
    /// the chunk's.
    fn dots<const BITS: usize>(self, packed: &[u8], n: usize, x: &Chunk) -> [[i32; 16]; 2];

    /// Rows of `m` become columns of `y`.
    fn transpose(self, m: &[[u32; 16]; 16], y: &mut [[u32; 16]; 16]);

    /// Asks for the cache line of the `i`-th 64 bytes, if there are so many. Changes no result.
    #[inline(always)]
    fn prefetch<T>(self, _x: &[T], _i: usize) {}

    /// One group of a panel times rows of activations, a multiple of [`LEAST_TILE_ROWS`](crate::fast::LEAST_TILE_ROWS) and at most
    /// [`TILE_ROWS`](crate::fast::TILE_ROWS): `acc` gains `scales * t`, then `biases * s`, as `fast.rs` defines them.
    fn tile_rows<const BITS: usize, const PLANES: usize>(
        self,
        group: &TileGroup<'_>,
        x: &[&[Chunk; PLANES]],
        acc: &mut [[[f32; 16]; TILES]],
    );

    /// The sum of the little-endian words of all streams, which are equally long.
    fn read_sum(self, streams: Streams<'_>) -> u64;

    /// Multiply-adds of int8 on registers, `n` times over; returns how many.
    fn int8_peak(self, n: u64) -> u64;

    /// Multiply-adds of f32 on registers, `n` times over; returns how many.
    fn f32_peak(self, n: u64) -> u64;
}

/// Never called: keeps `absent` in use on machines that lack nothing.
const _: fn() -> Option<&'static str> = absent::missing;
