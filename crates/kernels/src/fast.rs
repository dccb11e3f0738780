//! Products of quantized matrices with int8 activations.
//!
//! Per output row, with `g` the group and `l = g % 16` its lane, in ascending order of `g`:
//! `t = sum over planes and blocks of sx * dot` (over the second plane where it is not zero; each `dot` an exact integer), then `acc_l = scale * t + acc_l` and
//! `acc_l = bias * s + acc_l`, where `s` is the group's sum of `sx * xq`: of the quantized values, because the exact sum of `x` would not
//! share their rounding error and makes the result worse. The lanes end in the tree of `lanes.rs`.

use std::cell::Cell;

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{F, LANES, fma, mul, sum_lanes};
use crate::quant_rows::{CHUNK_GROUPS, Chunk};
use crate::{Bits, Columns, QuantMatrix, QuantSlice};

/// Output rows of a panel, in tiles of sixteen.
pub(crate) const TILES: usize = 2;
/// The same in rows.
pub(crate) const PANEL_OUTPUTS: usize = TILES * LANES;
/// Rows of activations at work on a panel; their chains fill 16 KiB, half of a small first-level cache.
pub(crate) const TILE_ROWS: usize = 8;
/// Rows are taken by fours, the last one again where there are fewer: four cost hardly more than one. Below it turning the codes does not
/// pay.
pub(crate) const LEAST_TILE_ROWS: usize = 4;

/// `y = W x` for int8 rows `x`, `[n, n_in]`; `y` is `[n, n_out]`. A row's bits do not depend on the other rows.
///
/// # Panics
/// If the shapes differ.
pub fn matmul_i8(isa: Isa, w: &QuantMatrix<'_>, x: QuantSlice<'_>, y: Columns<'_>) {
    w.check();
    assert_eq!(w.n_in, x.n_in(), "width of x");
    assert_eq!(w.n_out, y.n_cols(), "columns of y");
    assert_eq!(x.n_rows(), y.n_rows(), "rows of y");
    match w.bits {
        Bits::Q4 => isa.run(MatmulI8::<4> { w, x, y }),
        Bits::Q8 => isa.run(MatmulI8::<8> { w, x, y }),
    }
}

struct MatmulI8<'a, const BITS: usize> {
    w: &'a QuantMatrix<'a>,
    x: QuantSlice<'a>,
    y: Columns<'a>,
}

impl<const BITS: usize> Op for MatmulI8<'_, BITS> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let MatmulI8 { w, x, mut y } = self;
        if x.planes() == 1 {
            product::<L, BITS, 1>(lanes, w, x, &mut y);
        } else {
            product::<L, BITS, 2>(lanes, w, x, &mut y);
        }
    }
}

#[inline(always)]
fn product<L: Lanes, const BITS: usize, const PLANES: usize>(
    lanes: L,
    w: &QuantMatrix<'_>,
    x: QuantSlice<'_>,
    y: &mut Columns<'_>,
) {
    let mut tiled = 0;
    if x.n_rows() >= LEAST_TILE_ROWS && Panel::fits::<BITS>(w) {
        tiled = w.n_out / PANEL_OUTPUTS * PANEL_OUTPUTS;
        let mut scratch = SCRATCH.take().unwrap_or_else(Scratch::new);
        let Scratch { panel, sums } = &mut *scratch;
        for o in (0..tiled).step_by(PANEL_OUTPUTS) {
            panel.load::<L, BITS>(lanes, w, o);
            // Rows of a panel lie in one run, but are read side by side, which no processor foresees: so it is told.
            let mut next = &w.packed[(o + PANEL_OUTPUTS) * w.row_bytes()..];
            for r in (0..x.n_rows()).step_by(TILE_ROWS) {
                panel.multiply::<L, BITS, PLANES>(lanes, next, (x, r), sums);
                next = &[];
                for (r, sums) in (r..x.n_rows()).zip(sum_lanes(&mut sums.0).as_chunks().0) {
                    let sums: &[F; TILES] = sums;
                    y.row_mut(r)[o..o + PANEL_OUTPUTS].copy_from_slice(sums.as_flattened());
                }
            }
        }
        SCRATCH.set(Some(scratch));
    }
    for o in tiled..w.n_out {
        for r in 0..x.n_rows() {
            y.row_mut(r)[o] = row_dot::<L, BITS, PLANES>(lanes, w, o, x.row(r));
        }
    }
}

