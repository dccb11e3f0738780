//! What can go wrong with a file, each with the path it happened to.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::ShowPath;

/// An error of the storage room.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The system refused an operation.
    #[error("{}: {action}: {source}", path.shown())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The system failed to read bytes that should be there.
    #[error("{}: reading {expected} bytes at offset {offset} failed after {actual}: {source}", path.shown())]
    Read {
        /// The file.
        path: PathBuf,
        /// Where the read began.
        offset: u64,
        /// Bytes asked for.
        expected: usize,
        /// Bytes that came.
        actual: usize,
        /// What the system said.
        source: io::Error,
    },
    /// The disk is full: make room and try again.
    #[error("{}: the disk is full; make room and try again", path.shown())]
    NoSpace {
        /// The file being written.
        path: PathBuf,
    },
    /// A file ends before the bytes that were asked for.
    #[error("{}: ends after {actual} of the {expected} bytes asked for at offset {offset}; the file was cut short: `ouzel install --repair`, or install the model again", path.shown())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Where the read began.
        offset: u64,
        /// Bytes asked for.
        expected: usize,
        /// Bytes there.
        actual: usize,
    },
    /// The system has no memory for a buffer.
    #[error(
        "no memory for a buffer of {bytes} bytes; give a smaller --memory or close other programs"
    )]
    NoMemory {
        /// Bytes asked for.
        bytes: usize,
    },
    /// Another process holds the lock.
    #[error("{}: another ouzel is at work on it; wait for it to end", path.shown())]
    Locked {
        /// The lock's file.
        path: PathBuf,
    },
}

impl StorageError {
    /// The system's refusal of `action` on `path`; a full disk becomes an error of its own.
    pub fn io(action: &'static str, path: &Path, source: io::Error) -> StorageError {
        let path = path.to_owned();
        if source.kind() == io::ErrorKind::StorageFull
            || source.kind() == io::ErrorKind::QuotaExceeded
        {
            return StorageError::NoSpace { path };
        }
        StorageError::Io {
            action,
            path,
            source,
        }
    }
}
