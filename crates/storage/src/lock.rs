//! A lock between processes on one folder: one that changes it, or any number that use it.
//!
//! The lock's file lies beside the folder, so that the folder can be replaced while the lock is held, and goes away with the last holder
//! where the system lets a file be told from another of its name: whoever opened one that was removed meanwhile opens again.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{StorageError, sys};

/// How often a lock that is refused is asked for again: whoever lets go of one has it alone for an instant.
const TRIES: u32 = 50;
/// The time between.
const PAUSE: Duration = Duration::from_millis(2);

/// Held while a process works on a folder; the system releases it even if the process dies.
#[derive(Debug)]
pub struct DirLock {
    file: File,
    path: PathBuf,
}

impl DirLock {
    /// Locks the file `path`, which is made if need be, against everyone else.
    ///
    /// # Errors
    /// [`StorageError::Locked`] if another process holds it.
    pub fn try_acquire(path: &Path) -> Result<DirLock, StorageError> {
        DirLock::hold(path, true, File::try_lock)
    }

    /// The same, together with others who share it.
    ///
    /// # Errors
    /// [`StorageError::Locked`] if another process holds it alone.
    pub fn try_share(path: &Path) -> Result<DirLock, StorageError> {
        DirLock::hold(path, true, File::try_lock_shared)
    }

    /// Locks the file alone, and waits for other processes.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn acquire(path: &Path) -> Result<DirLock, StorageError> {
        DirLock::hold(path, true, |file| file.lock().map_err(TryLockError::Error))
    }

    /// Locks a file that is there alone; `None` where there is none.
    ///
    /// # Errors
    /// [`StorageError::Locked`] if another process holds it.
    pub fn try_acquire_existing(path: &Path) -> Result<Option<DirLock>, StorageError> {
        if !path.exists() {
            return Ok(None);
        }
        DirLock::hold(path, false, File::try_lock).map(Some)
    }

    fn hold(
        path: &Path,
        create: bool,
        lock: fn(&File) -> Result<(), TryLockError>,
    ) -> Result<DirLock, StorageError> {
        // Whoever only looks whether a lock is held has no time to lose.
        let mut tries = if create { TRIES } else { 0 };
        loop {
            let file = sys::without_links(OpenOptions::new().create(create).write(true))
                .open(path)
                .map_err(|source| StorageError::io("opening the lock", path, source))?;
            match lock(&file) {
                Ok(()) if sys::is_at(&file, path) => {
                    return Ok(DirLock {
                        file,
                        path: path.to_owned(),
                    });
                }
                // Its holder removed it while this process waited or opened it.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) if tries > 0 => {
                    tries -= 1;
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::WouldBlock) => {
                    return Err(StorageError::Locked {
                        path: path.to_owned(),
                    });
                }
                Err(TryLockError::Error(source)) => {
                    return Err(StorageError::io("locking", path, source));
                }
            }
        }
    }

    /// The file that is locked, which may say who holds it.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the lock back and removes its file, unless others hold it too.
    pub fn release(self) {
        // The lock is converted, not dropped: nobody else can come to hold a file that is removed here.
        if sys::CAN_TELL_FILES_APART && self.file.try_lock().is_ok() {
            // An empty file that stays behind does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// The lock file that belongs to `dir`.
    pub fn path_for(dir: &Path) -> PathBuf {
        let mut name = dir.as_os_str().to_owned();
        name.push(".lock");
        PathBuf::from(name)
    }
}
