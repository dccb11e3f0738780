//! Activations as int8, for the fast product.
//!
//! A block of [`SCALE_BLOCK`] elements shares one scale, so that an outlier of one channel costs its 31 neighbours only. A
//! second plane quantizes what the first left over. The sum of the quantized values of a group is kept too: it is
//! what the biases of the weights multiply, and the exact sum of the activations would make the error up to 3.6 times larger.

use crate::simd::{LANES, Op, Simd};
use crate::{GROUP, Isa};

/// Activations that share a scale.
pub const SCALE_BLOCK: usize = 32;

/// Two groups go through the fast product together, so a row is padded to whole pairs.
pub(crate) const PAIR: usize = 2 * GROUP;

/// One plane of two groups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanePair {
    /// Elements 0, 2, 4 … of the pair: they meet the low nibbles of packed codes, which then need no shuffle.
    pub even: [i8; GROUP],
    /// Elements 1, 3, 5 …
    pub odd: [i8; GROUP],
    /// The scale of each block.
    pub scales: [f32; PAIR / SCALE_BLOCK],
}

const ZERO: PlanePair = PlanePair {
    even: [0; GROUP],
    odd: [0; GROUP],
    scales: [0.0; PAIR / SCALE_BLOCK],
};

/// Activation rows as int8, filled by [`quantize`]; its memory is allocated once, by `new`.
#[derive(Debug)]
pub struct QuantRows {
    n_rows: usize,
    n_in: usize,
    n_planes: usize,
    /// `[n_rows, n_pairs, n_planes]`.
    pairs: Vec<PlanePair>,
    /// `[n_rows, n_pairs * 2]`: the sum over planes and blocks of a group of scale times sum of the quantized values, padded to whole
    /// vectors.
    sums: Vec<f32>,
}

/// Pairs of groups of a row, the last perhaps half empty.
const fn n_pairs(n_in: usize) -> usize {
    n_in.div_ceil(PAIR)
}

/// Sums of a row: one a group, in whole vectors.
const fn n_sums(n_in: usize) -> usize {
    n_in.div_ceil(GROUP).next_multiple_of(LANES)
}

impl QuantRows {
    /// Room for `max_rows` rows of `max_n_in` elements in `planes` planes; fewer or shorter rows in fewer planes fit too.
    pub fn new(max_rows: usize, max_n_in: usize, planes: usize) -> QuantRows {
        QuantRows {
            n_rows: 0,
            n_in: 0,
            n_planes: planes,
            pairs: vec![ZERO; max_rows * n_pairs(max_n_in) * planes],
            sums: vec![0.0; max_rows * n_sums(max_n_in)],
        }
    }

    /// Bytes that `new` allocates for the same arguments.
    pub fn bytes(max_rows: usize, max_n_in: usize, planes: usize) -> usize {
        max_rows * (n_pairs(max_n_in) * planes * size_of::<PlanePair>() + n_sums(max_n_in) * size_of::<f32>())
    }

    /// Rows that the last [`quantize`] left here.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// Elements of a row.
    pub fn n_in(&self) -> usize {
        self.n_in
    }

    pub(crate) fn n_planes(&self) -> usize {
        self.n_planes
    }

    /// `[n_pairs, n_planes]` of a row.
    #[inline(always)]
    pub(crate) fn pairs(&self, row: usize) -> &[PlanePair] {
        let n = n_pairs(self.n_in) * self.n_planes;
        &self.pairs[row * n..(row + 1) * n]
    }

    /// The sums of the groups of a row; zero past the last group.
    #[inline(always)]
    pub(crate) fn sums(&self, row: usize) -> &[[f32; LANES]] {
        let n = n_sums(self.n_in) / LANES;
        &self.sums.as_chunks().0[row * n..(row + 1) * n]
    }
}
