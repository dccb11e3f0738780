//! Random data, matrices of codes and the naive twin of their products.

use ouzel_kernels::{Bits, Isa, QuantMatrix};

/// Seed unless `OUZEL_TEST_SEED` gives another.
const DEFAULT_SEED: u64 = 0x0A5E1;

/// The seed of this run, printed.
pub fn seed() -> u64 {
    let seed = match std::env::var("OUZEL_TEST_SEED") {
        Ok(text) => text.parse().expect("OUZEL_TEST_SEED is a whole number"),
        Err(_) => DEFAULT_SEED,
    };
    println!("OUZEL_TEST_SEED={seed}");
    seed
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// Uniform in 0..1.
    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normal, by Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.unit()).cos()) as f32
    }

    pub fn normals(&mut self, n: usize) -> Vec<f32> {
        (0..n).map(|_| self.normal()).collect()
    }
}

/// The instruction sets to hold against `portable`.
pub fn others() -> Vec<Isa> {
    Isa::available()
        .into_iter()
        .filter(|isa| *isa != Isa::Portable)
        .collect()
}

/// Fails with the first place where the bits differ.
pub fn assert_bits(what: &str, got: &[f32], want: &[f32]) {
    assert_eq!(got.len(), want.len(), "{what}: length");
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert_eq!(
            got.to_bits(),
            want.to_bits(),
            "{what}: element {i} is {got}, not {want}"
        );
    }
}

/// How the codes of a matrix are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Codes {
    Random,
    Largest,
}

/// A matrix with its bytes at chosen offsets from an aligned address.
pub struct Matrix {
    pub bits: Bits,
    pub n_out: usize,
    pub n_in: usize,
    packed: Vec<u8>,
    scales: Vec<u8>,
    biases: Vec<u8>,
    offset: usize,
}

impl Matrix {
    /// Scales of both signs; a bias near minus half the range of the codes, so that weights centre on 0.
    pub fn random(
        random: &mut Random,
        bits: Bits,
        (n_out, n_in): (usize, usize),
        codes: Codes,
        offset: usize,
    ) -> Matrix {
        let groups = n_out * n_in / 64;
        let (bytes, top) = match bits {
            Bits::Q4 => (groups * 32, 15.0),
            Bits::Q8 => (groups * 64, 255.0),
        };
        let mut matrix = Matrix {
            bits,
            n_out,
            n_in,
            packed: vec![0xA5; offset],
            scales: vec![0xA5; offset],
            biases: vec![0xA5; offset],
            offset,
        };
        matrix.packed.extend((0..bytes).map(|_| match codes {
            Codes::Random => random.next() as u8,
            Codes::Largest => 255,
        }));
        for _ in 0..groups {
            let sign = if random.below(4) == 0 { -1.0 } else { 1.0 };
            let scale = sign * (0.5 + random.unit() as f32) / top;
            let bias = -scale * top * (0.4 + 0.2 * random.unit() as f32);
            matrix.scales.extend(bf16(scale).to_le_bytes());
            matrix.biases.extend(bf16(bias).to_le_bytes());
        }
        matrix
    }

    pub fn view(&self) -> QuantMatrix<'_> {
        QuantMatrix::new(
            self.bits,
            self.n_out,
            self.n_in,
            &self.packed[self.offset..],
            &self.scales[self.offset..],
            &self.biases[self.offset..],
        )
    }

    /// Weight `[o, i]` as the format defines it.
    pub fn weight(&self, o: usize, i: usize) -> f64 {
        let at = o * self.n_in + i;
        let code = match self.bits {
            Bits::Q4 => self.packed[self.offset + at / 2] >> (4 * (at % 2)) & 15,
            Bits::Q8 => self.packed[self.offset + at],
        };
        let group = self.offset + at / 64 * 2;
        let widen = |bytes: &[u8]| {
            f64::from(f32::from_bits(
                u32::from(u16::from_le_bytes([bytes[group], bytes[group + 1]])) << 16,
            ))
        };
        widen(&self.scales) * f64::from(code) + widen(&self.biases)
    }

    /// `W x` of one row, and `sum |w x|` of each output, which errors are measured against.
    pub fn product(&self, x: &[f32]) -> Vec<(f64, f64)> {
        (0..self.n_out)
            .map(|o| {
                let terms = x
                    .iter()
                    .enumerate()
                    .map(|(i, x)| self.weight(o, i) * f64::from(*x));
                terms.fold((0.0, 0.0), |(sum, size), term| {
                    (sum + term, size + term.abs())
                })
            })
            .collect()
    }
}

/// Truncated to BF16.
fn bf16(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

/// A row of activations by kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Normal, unit variance.
    Gaussian,
    /// The same with one element of 1.3e5, as layer 5 of the 26B model has it.
    Outlier,
    /// `gelu(gate) * up` of heavy-tailed gates and ups: many magnitudes in one row.
    GegluProduct,
    /// All 127 or -127: the largest int8 codes.
    Extreme,
}

impl Kind {
    pub const ALL: [Kind; 4] = [
        Kind::Gaussian,
        Kind::Outlier,
        Kind::GegluProduct,
        Kind::Extreme,
    ];

    pub fn row(self, random: &mut Random, n: usize) -> Vec<f32> {
        let mut x = random.normals(n);
        match self {
            Kind::Gaussian => {}
            Kind::Outlier => x[random.below(n)] = 1.3e5,
            Kind::GegluProduct => {
                for x in &mut x {
                    let gate = 2.0 * f64::from(*x);
                    let tail = f64::from(random.normal()).exp();
                    *x = (gate / (1.0 + (-1.702 * gate).exp()) * f64::from(random.normal()) * tail)
                        as f32;
                }
            }
            Kind::Extreme => {
                let sign = if random.below(2) == 0 { 127.0 } else { -127.0 };
                x.fill(sign);
            }
        }
        x
    }
}

/// Shapes around every width: groups 1..=40 cross the chunk of sixteen and its halves, and 704, 2112, 2816 are the model's.
pub fn shapes() -> Vec<(usize, usize)> {
    let mut shapes: Vec<_> = (1..=40)
        .map(|groups| (1 + groups % 5, 64 * groups))
        .collect();
    shapes.extend((1..=20).map(|n_out| (n_out, 192)));
    shapes.extend([(33, 704), (19, 2112), (35, 2816)]);
    shapes
}
