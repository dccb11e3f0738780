//! Where a checkpoint comes from: a few named files that can be read at any place.

use std::fs::File;
use std::path::{Path, PathBuf};

use ouzel_storage::{IoMode, PositionedFile, StorageError};

use crate::InstallError;

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
}

/// A checkpoint in a folder of this machine.
#[derive(Debug)]
pub struct LocalFolder {
    dir: PathBuf,
    files: Vec<(String, PositionedFile)>,
}

impl LocalFolder {
    /// Opens every file of the folder that an installation could need.
    ///
    /// # Errors
    /// [`InstallError::NotACheckpoint`] if there is no such folder or no `config.json` in it.
    pub fn open(dir: &Path) -> Result<LocalFolder, InstallError> {
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
                && path.is_file()
                && File::open(&path).is_ok()
            {
                files.push((
                    name.to_owned(),
                    PositionedFile::open(&path, IoMode::Buffered)?,
                ));
            }
        }
        if !files.iter().any(|(name, _)| name == "config.json") {
            return Err(not_a_checkpoint("it has no config.json".to_owned()));
        }
        Ok(LocalFolder {
            dir: dir.to_owned(),
            files,
        })
    }

    /// The folder as it was given.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn file(&self, name: &str) -> Option<&PositionedFile> {
        self.files
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, file)| file)
    }
}

impl Source for LocalFolder {
    fn files(&self) -> Vec<String> {
        self.files.iter().map(|(name, _)| name.clone()).collect()
    }

    fn size(&self, name: &str) -> Option<u64> {
        self.file(name).map(PositionedFile::len)
    }

    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<(), InstallError> {
        let file = self.file(name).ok_or_else(|| no_such_file(name))?;
        file.read_exact_at(buf, offset)
            .map_err(|error: StorageError| InstallError::Source {
                file: name.to_owned(),
                reason: error.to_string(),
            })
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

fn no_such_file(name: &str) -> InstallError {
    InstallError::Source {
        file: name.to_owned(),
        reason: "is not there".to_owned(),
    }
}
