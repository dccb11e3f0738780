//! Reads at a given place of a file, past the page cache where that is possible.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::{AlignedBuf, ShowPath, StorageError, sys};

/// Direct reads want addresses, offsets and lengths in multiples of this; no disk in use has larger blocks.
const DIRECT_BLOCK: usize = 4096;

/// Whether reads go through the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoMode {
    /// Direct where the file system allows it, buffered elsewhere.
    #[default]
    Auto,
    /// Past the page cache, or not at all.
    Direct,
    /// Through the page cache, which then grows beyond the budget.
    Buffered,
}

/// How reads really go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadMode {
    /// Past the page cache.
    Direct,
    /// Through the page cache, since the file system refuses direct reads; the pages are dropped after each read.
    Dropping,
    /// Through the page cache, as the caller chose; what it keeps is nobody's budget.
    Buffered,
}

/// A file open for reads at given places, from any number of threads.
#[derive(Debug)]
pub struct PositionedFile {
    file: File,
    path: PathBuf,
    len: u64,
    mode: ReadMode,
}

impl PositionedFile {
    /// Opens a file. [`IoMode::Auto`] falls back to buffered reads where direct ones are refused.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn open(path: &Path, mode: IoMode) -> Result<PositionedFile, StorageError> {
        PositionedFile::open_with(path, mode, open_direct)
    }

    fn open_with(
        path: &Path,
        mode: IoMode,
        open_direct: fn(&Path) -> io::Result<File>,
    ) -> Result<PositionedFile, StorageError> {
        let failed = |source| StorageError::io("opening", path, source);
        let (file, actual) = match mode {
            IoMode::Buffered => (File::open(path).map_err(failed)?, ReadMode::Buffered),
            IoMode::Direct => (open_direct(path).map_err(failed)?, ReadMode::Direct),
            IoMode::Auto => match open_direct(path) {
                Ok(file) => (file, ReadMode::Direct),
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(failed(error)),
                Err(_) => (File::open(path).map_err(failed)?, ReadMode::Dropping),
            },
        };
        let len = file.metadata().map_err(failed)?.len();
        Ok(PositionedFile {
            file,
            path: path.to_owned(),
            len,
            mode: actual,
        })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file when it was opened.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// How reads really go.
    pub fn mode(&self) -> ReadMode {
        self.mode
    }

    /// Fills `buf` from `offset`. A direct read wants the address, the offset and the length in multiples of 4,096 bytes.
    ///
    /// # Errors
    /// [`StorageError::Truncated`] if the file ends before `buf` is full, [`StorageError::Io`].
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), StorageError> {
        let expected = buf.len();
        self.read_at_least(buf, offset, expected)
    }

    /// Reads up to `buf.len()` bytes, of which the first `expected` must be there: so that the last direct read of a file, which
    /// must ask for whole blocks, may come back legitimately short.
    ///
    /// # Errors
    /// [`StorageError::Truncated`] if fewer than `expected` bytes are there, [`StorageError::Io`].
    pub fn read_at_least(
        &self,
        buf: &mut [u8],
        offset: u64,
        expected: usize,
    ) -> Result<(), StorageError> {
        if self.mode == ReadMode::Direct {
            let address = buf.as_ptr().addr();
            let whole =
                [address, buf.len(), offset as usize].map(|n| n.is_multiple_of(DIRECT_BLOCK));
            assert_eq!(whole, [true; 3], "a direct read of {}", self.path.shown());
        }
        let granularity = match self.mode {
            ReadMode::Direct => DIRECT_BLOCK,
            ReadMode::Dropping | ReadMode::Buffered => 1,
        };
        let read = |buf: &mut [u8], at| sys::read_at(&self.file, buf, at);
        let done = fill(read, buf, offset, expected, granularity).map_err(|stop| {
            let (path, actual) = (self.path.clone(), stop.done);
            match stop.error {
                Some(source) => StorageError::Read {
                    path,
                    offset,
                    expected,
                    actual,
                    source,
                },
                None => StorageError::Truncated {
                    path,
                    offset,
                    expected,
                    actual,
                },
            }
        })?;
        if self.mode == ReadMode::Dropping {
            sys::drop_pages(&self.file, offset, done as u64);
        }
        Ok(())
    }
}

/// Where reading stopped too early: at an error, or at the end of the file.
#[derive(Debug)]
struct Stop {
    done: usize,
    error: Option<io::Error>,
}

/// Calls `read` until `expected` bytes are there, and says how many came. A read that stops within `granularity` bytes can only
/// have met the end of the file: going on from there would be refused, since direct reads start at whole blocks.
fn fill(
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    buf: &mut [u8],
    offset: u64,
    expected: usize,
    granularity: usize,
) -> Result<usize, Stop> {
    let mut done = 0;
    while done < expected {
        match read(&mut buf[done..], offset + done as u64) {
            Ok(0) => return Err(Stop { done, error: None }),
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                return Err(Stop {
                    done,
                    error: Some(error),
                });
            }
        }
        if done < expected && !done.is_multiple_of(granularity) {
            return Err(Stop { done, error: None });
        }
    }
    Ok(done)
}

/// Opens for direct reads and proves with one block that they work: some file systems refuse only then.
fn open_direct(path: &Path) -> io::Result<File> {
    let file = sys::open_direct(path)?;
    let mut block =
        AlignedBuf::new(AlignedBuf::ALIGNMENT).map_err(|_| io::ErrorKind::OutOfMemory)?;
    sys::read_at(&file, &mut block[..DIRECT_BLOCK], 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests;
