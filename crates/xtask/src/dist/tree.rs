//! Files by their path, sorted: what an archive holds before it is one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::Context;

/// One file.
#[derive(Clone)]
pub struct Entry {
    /// Its content.
    pub bytes: Vec<u8>,
    /// Whether it is run.
    pub is_program: bool,
}

impl Entry {
    /// Permissions as Unix has them.
    pub fn mode(&self) -> u32 {
        if self.is_program { 0o755 } else { 0o644 }
    }
}

/// Files by their path.
#[derive(Clone, Default)]
pub struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// Adds a file.
    pub fn file(&mut self, path: &str, bytes: Vec<u8>) {
        let entry = Entry {
            bytes,
            is_program: false,
        };
        self.0.insert(path.to_owned(), entry);
    }

    /// Adds a file that is run.
    pub fn program(&mut self, path: &str, bytes: Vec<u8>) {
        let entry = Entry {
            bytes,
            is_program: true,
        };
        self.0.insert(path.to_owned(), entry);
    }

    /// Adds all of another tree below a folder.
    pub fn under(&mut self, folder: &str, other: &Tree) {
        for (path, entry) in &other.0 {
            self.0.insert(format!("{folder}/{path}"), entry.clone());
        }
    }

    /// Adds the files of a folder on the disk, and those below it.
    pub fn folder(&mut self, path: &str, from: &Path) -> anyhow::Result<()> {
        let entries = fs::read_dir(from).with_context(|| from.display().to_string())?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().context("a file name is not UTF-8")?;
            let inside = if path.is_empty() {
                name.to_owned()
            } else {
                format!("{path}/{name}")
            };
            let at = entry.path();
            if at.is_dir() {
                self.folder(&inside, &at)?;
            } else {
                self.file(&inside, fs::read(&at).with_context(|| inside.clone())?);
            }
        }
        Ok(())
    }

    /// One file's content.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        Some(&self.0.get(path)?.bytes)
    }

    /// All files, sorted.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.0.iter().map(|(path, entry)| (path.as_str(), entry))
    }

    /// The folders that the files lie in, each before those below it.
    pub fn folders(&self) -> BTreeSet<&str> {
        let above =
            |path: &str| -> Vec<usize> { path.match_indices('/').map(|(at, _)| at).collect() };
        let paths = self.0.keys();
        paths
            .flat_map(|path| above(path).into_iter().map(move |end| &path[..end]))
            .collect()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|entry| entry.bytes.len() as u64).sum()
    }
}
