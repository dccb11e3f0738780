//! Files that are read once and whole. Their pages would stay in the page cache, where a memory limit counts them against whoever
//! read them, though nobody wants them again.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use crate::sys;

/// Bytes after which the pages behind them go.
const STEP_BYTES: u64 = 1 << 20;

/// A file that leaves nothing in the page cache, where the system can be told so.
#[derive(Debug)]
pub struct OnceFile {
    file: File,
    read_bytes: u64,
    dropped_bytes: u64,
}

impl OnceFile {
    /// Opens a file.
    ///
    /// # Errors
    /// The system's.
    pub fn open(path: &Path) -> io::Result<OnceFile> {
        Ok(OnceFile {
            file: File::open(path)?,
            read_bytes: 0,
            dropped_bytes: 0,
        })
    }
}

/// All bytes of a file, of which none stays in the page cache.
///
/// # Errors
/// The system's.
pub fn read_once(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = OnceFile::open(path)?;
    let mut bytes = Vec::new();
    // As long as the file is now: a vector that grows by doubling could take twice that.
    let len = usize::try_from(file.file.metadata()?.len()).unwrap_or(usize::MAX);
    bytes
        .try_reserve_exact(len)
        .map_err(|_| io::ErrorKind::OutOfMemory)?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Read for OnceFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.read_bytes += n as u64;
        let behind = self.read_bytes - self.dropped_bytes;
        if behind >= STEP_BYTES {
            sys::drop_pages(&self.file, self.dropped_bytes, behind);
            self.dropped_bytes = self.read_bytes;
        }
        Ok(n)
    }
}

impl Drop for OnceFile {
    fn drop(&mut self) {
        // From the first byte to the end, with what was read ahead and what could not go while it was still arriving.
        sys::drop_pages(&self.file, 0, 0);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests;
