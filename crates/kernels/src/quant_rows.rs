//! Activations as int8: what the fast products read.
//!
//! Each block of 32 elements has its own scale, `sx = absmax / 127`, and its codes `xq = round(x / sx)`. Where one element drowns the others
//! of its block, a second plane holds the codes of what the first left over; elsewhere it is zero and is not multiplied. Elements of even and of odd index lie apart, so that the low and the high halves of packed 4-bit
//! bytes meet their partners without a shuffle. Sixteen groups make a chunk, padded with zeros at a row's end.
//!
//! Why 32 and why a second plane: norm of the error over the norm of the outputs, 256 x 2112 weights of 4 bits, 64 rows.
//!
//! | rows | per 64 | per 32 | per 32, second plane in every block |
//! |---|---|---|---|
//! | gaussian | 0.60 % | 0.54 % | 0.0020 % |
//! | gaussian with one element of 1.3e5 | 0.0060 % | 0.0042 % | 2.3e-7 |
//! | the same, against the norm without that element | 17 % | 12 % | 0.06 % |
//! | GeGLU product of gaussians | 1.01 % | 0.83 % | 0.0033 % |
//! | GeGLU product with log-normal tails | 1.24 % | 0.94 % | 0.0041 % |
//!
//! Gemma's GeGLU products have such elements, so the third line is what a second plane is for. In every block it costs half of the speed
//! of a down projection, and likelihood does not see it (`docs/experiments.md`). A scale per 32 costs the kernels one multiply-add a
//! group. With the exact sum of `x` in the bias term the errors of one plane are 1.7 to 1.9 times larger.

use std::ops::Range;

use crate::Pool;
use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{F, LANES, add, fma, largest, map, max, sum};
use crate::math::ROUND;
use crate::quant_matrix::GROUP;

/// Groups of a chunk: one lane each.
pub(crate) const CHUNK_GROUPS: usize = LANES;
/// Elements that share an activation scale.
pub(crate) const BLOCK: usize = 32;

/// One plane of sixteen groups of a row.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Chunk {
    /// Codes of the elements of even index, 32 a group.
    pub even: [i8; CHUNK_GROUPS * GROUP / 2],
    /// Codes of the elements of odd index.
    pub odd: [i8; CHUNK_GROUPS * GROUP / 2],
    /// Scales, `[block of the group][group]`.
    pub scales: [F; 2],
    /// Over the group and all planes, `sum of scale * code`; kept in the first plane.
    pub sums: F,
}

impl Chunk {
    /// Makes block `b` of group `g` zero.
    #[inline(always)]
    fn clear(&mut self, b: usize, g: usize) {
        let at = g * GROUP / 2 + b * LANES;
        self.even[at..at + LANES].fill(0);
        self.odd[at..at + LANES].fill(0);
        self.scales[b][g] = 0.0;
    }

    /// For each group, not zero where it has a code that is not zero: bits of its scales.
    #[inline(always)]
    pub(crate) fn used_groups(&self) -> [u32; LANES] {
        let mut used = [0; LANES];
        for (i, used) in used.iter_mut().enumerate() {
            *used = self.scales[0][i].to_bits() | self.scales[1][i].to_bits();
        }
        used
    }

    /// The codes of even index of group `g`, four at a time.
    #[inline(always)]
    pub(crate) fn even_quads(&self, g: usize) -> [i32; 8] {
        quads(&self.even.as_chunks::<{ GROUP / 2 }>().0[g])
    }

    /// The same of odd index.
    #[inline(always)]
    pub(crate) fn odd_quads(&self, g: usize) -> [i32; 8] {
        quads(&self.odd.as_chunks::<{ GROUP / 2 }>().0[g])
    }
}

#[inline(always)]
fn quads(codes: &[i8; GROUP / 2]) -> [i32; 8] {
    let mut quads = [0; 8];
    for (quad, codes) in quads.iter_mut().zip(codes.as_chunks::<4>().0) {
        *quad = i32::from_le_bytes([
            codes[0] as u8,
            codes[1] as u8,
            codes[2] as u8,
            codes[3] as u8,
        ]);
    }
    quads
}

