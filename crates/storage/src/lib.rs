//! Bytes on disk and in memory, and nothing about what they mean.
//!
//! Aligned buffers, positioned and direct reads, mapped files, hashes, free space and the disk that an installation writes to, with
//! a twin in memory whose faults are drawn from a seed. What differs between systems lies in one file each behind the
//! same functions. One of the two rooms where unsafe code may live.

mod aligned;
pub mod counting;
mod disk;
mod error;
mod hash;
mod links;
mod lock;
mod map;
mod memory;
mod once;
mod positioned;
pub mod probe;
mod region;
mod shown;
pub mod sim;
mod stream;
mod sys;

pub use aligned::AlignedBuf;
pub use disk::{Disk, OsDisk, WriteFile};
pub use error::StorageError;
pub use hash::{Sha256, Xxh3, xxh3_64};
pub use links::find_link;
pub use lock::DirLock;
pub use map::Mmap;
pub use memory::{free_memory, peak_memory, program_file_bytes, resident_memory_of};
pub use once::{OnceFile, read_once};
pub use positioned::{IoMode, PositionedFile, ReadMode};
pub use region::Region;
pub use shown::{ShowPath, Shown};
pub use stream::StreamWriter;

use std::path::Path;

/// Lets other threads have the processor before this one, from now on, where the system knows such a thing.
pub fn give_way() {
    sys::give_way();
}

/// Whether the desktop gave this process a console that nobody else uses, as Windows does for a program that is started by a double click.
pub fn has_own_console() -> bool {
    sys::has_own_console()
}

/// Makes a folder, and those above it that are missing, for what is nobody else's business.
///
/// # Errors
/// [`StorageError::Io`].
pub fn create_private_dir(path: &Path) -> Result<(), StorageError> {
    sys::create_private_dir(path)
        .map_err(|source| StorageError::io("creating the folder", path, source))
}

/// Makes an empty file, unless it is there, for what is nobody else's business.
///
/// # Errors
/// [`StorageError::Io`].
pub fn create_private_file(path: &Path) -> Result<(), StorageError> {
    sys::create_private_file(path)
        .map_err(|source| StorageError::io("creating the file", path, source))
}

/// Bytes that an unprivileged user may still write to the file system of `path`.
///
/// # Errors
/// [`StorageError::Io`] if the system does not say.
pub fn free_space(path: &Path) -> Result<u64, StorageError> {
    sys::free_space(path).map_err(|source| StorageError::io("asking for free space", path, source))
}
