//! Random bytes that depend on nothing but a seed, a name and a number.
//!
//! Every row of every tensor has a stream of its own, so that whichever thread makes it, and for whichever file, it is the same.

/// The generator xoshiro256++ of Blackman and Vigna, its state filled by SplitMix64 as they advise.
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of row `row` of what `name` means in the model of `seed`.
    pub fn new(seed: u64, name: &str, row: u64) -> Random {
        Random::of_row(stream(seed, name), row)
    }

    /// The same, for a caller that asks for many rows of one [`stream`].
    pub fn of_row(stream: u64, row: u64) -> Random {
        let mut x = mix(stream ^ mix(row));
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(GOLDEN);
            mix(x)
        });
        Random { state }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        let mut words = out.chunks_exact_mut(8);
        for word in &mut words {
            word.copy_from_slice(&self.bits().to_le_bytes());
        }
        let rest = words.into_remainder();
        if !rest.is_empty() {
            let last = self.bits().to_le_bytes();
            rest.copy_from_slice(&last[..rest.len()]);
        }
    }

    /// -1 or 1.
    pub fn sign(&mut self) -> i8 {
        if self.bits() >> 63 == 0 { -1 } else { 1 }
    }

    /// Nearly normal, mean 0 and deviation 1: the sum of twelve uniform numbers, which needs no function that differs between
    /// systems. Nothing lies beyond 6.
    pub fn normal(&mut self) -> f32 {
        let sum: u64 = (0..3)
            .map(|_| {
                let bits = self.bits();
                (0..4).map(|lane| bits >> (16 * lane) & 0xffff).sum::<u64>()
            })
            .sum();
        const MEAN: f32 = 6.0 * 65_535.0;
        (sum as f32 - MEAN) / 65_536.0
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// What all rows of `name` have in common.
pub fn stream(seed: u64, name: &str) -> u64 {
    name.bytes()
        .fold(mix(seed.wrapping_add(GOLDEN)), |state, byte| {
            mix(state ^ u64::from(byte)).wrapping_add(GOLDEN)
        })
}

/// The finalizer of SplitMix64 (Steele, Lea and Flood 2014).
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
