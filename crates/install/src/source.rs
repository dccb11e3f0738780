//! Where a checkpoint comes from: a few named files that can be read at any place.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ouzel_storage::{IoMode, PositionedFile, StorageError};

use crate::hash::BUFFER_BYTES;
use crate::{Event, InstallError, checkpoint};

/// Bytes of one file of a checkpoint that are asked for together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// The file's name.
    pub file: &'a str,
    /// Where they start.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

/// Where the bytes of requests go.
pub trait Sink {
    /// Takes the next bytes of the request with this index. Requests may come in any order, the bytes of one come in order.
    ///
    /// # Errors
    /// Those of the disk, and [`InstallError::Paused`]: nothing more is wanted.
    fn take(&mut self, request: usize, bytes: &[u8]) -> Result<(), InstallError>;

    /// Passes news on.
    fn tell(&mut self, event: Event);

    /// Whether anything more is wanted, for sources that wait.
    ///
    /// # Errors
    /// [`InstallError::Paused`] if not.
    fn check(&self) -> Result<(), InstallError>;
}

/// A checkpoint. Names are those of its files, without folders.
pub trait Source {
    /// The file names, in any order.
    fn files(&self) -> Vec<String>;

    /// The size of a file in bytes, or `None` if there is no such file.
    fn size(&self, name: &str) -> Option<u64>;

    /// Fills `buf` from `offset` of the file `name`.
    ///
    /// # Errors
    /// [`InstallError::Source`] if the bytes cannot be had.
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<(), InstallError>;

    /// What tells the file from another of the same name and size, such as the time of its last change. An installation that was
    /// cut short goes on only with the files that it began with. Empty for files that never change.
    fn version(&self, _name: &str) -> String {
        String::new()
    }

    /// Brings every byte of every request to `sink`. What is said here reads them one after the other.
    ///
    /// # Errors
    /// Those of reading and those of `sink`.
    fn bring(&self, requests: &[Request<'_>], sink: &mut dyn Sink) -> Result<(), InstallError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        for (i, request) in requests.iter().enumerate() {
            let mut done = 0;
            while done < request.len {
                let n = (request.len - done).min(BUFFER_BYTES as u64) as usize;
                self.read_at(request.file, request.offset + done, &mut buffer[..n])?;
                sink.take(i, &buffer[..n])?;
                done += n as u64;
            }
        }
        Ok(())
    }
}

/// A checkpoint in a folder of this machine.
#[derive(Debug)]
pub struct LocalFolder {
    dir: PathBuf,
    files: Vec<LocalFile>,
}

#[derive(Debug)]
struct LocalFile {
    name: String,
    file: PositionedFile,
    modified: Option<SystemTime>,
}

impl LocalFolder {
    /// Opens every file of the folder that an installation could need.
    ///
    /// # Errors
    /// [`InstallError::NotACheckpoint`] if there is no such folder or no `config.json` in it, [`InstallError::Storage`] if a file of it
    /// cannot be opened.
    pub fn open(dir: &Path) -> Result<LocalFolder, InstallError> {
        // Resolved once, so that the same folder is the same source wherever the program is run from.
        let dir = &std::fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        let not_a_checkpoint = |reason: String| InstallError::NotACheckpoint {
            dir: dir.to_owned(),
            reason,
        };
        let entries =
            std::fs::read_dir(dir).map_err(|error| not_a_checkpoint(error.to_string()))?;
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| not_a_checkpoint(error.to_string()))?;
            let path = entry.path();
            // A name that is not UTF-8 is none that an installation knows.
            if let Some(name) = entry.file_name().to_str()
                && checkpoint::may_need(name)
                && let Ok(metadata) = path.metadata()
                && metadata.is_file()
            {
                files.push(LocalFile {
                    name: name.to_owned(),
                    file: PositionedFile::open(&path, IoMode::Buffered)?,
                    modified: metadata.modified().ok(),
                });
            }
        }
        if !files.iter().any(|file| file.name == checkpoint::CONFIG) {
            return Err(not_a_checkpoint("it has no config.json".to_owned()));
        }
        Ok(LocalFolder {
            dir: dir.to_owned(),
            files,
        })
    }

    /// The folder, without links.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn file(&self, name: &str) -> Option<&LocalFile> {
        self.files.iter().find(|file| file.name == name)
    }
}

impl Source for LocalFolder {
    fn files(&self) -> Vec<String> {
        self.files.iter().map(|file| file.name.clone()).collect()
    }

    fn size(&self, name: &str) -> Option<u64> {
        self.file(name).map(|file| file.file.len())
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<(), InstallError> {
        let file = self.file(name).ok_or_else(|| no_such_file(name))?;
        file.file
            .read_exact_at(buf, offset)
            .map_err(|error| unreadable(name, &error))
    }

    fn version(&self, name: &str) -> String {
        let file = self.file(name);
        let modified = file.and_then(|file| file.modified);
        let path = file.map(|file| file.file.path().to_owned());
        format!("{path:?} {modified:?}")
    }
}

/// A checkpoint that is part of the program.
#[derive(Clone, Copy, Debug)]
pub struct Embedded {
    files: &'static [(&'static str, &'static [u8])],
}

impl Embedded {
    /// The named files and their bytes.
    pub const fn new(files: &'static [(&'static str, &'static [u8])]) -> Embedded {
        Embedded { files }
    }

    fn file(&self, name: &str) -> Option<&'static [u8]> {
        self.files
            .iter()
            .find(|(known, _)| *known == name)
            .map(|&(_, bytes)| bytes)
    }
}

impl Source for Embedded {
    fn files(&self) -> Vec<String> {
        self.files
            .iter()
            .map(|&(name, _)| name.to_owned())
            .collect()
    }

    fn size(&self, name: &str) -> Option<u64> {
        self.file(name).map(|bytes| bytes.len() as u64)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<(), InstallError> {
        let bytes = self.file(name).ok_or_else(|| no_such_file(name))?;
        let start = usize::try_from(offset).ok();
        let range = start.and_then(|start| bytes.get(start..start.checked_add(buf.len())?));
        let range = range.ok_or_else(|| InstallError::Source {
            file: name.to_owned(),
            reason: format!("has no {} bytes at offset {offset}", buf.len()),
        })?;
        buf.copy_from_slice(range);
        Ok(())
    }
}

/// Truncation is worded here: what to do about a checkpoint is another thing than about an installed model.
fn unreadable(name: &str, error: &StorageError) -> InstallError {
    let reason = match error {
        StorageError::Truncated {
            offset,
            expected,
            actual,
            ..
        } => format!(
            "ends after {actual} of the {expected} bytes asked for at offset {offset}; copy or download it again"
        ),
        other => format!("cannot be read: {other}"),
    };
    InstallError::Source {
        file: name.to_owned(),
        reason,
    }
}

fn no_such_file(name: &str) -> InstallError {
    InstallError::Source {
        file: name.to_owned(),
        reason: "is not there".to_owned(),
    }
}
