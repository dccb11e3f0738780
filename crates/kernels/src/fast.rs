//! Products of quantized matrices with int8 activations.
//!
//! Per output row, with `g` the group and `l = g % 16` its lane, in ascending order of `g`:
//! `t = sum over planes and blocks of sx * dot` (each `dot` an exact integer), then `acc_l = scale * t + acc_l` and
//! `acc_l = bias * s + acc_l`, where `s` is the group's sum of `sx * xq`: of the quantized values, because the exact sum of `x` would not
//! share their rounding error and makes the result worse. The lanes end in the tree of `lanes.rs`.

use crate::isa::{Isa, Lanes, Op};
use crate::lanes::{F, LANES, fma, mul, sum_lanes};
use crate::quant_rows::{CHUNK_GROUPS, Chunk};
use crate::{Bits, Columns, QuantMatrix, QuantRows};

/// Rows of activations that share the codes of a tile; their chains fill 16 KiB, half of a small first-level cache.
const TILE_ROWS: usize = 16;
/// Fewer rows do not pay for turning the codes.
const LEAST_TILE_ROWS: usize = 4;

/// `y = W x` for int8 rows `x`, `[n, n_in]`; `y` is `[n, n_out]`. A row's bits do not depend on the other rows.
///
/// # Panics
/// If the shapes differ.
pub fn matmul_i8(isa: Isa, w: &QuantMatrix<'_>, x: &QuantRows, y: Columns<'_>) {
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
    x: &'a QuantRows,
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
    x: &QuantRows,
    y: &mut Columns<'_>,
) {
    let mut tiled = 0;
    if x.n_rows() >= LEAST_TILE_ROWS && Panel::fits::<BITS>(w) {
        tiled = w.n_out / LANES * LANES;
        let mut panel = Panel::new();
        for o in (0..tiled).step_by(LANES) {
            panel.load::<L, BITS>(lanes, w, o);
            // Rows of a panel lie in one run, but are read side by side, which no processor foresees: so it is told.
            let mut next = &w.packed[(o + LANES) * w.row_bytes()..];
            for r in (0..x.n_rows()).step_by(TILE_ROWS) {
                tile::<L, BITS, PLANES>(lanes, &panel, (w, next), (x, r), (y, o));
                next = &[];
            }
        }
    }
    for o in tiled..w.n_out {
        for r in 0..x.n_rows() {
            y.row_mut(r)[o] = row_dot::<L, BITS, PLANES>(lanes, w, o, x.row(r));
        }
    }
}

/// One group of sixteen output rows, `[four codes][output row]`, a code a byte.
#[repr(align(64))]
pub(crate) struct Tile {
    /// Codes `4 k..4 k + 4` of even index.
    pub even: [[u32; LANES]; 8],
    /// The same of odd index.
    pub odd: [[u32; LANES]; 8],
}

/// Which group of a chunk a tile is, and its scales and biases, one an output row.
pub(crate) struct TileGroup<'a> {
    pub g: usize,
    pub scales: &'a F,
    pub biases: &'a F,
}

impl TileGroup<'_> {
    /// `biases * s + (scales * t + acc)` of one row of activations.
    #[inline(always)]
    pub fn step<L: Lanes, const BITS: usize, const PLANES: usize>(
        &self,
        lanes: L,
        tile: &Tile,
        x: &[Chunk; PLANES],
        acc: F,
    ) -> F {
        let g = self.g;
        let mut t = [0.0; LANES];
        for (p, plane) in x.iter().enumerate() {
            let dots = lanes.tile_dots::<BITS>(tile, plane, g);
            let sx = [[plane.scales[0][g]; LANES], [plane.scales[1][g]; LANES]];
            t = weigh(dots, &sx, if p == 0 { None } else { Some(t) });
        }
        fma(
            *self.biases,
            [x[0].sums[g]; LANES],
            fma(*self.scales, t, acc),
        )
    }
}

