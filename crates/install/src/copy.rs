//! Writes planned files, hashing on the way, through one buffer of a fixed size.

use std::path::Path;

use ouzel_format::{FileRecord, Sha256Hex};
use ouzel_storage::{Disk, Sha256, WriteFile, Xxh3};

use crate::plan::{Piece, Plan, PlannedFile};
use crate::{InstallError, Source};

/// The only large buffer of an installation; every read and every write is at most this long.
pub const BUFFER_BYTES: usize = 512 << 10;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Size and hash of the file.
    pub record: FileRecord,
    /// XXH3-64 of every stride, of files with experts.
    pub sums: Vec<u64>,
}

/// Writes `file` to `path` and makes its bytes durable. `progress` is told of every batch of bytes.
///
/// # Errors
/// Those of the source and of the disk; the file may then be there in part.
pub fn copy_file(
    source: &dyn Source,
    plan: &Plan,
    file: &PlannedFile,
    disk: &dyn Disk,
    path: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, InstallError> {
    let stride = file.has_experts.then_some(plan.expert_stride);
    let mut writer = HashingWriter::new(disk.create(path)?, stride, progress);
    for piece in &file.pieces {
        match piece {
            Piece::Bytes(bytes) => writer.append(bytes.len() as u64, |at, buf| {
                buf.copy_from_slice(&bytes[at as usize..][..buf.len()]);
                Ok(())
            })?,
            Piece::Zeros(len) => writer.append(*len, |_, buf| {
                buf.fill(0);
                Ok(())
            })?,
            Piece::Copy {
                source: name,
                offset,
                len,
            } => writer.append(*len, |at, buf| {
                source.read_at(&plan.sources[*name], offset + at, buf)
            })?,
        }
    }
    writer.finish()
}

/// Collects bytes in the buffer; hashes and writes them when it is full.
struct HashingWriter<'a> {
    file: Box<dyn WriteFile + 'a>,
    buffer: Vec<u8>,
    filled: usize,
    size: u64,
    sha256: Sha256,
    /// Stride, bytes of the current one, its hash so far.
    stride: Option<u64>,
    in_stride: u64,
    xxh3: Xxh3,
    sums: Vec<u64>,
    progress: &'a mut dyn FnMut(u64),
}

impl<'a> HashingWriter<'a> {
    fn new(
        file: Box<dyn WriteFile + 'a>,
        stride: Option<u64>,
        progress: &'a mut dyn FnMut(u64),
    ) -> Self {
        HashingWriter {
            file,
            buffer: vec![0; BUFFER_BYTES],
            filled: 0,
            size: 0,
            sha256: Sha256::new(),
            stride,
            in_stride: 0,
            xxh3: Xxh3::new(),
            sums: Vec::new(),
            progress,
        }
    }

    /// Appends `len` bytes, which `fill` supplies piece by piece: it is given a place within them and where the bytes go.
    fn append(
        &mut self,
        len: u64,
        mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), InstallError>,
    ) -> Result<(), InstallError> {
        let mut done = 0;
        while done < len {
            let room = (BUFFER_BYTES - self.filled) as u64;
            let n = room.min(len - done) as usize;
            fill(done, &mut self.buffer[self.filled..self.filled + n])?;
            self.filled += n;
            done += n as u64;
            if self.filled == BUFFER_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), InstallError> {
        let bytes = &self.buffer[..self.filled];
        self.sha256.update(bytes);
        if let Some(stride) = self.stride {
            let mut rest = bytes;
            while !rest.is_empty() {
                let n = (stride - self.in_stride).min(rest.len() as u64);
                let (now, later) = rest.split_at(n as usize);
                self.xxh3.update(now);
                self.in_stride += n;
                if self.in_stride == stride {
                    self.sums.push(self.xxh3.take());
                    self.in_stride = 0;
                }
                rest = later;
            }
        }
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        (self.progress)(bytes.len() as u64);
        self.filled = 0;
        Ok(())
    }

    fn finish(mut self) -> Result<Written, InstallError> {
        self.flush()?;
        self.file.sync()?;
        Ok(Written {
            record: FileRecord {
                size: self.size,
                sha256: Sha256Hex::from_bytes(self.sha256.finish()),
            },
            sums: self.sums,
        })
    }
}

/// Reads a file of the model directory again and hashes it, for a resumed installation and for `verify`.
///
/// # Errors
/// Those of the disk.
pub fn hash_file(
    disk: &dyn Disk,
    path: &Path,
    stride: Option<u64>,
    progress: &mut dyn FnMut(u64),
) -> Result<Written, InstallError> {
    let mut writer = HashingWriter::new(Box::new(Nowhere), stride, progress);
    let mut offset = 0;
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let n = disk.read_at(path, offset, &mut buffer)?;
        writer.append(n as u64, |at, buf| {
            buf.copy_from_slice(&buffer[at as usize..][..buf.len()]);
            Ok(())
        })?;
        offset += n as u64;
        if n < BUFFER_BYTES {
            return writer.finish();
        }
    }
}

/// Hashing needs the writer's arithmetic and none of its writes.
struct Nowhere;

impl WriteFile for Nowhere {
    fn write_all(&mut self, _bytes: &[u8]) -> Result<(), ouzel_storage::StorageError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), ouzel_storage::StorageError> {
        Ok(())
    }
}