const ZERO: Chunk = Chunk {
    even: [0; CHUNK_GROUPS * GROUP / 2],
    odd: [0; CHUNK_GROUPS * GROUP / 2],
    scales: [[0.0; LANES]; 2],
    sums: [0.0; LANES],
};

/// Rows of int8 activations, filled by [`quantize`].
#[derive(Debug)]
pub struct QuantRows {
    /// `[n, chunks of a row, planes]`.
    chunks: Vec<Chunk>,
    n_rows: usize,
    n_in: usize,
    planes: usize,
}

impl QuantRows {
    /// Room for `max_rows` rows of up to `max_n_in` elements in up to `planes` planes, see [`quantize`].
    pub fn new(max_rows: usize, max_n_in: usize, planes: usize) -> QuantRows {
        QuantRows {
            chunks: vec![ZERO; max_rows * n_chunks(max_n_in) * planes],
            n_rows: 0,
            n_in: 0,
            planes: 0,
        }
    }

    /// Bytes that [`QuantRows::new`] allocates.
    pub fn bytes(max_rows: usize, max_n_in: usize, planes: usize) -> usize {
        max_rows * n_chunks(max_n_in) * planes * size_of::<Chunk>()
    }

    /// All rows held.
    pub fn all(&self) -> QuantSlice<'_> {
        let row_chunks = n_chunks(self.n_in) * self.planes;
        QuantSlice {
            n_rows: self.n_rows,
            chunks: &self.chunks[..self.n_rows * row_chunks],
            row_chunks,
            n_in: self.n_in,
            planes: self.planes,
        }
    }

    /// Takes on the shape of `x`, and hands out the chunks of its rows.
    fn prepare(&mut self, x: &[f32], n_in: usize, planes: usize) -> &mut [Chunk] {
        assert!(
            n_in.is_multiple_of(GROUP) && n_in > 0,
            "n_in {n_in} is not whole groups of {GROUP}"
        );
        assert!(
            x.len().is_multiple_of(n_in),
            "{} elements are not rows of {n_in}",
            x.len()
        );
        assert!(planes == 1 || planes == 2, "{planes} planes");
        let n_rows = x.len() / n_in;
        let n = n_rows * n_chunks(n_in) * planes;
        assert!(
            n <= self.chunks.len(),
            "no room for {n_rows} rows of {n_in} in {planes} planes"
        );
        (self.n_rows, self.n_in, self.planes) = (n_rows, n_in, planes);
        &mut self.chunks[..n]
    }
}

/// Some rows of [`QuantRows`].
#[derive(Clone, Copy, Debug)]
pub struct QuantSlice<'a> {
    chunks: &'a [Chunk],
    n_rows: usize,
    row_chunks: usize,
    n_in: usize,
    planes: usize,
}

impl<'a> QuantSlice<'a> {
    /// Some of the rows.
    ///
    /// # Panics
    /// If there are no such rows.
    pub fn rows(&self, rows: Range<usize>) -> QuantSlice<'a> {
        QuantSlice {
            n_rows: rows.len(),
            chunks: &self.chunks[rows.start * self.row_chunks..rows.end * self.row_chunks],
            ..*self
        }
    }

    /// How many rows.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Elements of a row.
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    /// Planes held.
    pub(crate) fn planes(&self) -> usize {
        self.planes
    }

    /// The chunks of row `r`, planes of a chunk side by side.
    #[inline(always)]
    pub(crate) fn row(&self, r: usize) -> &'a [Chunk] {
        &self.chunks[r * self.row_chunks..(r + 1) * self.row_chunks]
    }
}

/// Chunks of a row.
fn n_chunks(n_in: usize) -> usize {
    n_in.div_ceil(CHUNK_GROUPS * GROUP)
}

/// Quantizes the rows `x`, `[n, n_in]`, to int8: in one plane, or in two of which the second serves the blocks that have an outlier. A block
/// whose largest magnitude is below 1e-30 becomes zero.
///
/// # Panics
/// If `n_in` is not whole groups of 64, `planes` is not 1 or 2, or `out` lacks room.
pub fn quantize(isa: Isa, x: &[f32], n_in: usize, planes: usize, out: &mut QuantRows) {
    let chunks = out.prepare(x, n_in, planes);
    isa.run(Quantize {
        x,
        n_in,
        planes,
        chunks,
    });
}

