//! The disk that an installation writes to, as the few operations that it needs, so that a twin with faults can stand in.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use crate::{StorageError, sys};

/// What an installation asks of a disk. Paths are as the system's; every error carries its path. One thread writes; others may read
/// what is finished meanwhile.
pub trait Disk: Sync {
    /// Makes `path` an empty file, whatever was there, and opens it for writing.
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile + '_>, StorageError>;

    /// Opens `path` for writing and keeps what is in it; a file that is not there is made. A link in its place is refused.
    fn open_write(&self, path: &Path) -> Result<Box<dyn WriteFile + '_>, StorageError>;

    /// Fills as much of `buf` from `offset` as the file has, and says how much.
    fn read_at(&self, path: &Path, offset: u64, buf: &mut [u8]) -> Result<usize, StorageError>;

    /// The length of a file, or `None` if there is no file at `path`.
    fn file_len(&self, path: &Path) -> Result<Option<u64>, StorageError>;

    /// Bytes of the disk that a file takes, which are fewer than its length where it has holes; 0 if there is no file at `path`.
    fn taken(&self, path: &Path) -> Result<u64, StorageError>;

    /// Whether there is a file or a folder at `path`.
    fn exists(&self, path: &Path) -> bool;

    /// The names in a folder, in any order, or `None` if there is no folder at `path`.
    fn names(&self, path: &Path) -> Result<Option<Vec<OsString>>, StorageError>;

    /// Whether `path` is a link, wherever it leads. A disk without links says no.
    fn is_link(&self, _path: &Path) -> bool {
        false
    }

    /// Makes a folder and those above it.
    fn create_dir_all(&self, path: &Path) -> Result<(), StorageError>;

    /// Renames a file or a folder. A file may replace a file; a folder needs a free name.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError>;

    /// Removes a file; one that is not there is no error.
    fn remove_file(&self, path: &Path) -> Result<(), StorageError>;

    /// Removes a folder with all that is in it; one that is not there is no error.
    fn remove_dir_all(&self, path: &Path) -> Result<(), StorageError>;

    /// Makes the names in a folder durable.
    fn sync_dir(&self, path: &Path) -> Result<(), StorageError>;

    /// Bytes that may still be written near `path`, whose parents may not exist yet.
    fn free_space(&self, path: &Path) -> Result<u64, StorageError>;
}

/// A file being written, at any place. What no write reached before its end reads as zeros.
pub trait WriteFile {
    /// Puts all of `bytes` at `offset`.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError>;

    /// Lets the system begin to make everything written durable, and does not wait for it: what [`WriteFile::sync`] then waits for
    /// is less. Only advice.
    fn begin_sync(&mut self) {}

    /// Makes everything written durable.
    fn sync(&mut self) -> Result<(), StorageError>;
}

/// The disk of this system.
#[derive(Clone, Copy, Debug, Default)]
pub struct OsDisk;

struct OsFile {
    file: File,
    path: std::path::PathBuf,
}

impl WriteFile for OsFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageError> {
        sys::write_all_at(&self.file, bytes, offset)
            .map_err(|source| StorageError::io("writing", &self.path, source))
    }

    fn begin_sync(&mut self) {
        sys::begin_sync(&self.file);
    }

    fn sync(&mut self) -> Result<(), StorageError> {
        self.file
            .sync_all()
            .map_err(|source| StorageError::io("making durable", &self.path, source))
    }
}

impl OsDisk {
    fn open(path: &Path, options: &mut OpenOptions) -> Result<Box<dyn WriteFile>, StorageError> {
        let file = sys::without_links(options.write(true).create(true))
            .open(path)
            .map_err(|source| StorageError::io("creating", path, source))?;
        Ok(Box::new(OsFile {
            file,
            path: path.to_owned(),
        }))
    }
}

impl Disk for OsDisk {
    fn create(&self, path: &Path) -> Result<Box<dyn WriteFile + '_>, StorageError> {
        OsDisk::open(path, OpenOptions::new().truncate(true))
    }

    fn open_write(&self, path: &Path) -> Result<Box<dyn WriteFile + '_>, StorageError> {
        OsDisk::open(path, OpenOptions::new().truncate(false))
    }

    fn read_at(&self, path: &Path, offset: u64, buf: &mut [u8]) -> Result<usize, StorageError> {
        let (expected, mut done) = (buf.len(), 0);
        let failed = |actual, source| StorageError::Read {
            path: path.to_owned(),
            offset,
            expected,
            actual,
            source,
        };
        let file = File::open(path).map_err(|source| failed(0, source))?;
        while done < expected {
            match sys::read_at(&file, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(failed(done, source)),
            }
        }
        Ok(done)
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>, StorageError> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(metadata.is_file().then_some(metadata.len())),
            Err(error) if is_absent(&error) => Ok(None),
            Err(source) => Err(StorageError::io("looking at", path, source)),
        }
    }

    fn taken(&self, path: &Path) -> Result<u64, StorageError> {
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_file() => Ok(sys::taken(&metadata)),
            Ok(_) => Ok(0),
            Err(error) if is_absent(&error) => Ok(0),
            Err(source) => Err(StorageError::io("looking at", path, source)),
        }
    }

    fn exists(&self, path: &Path) -> bool {
        path.exists()
    }

    fn names(&self, path: &Path) -> Result<Option<Vec<OsString>>, StorageError> {
        let names = fs::read_dir(path).and_then(|entries| {
            entries
                .map(|entry| Ok(entry?.file_name()))
                .collect::<io::Result<Vec<_>>>()
        });
        match names {
            Ok(names) => Ok(Some(names)),
            Err(error) if !path.is_dir() || error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StorageError::io("listing", path, source)),
        }
    }

    fn is_link(&self, path: &Path) -> bool {
        path.is_symlink()
    }

    fn create_dir_all(&self, path: &Path) -> Result<(), StorageError> {
        fs::create_dir_all(path)
            .map_err(|source| StorageError::io("making the folder", path, source))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        fs::rename(from, to).map_err(|source| StorageError::io("renaming", from, source))
    }

    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        gone_is_fine(fs::remove_file(path))
            .map_err(|source| StorageError::io("removing", path, source))
    }

    fn remove_dir_all(&self, path: &Path) -> Result<(), StorageError> {
        gone_is_fine(fs::remove_dir_all(path))
            .map_err(|source| StorageError::io("removing", path, source))
    }

    fn sync_dir(&self, path: &Path) -> Result<(), StorageError> {
        sys::sync_dir(path).map_err(|source| StorageError::io("making durable", path, source))
    }

    fn free_space(&self, path: &Path) -> Result<u64, StorageError> {
        let mut there = path;
        while !there.exists() {
            match there.parent() {
                Some(parent) if parent != Path::new("") => there = parent,
                _ => {
                    there = Path::new(".");
                    break;
                }
            }
        }
        crate::free_space(there)
    }
}

/// Nothing lies there, perhaps because a file lies where a folder would have to.
fn is_absent(error: &io::Error) -> bool {
    [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind())
}

fn gone_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