/// One group of a panel.
pub(crate) struct TileGroup<'a> {
    /// `[tile][four codes][output row]`, a code a byte: of even and of odd index in turn for 8 bits; for 4 bits both share a byte,
    /// the even in its low half.
    pub codes: [&'a [[u32; LANES]]; TILES],
    /// Bits of f32, `[tile][output row]`.
    pub scales: [&'a [u32; LANES]; TILES],
    /// Bits of f32, `[tile][output row]`.
    pub biases: [&'a [u32; LANES]; TILES],
    /// Which group of its chunk.
    pub g: usize,
    /// The sums start at zero here.
    pub is_first: bool,
    /// Planes in which a row has codes in this group.
    pub planes: usize,
}

/// One group of sixteen output rows, `[four codes][output row]`, a code a byte.
#[repr(align(64))]
pub(crate) struct Tile {
    /// Codes `4 k..4 k + 4` of even index.
    pub even: [[u32; LANES]; 8],
    /// The same of odd index.
    pub odd: [[u32; LANES]; 8],
}

/// An instruction set with too few registers to keep the sums of several rows in them: it takes a row at a time.
pub(crate) trait TileDots: Lanes {
    /// Sums of code times activation over group `g` of the chunk for sixteen output rows: `[block][output row]`.
    fn tile_dots<const BITS: usize>(self, tile: &Tile, x: &Chunk, g: usize) -> [[i32; 16]; 2];
}

impl TileGroup<'_> {
    /// [`Lanes::tile_rows`] row by row.
    #[inline(always)]
    pub fn rows_by_dots<L: TileDots, const BITS: usize, const PLANES: usize>(
        &self,
        lanes: L,
        x: &[&[Chunk; PLANES]],
        acc: &mut [[F; TILES]],
    ) {
        for t in 0..TILES {
            let tile = self.tile::<BITS>(t);
            for (acc, x) in acc.iter_mut().zip(x) {
                let before = if self.is_first { [0.0; LANES] } else { acc[t] };
                acc[t] = self.step::<L, BITS, PLANES>(lanes, (&tile, t), x, before);
            }
        }
    }

    /// `biases * s + (scales * t + acc)` of one row of activations.
    #[inline(always)]
    fn step<L: TileDots, const BITS: usize, const PLANES: usize>(
        &self,
        lanes: L,
        (tile, nth): (&Tile, usize),
        x: &[Chunk; PLANES],
        acc: F,
    ) -> F {
        let g = self.g;
        let mut t = [0.0; LANES];
        for (p, plane) in x.iter().take(self.planes).enumerate() {
            let dots = lanes.tile_dots::<BITS>(tile, plane, g);
            let sx = [[plane.scales[0][g]; LANES], [plane.scales[1][g]; LANES]];
            t = weigh(dots, &sx, if p == 0 { None } else { Some(t) });
        }
        let acc = fma(floats(self.scales[nth]), t, acc);
        fma(floats(self.biases[nth]), [x[0].sums[g]; LANES], acc)
    }

    /// The codes of a tile, a code a byte.
    #[inline(always)]
    fn tile<const BITS: usize>(&self, t: usize) -> Tile {
        let codes = self.codes[t];
        let mut tile = Tile {
            even: [[0; LANES]; 8],
            odd: [[0; LANES]; 8],
        };
        if BITS == 8 {
            for (k, [even, odd]) in codes.as_chunks().0.iter().enumerate() {
                (tile.even[k], tile.odd[k]) = (*even, *odd);
            }
            return tile;
        }
        for (k, words) in codes.iter().enumerate() {
            for (i, word) in words.iter().enumerate() {
                (tile.even[k][i], tile.odd[k][i]) = (word & 0x0F0F_0F0F, word >> 4 & 0x0F0F_0F0F);
            }
        }
        tile
    }
}

#[inline(always)]
fn floats(bits: &[u32; LANES]) -> F {
    let mut y = [0.0; LANES];
    for (y, bits) in y.iter_mut().zip(bits) {
        *y = f32::from_bits(*bits);
    }
    y
}

/// Columns of four bytes that a panel holds: 8,192 inputs of 4 bits, half of that of 8.
const PANEL_COLUMNS: usize = 1024;
/// Groups that a panel holds.
const PANEL_GROUPS: usize = 128;

/// Output rows with their codes turned, so that a lane is an output row; turned once for all rows of activations.
#[repr(align(64))]
struct Panel {
    /// As [`TileGroup::codes`].
    codes: [[[u32; LANES]; PANEL_COLUMNS]; TILES],
    /// `[tile][group][output row]`.
    scales: [[[u32; LANES]; PANEL_GROUPS]; TILES],
    /// `[tile][group][output row]`.
    biases: [[[u32; LANES]; PANEL_GROUPS]; TILES],
    /// Groups held.
    n_groups: usize,
}

impl Panel {
    fn fits<const BITS: usize>(w: &QuantMatrix<'_>) -> bool {
        w.n_groups() <= PANEL_GROUPS && w.n_groups() * BITS * 2 <= PANEL_COLUMNS
    }

    /// Turns the output rows from `o` on.
    #[inline(always)]
    fn load<L: Lanes, const BITS: usize>(&mut self, lanes: L, w: &QuantMatrix<'_>, o: usize) {
        self.n_groups = w.n_groups();
        let n_columns = (w.n_groups() * BITS * 2).next_multiple_of(LANES);
        for t in 0..TILES {
            let o = o + t * LANES;
            // Sixteen columns are two groups of 4-bit codes, or one of 8-bit codes.
            let columns = self.codes[t][..n_columns].as_chunks_mut().0;
            for (i, columns) in columns.iter_mut().enumerate() {
                turn_codes(lanes, w, (o, i * 64), columns);
                if BITS == 8 {
                    part_evens_and_odds(columns);
                }
            }
            for (values, turned) in [
                (w.scales, &mut self.scales[t]),
                (w.biases, &mut self.biases[t]),
            ] {
                for (c, turned) in turned.as_chunks_mut().0.iter_mut().enumerate() {
                    if c * CHUNK_GROUPS < w.n_groups() {
                        turn_scales(lanes, values, (o, c), w.n_groups(), turned);
                    }
                }
            }
        }
    }

    /// The chains of up to [`TILE_ROWS`] rows of activations from `r` on; `next` will be wanted soon.
    #[inline(always)]
    fn multiply<L: Lanes, const BITS: usize, const PLANES: usize>(
        &self,
        lanes: L,
        next: &[u8],
        (x, r): (QuantSlice<'_>, usize),
        Sums(sums): &mut Sums,
    ) {
        let n_rows = (x.n_rows() - r)
            .next_multiple_of(LEAST_TILE_ROWS)
            .min(TILE_ROWS);
        if self.n_groups < LANES {
            sums[self.n_groups..].fill([[0.0; LANES]; TILE_ROWS * TILES]);
        }
        for c in 0..self.n_groups.div_ceil(CHUNK_GROUPS) {
            let mut rows = [&x.row(r).as_chunks::<PLANES>().0[c]; TILE_ROWS];
            for (i, row) in rows.iter_mut().enumerate() {
                *row = &x.row((r + i).min(x.n_rows() - 1)).as_chunks::<PLANES>().0[c];
            }
            let first = c * CHUNK_GROUPS;
            let in_second = groups_of_second(&rows);
            for (g, acc) in sums[..CHUNK_GROUPS.min(self.n_groups - first)]
                .iter_mut()
                .enumerate()
            {
                let columns = (first + g) * BITS * 2..(first + g + 1) * BITS * 2;
                if !next.is_empty() {
                    for line in columns.start * TILES..columns.end * TILES {
                        lanes.prefetch(next, line);
                    }
                }
                let group = TileGroup {
                    codes: [&self.codes[0][columns.clone()], &self.codes[1][columns]],
                    scales: [&self.scales[0][first + g], &self.scales[1][first + g]],
                    biases: [&self.biases[0][first + g], &self.biases[1][first + g]],
                    g,
                    is_first: c == 0,
                    planes: if in_second[g] == 0 { 1 } else { PLANES },
                };
                let acc = &mut acc.as_chunks_mut().0[..n_rows];
                lanes.tile_rows::<BITS, PLANES>(&group, &rows[..n_rows], acc);
            }
        }
    }
}

/// For each group, not zero where the second plane of a row adds anything to it. A plane of zeros would add zero, to the bit.
#[inline(always)]
fn groups_of_second<const PLANES: usize>(rows: &[&[Chunk; PLANES]]) -> [u32; LANES] {
    let mut used = [0; LANES];
    for second in rows.iter().filter_map(|planes| planes.get(1)) {
        for (used, bits) in used.iter_mut().zip(second.used_groups()) {
            *used |= bits;
        }
    }
    used
}

/// What a thread needs for products of many rows.
pub(crate) struct Scratch {
    panel: Panel,
    sums: Sums,
}

thread_local! {
    /// Kept from one product to the next: clearing it each time took 2 % of a prompt's time.
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Scratch {
    fn new() -> Box<Scratch> {
        let zeros = Box::new_zeroed();
        // SAFETY: a scratch is integers and floats alone, and zeros are a value of each.
        unsafe { zeros.assume_init() }
    }
}

/// The sixteen chains of each result: `[lane of the sum][activation row, tile][output row]`. A register at an address that is not a
/// multiple of its size costs two cache lines.
#[repr(align(64))]
struct Sums([[F; TILE_ROWS * TILES]; LANES]);

/// Sixteen columns of four bytes of the codes of rows `o..o + 16`, from byte `at` of each row on.
#[inline(always)]
fn turn_codes<L: Lanes>(
    lanes: L,
    w: &QuantMatrix<'_>,
    (o, at): (usize, usize),
    columns: &mut [[u32; LANES]; LANES],
) {
    let mut rows = [[0; LANES]; LANES];
    for (i, row) in rows.iter_mut().enumerate() {
        let bytes = &w.packed[(o + i) * w.row_bytes() + at..];
        lanes.prefetch(bytes, AHEAD_IN_ROW);
        // The last group of the last row may be half of what is loaded; what follows another row's is not used.
        let mut padded = [0; 64];
        let bytes = match bytes.first_chunk::<64>() {
            Some(bytes) => bytes,
            None => {
                padded[..bytes.len()].copy_from_slice(bytes);
                &padded
            }
        };
        for (word, bytes) in row.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
    }
    lanes.transpose(&rows, columns);
}

/// Sixteen columns of 8-bit codes, four of even index and four of odd index in turn instead of eight in order.
#[inline(always)]
fn part_evens_and_odds(columns: &mut [[u32; LANES]; LANES]) {
    for [a, b] in columns.as_chunks_mut::<2>().0 {
        for (a, b) in a.iter_mut().zip(b) {
            let even = *a & 0xFF | *a >> 8 & 0xFF00 | (*b & 0xFF) << 16 | (*b & 0xFF_0000) << 8;
            let odd = *a >> 8 & 0xFF | *a >> 16 & 0xFF00 | (*b & 0xFF00) << 8 | *b & 0xFF00_0000;
            (*a, *b) = (even, odd);
        }
    }
}

/// Bits of the scales (or biases) of chunk `c` of rows `o..o + 16`, `[group][output row]`.
#[inline(always)]
fn turn_scales<L: Lanes>(
    lanes: L,
    bytes: &[u8],
    (o, c): (usize, usize),
    n_groups: usize,
    turned: &mut [[u32; LANES]; LANES],
) {
    let mut rows = [[0; LANES]; LANES];
    for (i, row) in rows.iter_mut().enumerate() {
        let at = (o + i) * n_groups + c * CHUNK_GROUPS;
        let n = (n_groups - c * CHUNK_GROUPS).min(CHUNK_GROUPS);
        for (row, value) in row.iter_mut().zip(lanes.bf16(&bytes[2 * at..], n)) {
            *row = value.to_bits();
        }
    }
    lanes.transpose(&rows, turned);
}

/// The same where sixteen rows are read side by side.
const AHEAD_IN_ROW: usize = 4;
/// Cache lines of codes that are asked for ahead of use: the processor by itself stops at each page's end.
const AHEAD_LINES: usize = 64;

/// Output row `o` times one row of activations.
#[inline(always)]
fn row_dot<L: Lanes, const BITS: usize, const PLANES: usize>(
    lanes: L,
    w: &QuantMatrix<'_>,
    o: usize,
    x: &[Chunk],
) -> f32 {
    let mut acc = [0.0; LANES];
    let n_groups = w.n_groups();
    for (c, planes) in x.as_chunks::<PLANES>().0.iter().enumerate() {
        let n = (n_groups - c * CHUNK_GROUPS).min(CHUNK_GROUPS);
        // The slices reach to the end of the matrix, so that whole registers can be loaded at a row's end.
        let g = o * n_groups + c * CHUNK_GROUPS;
        let (packed, scales, biases) = (
            &w.packed[g * BITS * 8..],
            &w.scales[g * 2..],
            &w.biases[g * 2..],
        );
        for line in 0..n * BITS / 8 {
            lanes.prefetch(packed, AHEAD_LINES + line);
        }
        lanes.prefetch(scales, AHEAD_LINES / 8);
        lanes.prefetch(biases, AHEAD_LINES / 8);
        let mut t = [0.0; LANES];
        for (p, plane) in planes.iter().enumerate() {
            if p == 1 && plane.used_groups() == [0; LANES] {
                break;
            }
            let dots = lanes.dots::<BITS>(packed, n, plane);
            t = weigh(dots, &plane.scales, if p == 0 { None } else { Some(t) });
        }
        acc = fma(lanes.bf16(scales, n), t, acc);
        acc = fma(lanes.bf16(biases, n), planes[0].sums, acc);
    }
    lanes.sum(&acc)
}

/// `before + sum over blocks of scale * dot`.
#[inline(always)]
fn weigh(dots: [[i32; 16]; 2], scales: &[F; 2], before: Option<F>) -> F {
    // `array::map` is a call of its own, compiled without the instruction set; a loop is not.
    let mut values = [[0.0; LANES]; 2];
    for (values, dots) in values.iter_mut().zip(&dots) {
        for (value, dot) in values.iter_mut().zip(dots) {
            *value = *dot as f32;
        }
    }
    let t = match before {
        None => mul(values[0], scales[0]),
        Some(before) => fma(values[0], scales[0], before),
    };
    fma(values[1], scales[1], t)
}