/// [`quantize`] with the rows shared among the threads of `pool`.
///
/// # Panics
/// As [`quantize`].
pub fn quantize_shared(
    pool: &Pool,
    isa: Isa,
    x: &[f32],
    n_in: usize,
    planes: usize,
    out: &mut QuantRows,
) {
    let chunks = out.prepare(x, n_in, planes);
    pool.for_each_chunk(chunks, n_chunks(n_in) * planes, &|row, chunks| {
        let x = &x[row * n_in..(row + 1) * n_in];
        isa.run(Quantize {
            x,
            n_in,
            planes,
            chunks,
        });
    });
}

struct Quantize<'a> {
    x: &'a [f32],
    n_in: usize,
    planes: usize,
    chunks: &'a mut [Chunk],
}

impl Op for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let row_chunks = n_chunks(self.n_in) * self.planes;
        for (x, chunks) in self
            .x
            .chunks_exact(self.n_in)
            .zip(self.chunks.chunks_exact_mut(row_chunks))
        {
            for (x, planes) in x
                .chunks(CHUNK_GROUPS * GROUP)
                .zip(chunks.chunks_exact_mut(self.planes))
            {
                quantize_chunk(x, planes);
            }
        }
    }
}

#[inline(always)]
fn quantize_chunk(x: &[f32], planes: &mut [Chunk]) {
    let (groups, _) = x.as_chunks::<GROUP>();
    if groups.len() < CHUNK_GROUPS {
        planes.fill(ZERO);
    }
    for (g, group) in groups.iter().enumerate() {
        let mut total = 0.0;
        for (b, block) in group.as_chunks::<BLOCK>().0.iter().enumerate() {
            let at = g * GROUP / 2 + b * LANES;
            let (mut even, mut odd) = ([0.0; LANES], [0.0; LANES]);
            for i in 0..LANES {
                (even[i], odd[i]) = (block[2 * i], block[2 * i + 1]);
            }
            let drowns = planes.len() == 2 && one_drowns_the_others(even, odd);
            for (p, plane) in planes.iter_mut().enumerate() {
                if p == 1 && !drowns {
                    plane.clear(b, g);
                    break;
                }
                let (scale, inverse) = scale_of(even, odd);
                let even_sum = encode(&mut even, scale, inverse, &mut plane.even[at..at + LANES]);
                let odd_sum = encode(&mut odd, scale, inverse, &mut plane.odd[at..at + LANES]);
                plane.scales[b][g] = scale;
                total = scale.mul_add((even_sum + odd_sum) as f32, total);
            }
        }
        planes[0].sums[g] = total;
    }
}

/// Whether a block's largest element is more than three times all others together: then most of their codes are 0 or 1.
#[inline(always)]
fn one_drowns_the_others(even: F, odd: F) -> bool {
    let (even, odd) = (map(even, f32::abs), map(odd, f32::abs));
    largest(max(even, odd)) > 0.75 * sum(add(even, odd))
}

/// The scale of a block and its inverse.
#[inline(always)]
fn scale_of(even: F, odd: F) -> (f32, f32) {
    /// Below it the inverse could overflow.
    const SMALLEST: f32 = 1e-30;
    let top = largest(max(map(even, f32::abs), map(odd, f32::abs)));
    if top < SMALLEST {
        (0.0, 0.0)
    } else {
        (top / 127.0, 127.0 / top)
    }
}

/// Writes `round(x * inverse)`, leaves the remainder in `x`, returns the sum of the codes.
#[inline(always)]
fn encode(x: &mut F, scale: f32, inverse: f32, codes: &mut [i8]) -> i32 {
    let rounded = map(*x, |v| v.mul_add(inverse, ROUND));
    let mut n = [0i32; LANES];
    for i in 0..LANES {
        // The integer sits in the low bits of the sum; at most 127 in magnitude by the choice of the scale.
        n[i] = rounded[i].to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    }
    for (code, n) in codes.iter_mut().zip(n) {
        *code = n as i8;
    }
    *x = fma(map(rounded, |v| ROUND - v), [scale; LANES], *x);
    n.iter().fold(0, |sum, n| sum.wrapping_add(*n))
}
