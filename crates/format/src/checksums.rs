//! `packed_experts/checksums.bin`: one XXH3-64 an expert, so that its first read in a process can be checked for next to nothing.
//!
//! ```text
//! "OUZC", u32 version 1, u32 layers, u32 experts, u64 stride, layers * experts x u64 sums (layer-major), u64 XXH3-64 of all before
//! ```
//! All little endian. This is Ouzel's own addition; directories of other writers lack it.

use xxhash_rust::xxh3::xxh3_64;

use crate::FormatError;
use crate::manifest::check_stride;

const WHAT: &str = "checksums.bin";
const MAGIC: &str = "OUZC";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 24;

/// The decoded checksums.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checksums {
    /// Layers.
    pub layers: u32,
    /// Experts of a layer.
    pub experts: u32,
    /// Bytes that each sum covers: one expert, padding included.
    pub stride: u64,
    /// XXH3-64 with seed 0, `[layers, experts]`.
    pub sums: Vec<u64>,
}

impl Checksums {
    /// Decodes and checks the file.
    ///
    /// # Errors
    /// A [`FormatError`] that names what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Checksums, FormatError> {
        let truncated = |expected| FormatError::Truncated {
            what: WHAT,
            expected,
            actual: bytes.len() as u64,
        };
        let (header, rest) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or(truncated(HEADER_BYTES as u64))?;
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| header[at + i]));
        if header[..4] != *MAGIC.as_bytes() {
            let actual = String::from_utf8_lossy(&header[..4]).into_owned();
            return Err(FormatError::WrongMagic {
                what: WHAT,
                expected: MAGIC,
                actual,
            });
        }
        if u32_at(4) != VERSION {
            return Err(FormatError::UnsupportedVersion {
                what: WHAT,
                expected: VERSION.into(),
                actual: u32_at(4).into(),
            });
        }
        let (layers, experts) = (u32_at(8), u32_at(12));
        // Two factors below 2^32 leave room for the header, but not for the eight bytes a sum.
        let n_sums = u64::from(layers) * u64::from(experts);
        let size = n_sums
            .checked_mul(8)
            .and_then(|sums| sums.checked_add(HEADER_BYTES as u64 + 8));
        let size = size.ok_or_else(|| FormatError::Overflow {
            name: WHAT.into(),
            offset: 0,
            size: n_sums,
        })?;
        if (bytes.len() as u64) < size {
            return Err(truncated(size));
        }
        if bytes.len() as u64 > size {
            return Err(FormatError::TooLarge {
                what: WHAT,
                limit: size,
                actual: bytes.len() as u64,
            });
        }
        let (words, _) = rest.as_chunks::<8>();
        let Some((seal, sums)) = words.split_last() else {
            return Err(truncated(size));
        };
        let (expected, actual) = (
            u64::from_le_bytes(*seal),
            xxh3_64(&bytes[..bytes.len() - 8]),
        );
        if actual != expected {
            return Err(FormatError::ChecksumMismatch {
                what: WHAT,
                expected,
                actual,
            });
        }
        let checksums = Checksums {
            layers,
            experts,
            stride: u64::from_le_bytes(std::array::from_fn(|i| header[16 + i])),
            sums: sums.iter().map(|sum| u64::from_le_bytes(*sum)).collect(),
        };
        checksums.check()?;
        Ok(checksums)
    }

    /// The bytes of the file.
    ///
    /// # Panics
    /// When [`Checksums::check`] fails.
    pub fn encode(&self) -> Vec<u8> {
        if let Err(error) = self.check() {
            panic!("not checksums: {error}");
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + 8 * self.sums.len() + 8);
        out.extend_from_slice(MAGIC.as_bytes());
        for value in [VERSION, self.layers, self.experts] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        out.extend_from_slice(&self.stride.to_le_bytes());
        for sum in &self.sums {
            out.extend_from_slice(&sum.to_le_bytes());
        }
        let seal = xxh3_64(&out);
        out.extend_from_slice(&seal.to_le_bytes());
        out
    }

    /// Checks what has to hold, whoever made it.
    ///
    /// # Errors
    /// [`FormatError::NotPositive`], [`FormatError::StrideNotAligned`], [`FormatError::SizeMismatch`].
    pub fn check(&self) -> Result<(), FormatError> {
        for (field, value) in [("layers", self.layers), ("experts", self.experts)] {
            if value == 0 {
                return Err(FormatError::NotPositive {
                    field: format!("{WHAT}: {field}"),
                    actual: "0".into(),
                });
            }
        }
        check_stride("the stride of checksums.bin", self.stride)?;
        let expected = u64::from(self.layers) * u64::from(self.experts);
        if self.sums.len() as u64 != expected {
            return Err(FormatError::SizeMismatch {
                name: WHAT.into(),
                expected,
                actual: self.sums.len() as u64,
            });
        }
        Ok(())
    }

    /// The sum of an expert.
    ///
    /// # Panics
    /// When there is no such layer or expert.
    pub fn get(&self, layer: u32, expert: u32) -> u64 {
        assert!(
            layer < self.layers && expert < self.experts,
            "no expert {expert} in layer {layer}"
        );
        self.sums[layer as usize * self.experts as usize + expert as usize]
    }
}
