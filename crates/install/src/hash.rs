//! Hashes files of a model through one buffer of a fixed size: each file as a whole, and the parts of it that are compared alone.

use std::path::Path;

use ouzel_format::{FileRecord, Sha256Hex};
use ouzel_storage::{Disk, Sha256, Xxh3};

use crate::InstallError;

/// The largest buffer of an installation from local files; every read and every write is at most this long.
pub const BUFFER_BYTES: usize = 512 << 10;

/// What a file turned out to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hashed {
    /// Its size and its hash.
    pub record: FileRecord,
    /// XXH3-64 of every stride, of files with experts.
    pub strides: Vec<u64>,
    /// XXH3-64 of every part that was asked for.
    pub parts: Vec<u64>,
}

/// Reads a file and hashes it: the whole, each `stride`, and parts of the given lengths, one behind the other. `progress` is told of
/// every batch of bytes and ends the work where it fails.
///
/// # Errors
/// Those of the disk and of `progress`.
pub fn hash_file(
    disk: &dyn Disk,
    path: &Path,
    stride: Option<u64>,
    parts: &mut dyn Iterator<Item = u64>,
    progress: &mut dyn FnMut(u64) -> Result<(), InstallError>,
) -> Result<Hashed, InstallError> {
    let mut sha256 = Sha256::new();
    let mut stride_lens = std::iter::from_fn(|| stride);
    let mut strides = Runs::new(&mut stride_lens);
    let mut parts = Runs::new(parts);
    let mut size = 0;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let n = disk.read_at(path, size, &mut buffer)?;
        let bytes = &buffer[..n];
        sha256.update(bytes);
        strides.update(bytes);
        parts.update(bytes);
        size += n as u64;
        progress(n as u64)?;
        if n < BUFFER_BYTES {
            return Ok(Hashed {
                record: FileRecord {
                    size,
                    sha256: Sha256Hex::from_bytes(sha256.finish()),
                },
                strides: strides.sums,
                parts: parts.sums,
            });
        }
    }
}

/// Hashes of neighbouring runs of bytes; those behind the last run are left out.
struct Runs<'a> {
    lens: &'a mut dyn Iterator<Item = u64>,
    /// Bytes that the current run still lacks.
    lacks: Option<u64>,
    xxh3: Xxh3,
    sums: Vec<u64>,
}

impl<'a> Runs<'a> {
    fn new(lens: &'a mut dyn Iterator<Item = u64>) -> Runs<'a> {
        Runs {
            lacks: lens.next(),
            lens,
            xxh3: Xxh3::new(),
            sums: Vec::new(),
        }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while let (Some(lacks), false) = (self.lacks, bytes.is_empty()) {
            let n = lacks.min(bytes.len() as u64);
            let (now, later) = bytes.split_at(n as usize);
            self.xxh3.update(now);
            self.lacks = Some(lacks - n);
            if lacks == n {
                self.sums.push(self.xxh3.take());
                self.lacks = self.lens.next();
            }
            bytes = later;
        }
    }
}
