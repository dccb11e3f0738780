//! What keeps conversations from the disk, for whoever may be able to change it: told once a kind, since it happens again with every turn.

use std::path::Path;

use ouzel_storage::{ShowPath, StorageError};

/// Troubles that nobody was told of, and the kinds that somebody was.
#[derive(Debug, Default)]
pub(super) struct Troubles {
    new: Vec<String>,
    has_folder: bool,
    has_file: bool,
}

impl Troubles {
    /// The folder cannot be used.
    pub fn of_folder(&mut self, dir: &Path, error: &StorageError) {
        if !std::mem::replace(&mut self.has_folder, true) {
            self.new.push(in_words(dir, error));
        }
    }

    /// A file in it cannot be written.
    pub fn of_file(&mut self, dir: &Path, error: &StorageError) {
        if !std::mem::replace(&mut self.has_file, true) {
            self.new.push(in_words(dir, error));
        }
    }

    /// Those that are new.
    pub fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }
}

/// The folder is what somebody may know; the names of the files in it say nothing to anybody.
fn in_words(dir: &Path, error: &StorageError) -> String {
    let dir = dir.shown();
    match error {
        StorageError::Io { action, source, .. } => format!("{dir}: {action}: {source}"),
        StorageError::NoSpace { .. } => format!("{dir}: the disk is full"),
        StorageError::Locked { .. } => format!("{dir}: another ouzel keeps its own there"),
        error => format!("{dir}: {error}"),
    }
}
