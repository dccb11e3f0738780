//! Large files written from their start to their end, past the page cache where that is possible.
//!
//! A model of gigabytes that goes through the page cache pushes out what other programs keep there, and waits for the kernel to write it
//! back, which can be several times slower than the disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::{AlignedBuf, ShowPath, StorageError, sys};

/// A file under way, which takes whole blocks and, at its end, a rest.
#[derive(Debug)]
pub struct StreamWriter {
    path: PathBuf,
    /// Takes the rest, and everything where the file system refuses direct writes.
    buffered: File,
    direct: Option<File>,
    written: u64,
}

impl StreamWriter {
    /// Makes `path` an empty file, whatever was there.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn create(path: &Path) -> Result<StreamWriter, StorageError> {
        let buffered = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .map_err(|source| StorageError::io("creating", path, source))?;
        Ok(StreamWriter {
            path: path.to_owned(),
            buffered,
            direct: sys::open_direct_to_write(path).ok(),
            written: 0,
        })
    }

    /// Whether blocks go past the page cache, as far as is known.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Appends a block, whose address and length are multiples of [`AlignedBuf::ALIGNMENT`].
    ///
    /// # Errors
    /// [`StorageError::Io`].
    ///
    /// # Panics
    /// If they are not.
    pub fn write_block(&mut self, block: &[u8]) -> Result<(), StorageError> {
        let whole = [block.as_ptr().addr(), block.len()];
        let whole = whole.map(|n| n.is_multiple_of(AlignedBuf::ALIGNMENT));
        assert_eq!(whole, [true; 2], "a block of {}", self.path.shown());
        let result = match &mut self.direct {
            Some(file) => file.write_all(block),
            None => self.buffered.write_all(block),
        };
        match result {
            // Some file systems refuse only when they are written to.
            Err(error) if self.written == 0 && error.kind() == io::ErrorKind::InvalidInput => {
                self.direct = None;
                self.buffered.write_all(block)
            }
            result => result,
        }
        .map_err(|source| self.failed(source))?;
        self.written += block.len() as u64;
        Ok(())
    }

    /// Appends the rest of the file, of any length, and makes everything durable.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn finish(mut self, rest: &[u8]) -> Result<(), StorageError> {
        self.buffered
            .seek(SeekFrom::Start(self.written))
            .and_then(|_| self.buffered.write_all(rest))
            .and_then(|()| self.buffered.sync_all())
            .map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> StorageError {
        StorageError::io("writing", &self.path, source)
    }
}
