//! Files that commands make: whole, or not at all, and never in place of another.
//!
//! A file appears under its name when it is complete. What is no regular file, such as a FIFO or a device, has no name to give
//! away: it is written to as it stands.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ouzel_storage::{ShowPath, StorageError};

use crate::exit::usage;

/// Where the bytes of a new file go, found to be possible before anything is computed.
pub enum Target {
    /// A new file: written under `partial`, then renamed.
    NewFile {
        path: PathBuf,
        partial: PathBuf,
        /// The option that named it.
        flag: &'static str,
    },
    /// A FIFO or a device.
    Stream(PathBuf),
}

impl Target {
    /// Refuses what exists and what cannot come to exist.
    pub fn find(path: &Path, flag: &'static str) -> anyhow::Result<Target> {
        let refuse = |why: &str| Err(usage(format!("{flag} {}: {why}", path.shown())));
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return refuse("is a folder; give the name of a file"),
            Ok(found) if found.is_file() => {
                return refuse("already exists; give another name, or remove it first");
            }
            Ok(_) => return Ok(Target::Stream(path.to_owned())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return refuse(&format!("{error}; give another name"));
            }
            Err(_) => {}
        }
        if fs::symlink_metadata(path).is_ok() {
            return refuse("already exists, as a link to nothing; give another name");
        }
        let name = path.file_name().map(ToOwned::to_owned);
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let Some(mut name) = name.filter(|_| folder.is_dir()) else {
            return refuse("its folder does not exist; make it first, or give another name");
        };
        name.push(".partial");
        Ok(Target::NewFile {
            path: path.to_owned(),
            partial: folder.join(name),
            flag,
        })
    }

    /// The file that is opened.
    fn opened(&self) -> &Path {
        match self {
            Target::NewFile { partial, .. } => partial,
            Target::Stream(path) => path,
        }
    }
}

/// A new file on its way to the disk.
pub struct NewFile {
    file: BufWriter<File>,
    target: Target,
    is_complete: bool,
}

/// Half a file is of no use to anyone.
impl Drop for NewFile {
    fn drop(&mut self) {
        if let (false, Target::NewFile { partial, .. }) = (self.is_complete, &self.target) {
            let _ = fs::remove_file(partial);
        }
    }
}

impl NewFile {
    /// Opens the target.
    pub fn create(target: Target) -> anyhow::Result<NewFile> {
        let is_new = matches!(target, Target::NewFile { .. });
        let file = OpenOptions::new()
            .write(true)
            .create(is_new)
            .truncate(is_new)
            .open(target.opened())
            .map_err(|source| StorageError::io("opening", target.opened(), source))?;
        Ok(NewFile {
            file: BufWriter::with_capacity(1 << 20, file),
            target,
            is_complete: false,
        })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let result = self.file.write_all(bytes);
        self.written(result)
    }

    /// Everything is there: makes it durable and gives the file its name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let flushed = self.file.flush();
        self.written(flushed)?;
        if let Target::NewFile {
            path,
            partial,
            flag,
        } = &self.target
        {
            self.written(self.file.get_ref().sync_all())?;
            // Another program may have made the file meanwhile; then it is not ours to replace.
            Target::find(path, flag)?;
            fs::rename(partial, path)
                .map_err(|source| StorageError::io("renaming", partial, source))?;
        }
        self.is_complete = true;
        Ok(())
    }

    fn written(&self, result: io::Result<()>) -> anyhow::Result<()> {
        result.map_err(|source| StorageError::io("writing", self.target.opened(), source).into())
    }
}
