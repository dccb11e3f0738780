//! Links within a folder that must have none: what is read there has to be what was checked there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The first link in `dir` or in one of its folders with these names; `dir` itself may be one.
///
/// # Errors
/// Where a folder that is there cannot be listed.
pub fn find_link(dir: &Path, folders: &[&str]) -> io::Result<Option<PathBuf>> {
    for folder in [""].iter().chain(folders) {
        let folder = dir.join(folder);
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_symlink() {
                return Ok(Some(entry.path()));
            }
        }
    }
    Ok(None)
}
