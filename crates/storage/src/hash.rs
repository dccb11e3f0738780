//! The two hashes of the file format.

use sha2::Digest;

/// XXH3-64 with seed 0.
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// SHA-256 over bytes that come in pieces.
#[derive(Clone, Debug, Default)]
pub struct Sha256(sha2::Sha256);

impl Sha256 {
    /// Nothing hashed yet.
    pub fn new() -> Sha256 {
        Sha256::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes added.
    pub fn finish(self) -> [u8; 32] {
        self.0.finalize().into()
    }

    /// The hash of `bytes` alone.
    pub fn digest(bytes: &[u8]) -> [u8; 32] {
        sha2::Sha256::digest(bytes).into()
    }
}

/// XXH3-64 over bytes that come in pieces.
#[derive(Clone, Default)]
pub struct Xxh3(xxhash_rust::xxh3::Xxh3);

impl Xxh3 {
    /// Nothing hashed yet.
    pub fn new() -> Xxh3 {
        Xxh3::default()
    }

    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The hash of all bytes added, and a fresh start.
    pub fn take(&mut self) -> u64 {
        let sum = self.0.digest();
        self.0.reset();
        sum
    }
}