/// Columns of four bytes that a panel holds: 8,192 inputs of 4 bits, half of that of 8.
const PANEL_COLUMNS: usize = 1024;
/// Groups that a panel holds.
const PANEL_GROUPS: usize = 128;

/// Sixteen output rows with their codes turned, so that a lane is an output row; turned once for all rows of activations.
#[repr(align(64))]
struct Panel {
    /// `[four bytes of codes][output row]`.
    columns: [[u32; LANES]; PANEL_COLUMNS],
    /// `[group][output row]`.
    scales: [F; PANEL_GROUPS],
    /// `[group][output row]`.
    biases: [F; PANEL_GROUPS],
}

impl Panel {
    #[inline(always)]
    fn new() -> Panel {
        Panel {
            columns: [[0; LANES]; PANEL_COLUMNS],
            scales: [[0.0; LANES]; PANEL_GROUPS],
            biases: [[0.0; LANES]; PANEL_GROUPS],
        }
    }

    fn fits<const BITS: usize>(w: &QuantMatrix<'_>) -> bool {
        w.n_groups() <= PANEL_GROUPS && w.n_groups() * BITS * 2 <= PANEL_COLUMNS
    }

    /// Turns the output rows `o..o + 16`.
    #[inline(always)]
    fn load<L: Lanes, const BITS: usize>(&mut self, lanes: L, w: &QuantMatrix<'_>, o: usize) {
        let n_columns = w.n_groups() * BITS * 2;
        // Sixteen columns are two groups of 4-bit codes, or one of 8-bit codes.
        let columns = self.columns[..n_columns.next_multiple_of(LANES)].as_chunks_mut::<LANES>();
        for (i, columns) in columns.0.iter_mut().enumerate() {
            *columns = code_columns(lanes, w, o, i * 64);
        }
        let scales = self.scales.as_chunks_mut::<CHUNK_GROUPS>().0;
        let biases = self.biases.as_chunks_mut::<CHUNK_GROUPS>().0;
        let n_chunks = w.n_groups().div_ceil(CHUNK_GROUPS);
        for (c, (scales, biases)) in scales.iter_mut().zip(biases).take(n_chunks).enumerate() {
            *scales = scales_by_group(lanes, w.scales, o, c, w.n_groups());
            *biases = scales_by_group(lanes, w.biases, o, c, w.n_groups());
        }
    }

    /// The codes of a group.
    #[inline(always)]
    fn tile<const BITS: usize>(&self, group: usize) -> Tile {
        let first = group * BITS * 2;
        unpack::<BITS>(&self.columns[first..first + BITS * 2])
    }
}

/// A register at an address that is not a multiple of its size costs two cache lines.
#[repr(align(64))]
struct Sums([[F; TILE_ROWS]; LANES]);

