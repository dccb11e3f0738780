//! Sixteen f32 lanes as an array: one AVX-512 register, two of AVX2, four of NEON.
//!
//! The order of every sum in this room is laid down here: element `i` goes to lane `i % 16`, and the lanes end in one tree.

/// Sixteen lanes.
pub(crate) type F = [f32; 16];

/// Number of lanes.
pub(crate) const LANES: usize = 16;

/// `f` of each lane.
#[inline(always)]
pub(crate) fn map(a: F, f: impl Fn(f32) -> f32) -> F {
    let mut y = a;
    for y in &mut y {
        *y = f(*y);
    }
    y
}

/// `a * b + c`, rounded once.
#[inline(always)]
pub(crate) fn fma(a: F, b: F, c: F) -> F {
    let mut y = c;
    for i in 0..LANES {
        y[i] = a[i].mul_add(b[i], c[i]);
    }
    y
}

/// `a + b`.
#[inline(always)]
pub(crate) fn add(a: F, b: F) -> F {
    let mut y = a;
    for i in 0..LANES {
        y[i] = a[i] + b[i];
    }
    y
}

/// `a * b`.
#[inline(always)]
pub(crate) fn mul(a: F, b: F) -> F {
    let mut y = a;
    for i in 0..LANES {
        y[i] = a[i] * b[i];
    }
    y
}

/// The larger of each pair; `b` where they do not compare.
#[inline(always)]
pub(crate) fn max(a: F, b: F) -> F {
    let mut y = a;
    for i in 0..LANES {
        y[i] = if a[i] > b[i] { a[i] } else { b[i] };
    }
    y
}

/// The sum of the lanes: lane `i` takes lane `i + 8`, then `i + 4`, `i + 2`, `i + 1`.
#[inline(always)]
pub(crate) fn sum(a: F) -> f32 {
    let mut v = a;
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            v[i] += v[i + half];
        }
        half /= 2;
    }
    v[0]
}

/// The first `n` BF16 of `bytes` in sixteen lanes, the others 0.
#[inline(always)]
pub(crate) fn bf16(bytes: &[u8], n: usize) -> F {
    let mut y = [0.0; LANES];
    for (y, pair) in y.iter_mut().zip(bytes.as_chunks::<2>().0).take(n) {
        *y = f32::from_bits(u32::from(u16::from_le_bytes(*pair)) << 16);
    }
    y
}

/// `scale * code + bias` of the 64 codes of a group.
#[inline(always)]
pub(crate) fn dequantize<const BITS: usize>(codes: &[u8], scale: f32, bias: f32) -> [F; 4] {
    let mut unpacked = [0; 64];
    if BITS == 4 {
        for (pair, byte) in unpacked.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
            *pair = [byte & 15, byte >> 4];
        }
    } else {
        unpacked.copy_from_slice(codes);
    }
    let mut w = [[0.0; LANES]; 4];
    for (w, code) in w.as_flattened_mut().iter_mut().zip(unpacked) {
        *w = f32::from(code).mul_add(scale, bias);
    }
    w
}

/// [`sum`] of many values at once, `m[lane][value]`: they replace lane 0.
#[inline(always)]
pub(crate) fn sum_lanes<const N: usize>(m: &mut [[F; N]; LANES]) -> &[F; N] {
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = m.split_at_mut(half);
        let high = high[..half].as_flattened().as_flattened();
        for (low, high) in low
            .as_flattened_mut()
            .as_flattened_mut()
            .iter_mut()
            .zip(high)
        {
            *low += high;
        }
        half /= 2;
    }
    &m[0]
}

/// The largest lane.
#[inline(always)]
pub(crate) fn largest(a: F) -> f32 {
    let mut v = a;
    let mut half = LANES / 2;
    while half > 0 {
        for i in 0..half {
            v[i] = if v[i] > v[i + half] {
                v[i]
            } else {
                v[i + half]
            };
        }
        half /= 2;
    }
    v[0]
}

/// Calls `f(piece number, piece)` for `x` in pieces of sixteen, the rest padded with `pad`; in one place only, as [`update`] does.
#[inline(always)]
pub(crate) fn for_each_piece(x: &[f32], pad: f32, mut f: impl FnMut(usize, F)) {
    for i in 0..x.len().div_ceil(LANES) {
        let rest = &x[i * LANES..];
        let piece = match rest.first_chunk::<LANES>() {
            Some(piece) => *piece,
            None => {
                let mut last = [pad; LANES];
                last[..rest.len()].copy_from_slice(rest);
                last
            }
        };
        f(i, piece);
    }
}

/// Replaces each piece of sixteen by `f(piece number, piece)`; the rest goes through `f` padded with zeros.
///
/// `f` is called in one place only: a closure with two callers stays a function of its own, compiled without the instruction set.
#[inline(always)]
pub(crate) fn update(y: &mut [f32], mut f: impl FnMut(usize, F) -> F) {
    for i in 0..y.len().div_ceil(LANES) {
        let new = f(i, piece(y, i));
        let y = &mut y[i * LANES..];
        match y.first_chunk_mut::<LANES>() {
            Some(y) => *y = new,
            None => y.copy_from_slice(&new[..y.len()]),
        }
    }
}

/// Piece `i` of `x`, padded with zeros.
#[inline(always)]
pub(crate) fn piece(x: &[f32], i: usize) -> F {
    let x = &x[i * LANES..];
    match x.first_chunk::<LANES>() {
        Some(piece) => *piece,
        None => padded(x),
    }
}

#[inline(always)]
fn padded(x: &[f32]) -> F {
    let mut y = [0.0; LANES];
    y[..x.len()].copy_from_slice(x);
    y
}
