//! A lock between processes on one folder.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use crate::StorageError;

/// Held while one process works on a folder; the system releases it even if the process dies.
#[derive(Debug)]
pub struct DirLock {
    /// Kept open: closing it releases the lock.
    _file: File,
}

impl DirLock {
    /// Locks the file `path`, which is made if need be and stays behind, empty.
    ///
    /// # Errors
    /// [`StorageError::Locked`] if another process holds it.
    pub fn try_acquire(path: &Path) -> Result<DirLock, StorageError> {
        let file = open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(DirLock { _file: file }),
            Err(TryLockError::WouldBlock) => Err(StorageError::Locked {
                path: path.to_owned(),
            }),
            Err(TryLockError::Error(source)) => Err(StorageError::io("locking", path, source)),
        }
    }

    /// The same, but waits for the other process.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn acquire(path: &Path) -> Result<DirLock, StorageError> {
        let file = open(path)?;
        file.lock()
            .map_err(|source| StorageError::io("locking", path, source))?;
        Ok(DirLock { _file: file })
    }

    /// The lock file that belongs to `dir`: beside it, so that the folder can be replaced while the lock is held.
    pub fn path_for(dir: &Path) -> PathBuf {
        let mut name = dir.as_os_str().to_owned();
        name.push(".lock");
        PathBuf::from(name)
    }
}

fn open(path: &Path) -> Result<File, StorageError> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(|source| StorageError::io("opening the lock", path, source))
}