/// A panel times up to sixteen rows of activations from `r` on, to columns `o..o + 16`; `next` will be wanted soon. A lane of a register is an output row here, and
/// the sixteen chains of each result lie in memory.
#[inline(always)]
fn tile<L: Lanes, const BITS: usize, const PLANES: usize>(
    lanes: L,
    panel: &Panel,
    (w, next): (&QuantMatrix<'_>, &[u8]),
    (x, r): (&QuantRows, usize),
    (y, o): (&mut Columns<'_>, usize),
) {
    let n_rows = TILE_ROWS.min(x.n_rows() - r);
    // `[lane of the sum][activation row][output row]`.
    let Sums(acc) = &mut Sums([[[0.0; LANES]; TILE_ROWS]; LANES]);
    for group in 0..w.n_groups() {
        let (c, g) = (group / CHUNK_GROUPS, group % CHUNK_GROUPS);
        for line in group * BITS * 2..(group + 1) * BITS * 2 {
            lanes.prefetch(next, line);
        }
        let tile = panel.tile::<BITS>(group);
        let group = TileGroup {
            g,
            scales: &panel.scales[group],
            biases: &panel.biases[group],
        };
        let planes = |r: usize| &x.row(r).as_chunks::<PLANES>().0[c];
        let (fours, rest) = acc[g][..n_rows].as_chunks_mut::<4>();
        let mut row = r;
        for acc in fours {
            let x = [
                planes(row),
                planes(row + 1),
                planes(row + 2),
                planes(row + 3),
            ];
            lanes.tile_rows::<BITS, PLANES, 4>(&tile, x, &group, acc);
            row += 4;
        }
        for (acc, row) in rest.as_chunks_mut::<1>().0.iter_mut().zip(row..) {
            lanes.tile_rows::<BITS, PLANES, 1>(&tile, [planes(row)], &group, acc);
        }
    }
    let sums = sum_lanes(acc);
    for (r, sums) in (r..r + n_rows).zip(sums) {
        y.row_mut(r)[o..o + LANES].copy_from_slice(sums);
    }
}

/// Sixteen columns of four bytes of the codes of rows `o..o + 16`, from byte `at` of each row on.
#[inline(always)]
fn code_columns<L: Lanes>(
    lanes: L,
    w: &QuantMatrix<'_>,
    o: usize,
    at: usize,
) -> [[u32; LANES]; LANES] {
    let mut rows = [[0; LANES]; LANES];
    for (i, row) in rows.iter_mut().enumerate() {
        let bytes = &w.packed[(o + i) * w.row_bytes() + at..];
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
    lanes.transpose(&rows)
}

/// The codes of a group from its columns.
#[inline(always)]
fn unpack<const BITS: usize>(columns: &[[u32; LANES]]) -> Tile {
    let mut tile = Tile {
        even: [[0; LANES]; 8],
        odd: [[0; LANES]; 8],
    };
    // One flat loop over many words: over two short nested ones the compiler scatters.
    if BITS == 4 {
        let words = columns.as_flattened();
        for (even, word) in tile.even.as_flattened_mut().iter_mut().zip(words) {
            *even = word & 0x0F0F_0F0F;
        }
        for (odd, word) in tile.odd.as_flattened_mut().iter_mut().zip(words) {
            *odd = word >> 4 & 0x0F0F_0F0F;
        }
        return tile;
    }
    for (k, [a, b]) in columns.as_chunks::<2>().0.iter().enumerate() {
        for (even, (a, b)) in tile.even[k].iter_mut().zip(a.iter().zip(b)) {
            *even = a & 0xFF | a >> 8 & 0xFF00 | (b & 0xFF) << 16 | (b & 0xFF_0000) << 8;
        }
        for (odd, (a, b)) in tile.odd[k].iter_mut().zip(a.iter().zip(b)) {
            *odd = a >> 8 & 0xFF | a >> 16 & 0xFF00 | (b & 0xFF00) << 8 | b & 0xFF00_0000;
        }
    }
    tile
}

/// The scales (or biases) of chunk `c` of rows `o..o + 16`, `[group][output row]`.
#[inline(always)]
fn scales_by_group<L: Lanes>(
    lanes: L,
    bytes: &[u8],
    o: usize,
    c: usize,
    n_groups: usize,
) -> [F; LANES] {
    let mut rows = [[0; LANES]; LANES];
    for (i, row) in rows.iter_mut().enumerate() {
        let at = (o + i) * n_groups + c * CHUNK_GROUPS;
        let n = (n_groups - c * CHUNK_GROUPS).min(CHUNK_GROUPS);
        for (row, value) in row.iter_mut().zip(lanes.bf16(&bytes[2 * at..], n)) {
            *row = value.to_bits();
        }
    }
    let mut y = [[0.0; LANES]; LANES];
    for (y, column) in y.iter_mut().zip(&lanes.transpose(&rows)) {
        for (y, bits) in y.iter_mut().zip(column) {
            *y = f32::from_bits(*bits);
        }
    }
    y
}

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
        let mut t = [0.0; LANES];
        for (p, plane) in planes.iter().enumerate() {
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
