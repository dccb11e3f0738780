//! What a machine can do at best, for speeds to be stated as shares of it: how fast one thread reads, and how many multiply-adds
//! it does on registers alone.
//!
//! Each function is one thread's work; whoever measures starts as many threads as compute, each on a part of its own, and keeps the
//! time. The multiply-adds are those that the kernels of the instruction set use: `vpdpbusd`, `vpmaddubsw`, `sdot` or plain
//! Rust, and fused f32; in so many independent chains that only the units themselves are waited for.

use std::hint::black_box;

use crate::Isa;
use crate::isa::{Lanes, Op};

/// Streams that one thread reads side by side: processors fetch ahead in each, and one alone leaves a tenth of the bandwidth unused.
const STREAMS: usize = 4;
/// Bytes of a cache line: what a stream advances by.
pub(crate) const LINE: usize = 64;
/// The lines of each stream.
pub(crate) type Streams<'a> = [&'a [[u8; LINE]]; STREAMS];

/// Reads every byte and returns the sum of the little-endian words, so that no read can be left out. A rest that does not fill
/// 256 bytes is not read.
pub fn read_sum(isa: Isa, bytes: &[u8]) -> u64 {
    isa.run(ReadSum { bytes })
}

/// Runs `n_iterations` of int8 multiply-adds on registers and returns how many multiply-adds that was.
pub fn int8_peak(isa: Isa, n_iterations: u64) -> u64 {
    isa.run(Int8Peak { n_iterations })
}

/// Runs `n_iterations` of f32 multiply-adds on registers and returns how many multiply-adds that was.
pub fn f32_peak(isa: Isa, n_iterations: u64) -> u64 {
    isa.run(F32Peak { n_iterations })
}

struct ReadSum<'a> {
    bytes: &'a [u8],
}

impl Op for ReadSum<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> u64 {
        let lines = self.bytes.as_chunks::<LINE>().0;
        let n = lines.len() / STREAMS;
        lanes.read_sum(std::array::from_fn(|i| &lines[i * n..(i + 1) * n]))
    }
}

struct Int8Peak {
    n_iterations: u64,
}

impl Op for Int8Peak {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> u64 {
        lanes.int8_peak(black_box(self.n_iterations))
    }
}

struct F32Peak {
    n_iterations: u64,
}

impl Op for F32Peak {
    type Output = u64;

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) -> u64 {
        lanes.f32_peak(black_box(self.n_iterations))
    }
}
