//! One safe function per operation, for every instruction set at hand.
//!
//! Shapes come as slices and are asserted at the door; nothing here knows files, layers or the model's shape, only
//! `pool.rs` knows threads, and no operation allocates, but for a thread's first product of many rows ([`Pool::THREAD_BYTES`]). A row's result depends on that row alone, and **every instruction set returns the same bits**: sums run in
//! sixteen f32 lanes with fused multiply-adds and end in one fixed tree, integer sums are exact, and `exp` and `tanh` are our
//! own polynomials. Each operation is written once, over arrays of sixteen lanes, and compiled once per instruction
//! set (`isa.rs`); only what a compiler cannot find by itself is written by hand (one file per instruction set).
//! One of the two rooms where unsafe code may live.

mod absent;
mod attention;
mod columns;
mod elementwise;
mod exact;
mod fast;
mod isa;
mod lanes;
mod math;
mod norm;
mod pool;
mod portable;
pub mod probe;
mod quant_matrix;
mod quant_rows;
mod rope;
mod select;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

#[cfg(not(target_arch = "x86_64"))]
use absent as avx2;
#[cfg(not(target_arch = "x86_64"))]
use absent as avx512;
#[cfg(not(target_arch = "aarch64"))]
use absent as neon;

pub use attention::{
    Attend, KEY_BLOCK, KvRows, KvSegment, MAX_POSITIONS, Query, attend, merge_partials, partial_len,
};
pub use columns::Columns;
pub use elementwise::{add_scaled, geglu, scale, softcap, to_f16};
pub use exact::{dequantize_row, matmul};
pub use fast::matmul_i8;
pub use isa::Isa;
pub use norm::{rms_norm, rms_norm_in_place};
pub use pool::Pool;
pub use quant_matrix::{Bits, GROUP, QuantMatrix};
pub use quant_rows::{QuantRows, QuantSlice, quantize, quantize_shared};
pub use rope::rope;
pub use select::{softmax, top_k};
