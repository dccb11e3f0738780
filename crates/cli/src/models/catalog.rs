//! The models of the models folder: which there are, in what state, and which one is meant when none is named.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ouzel_format::Manifest;
use ouzel_install::was_cut_short;
use ouzel_storage::{DirLock, OsDisk, ShowPath, StorageError};

use super::{EXTENSION, Places};
use crate::demo;
use crate::exit::CliError;

/// Holds the name of the default model, or its path where it lies elsewhere.
const DEFAULT_FILE: &str = "default";
/// A file with one path; anything longer is not one.
const MAX_DEFAULT_BYTES: u64 = 16 << 10;

/// What a model is good for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It can be used.
    Complete,
    /// Its installation was cut short.
    Unfinished,
    /// It is being installed.
    Installing,
    /// It was the default model and is not there any more.
    Gone,
    /// It cannot be used, and why.
    Broken(String),
}

/// A model of the folder, or the default one elsewhere.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What `--model` calls it.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// Bytes of its files.
    pub bytes: u64,
    /// What it is good for.
    pub state: State,
    /// Whether commands use it when none is named.
    pub is_default: bool,
}

impl Places {
    /// The directory of the default model, whether or not it is there.
    pub fn default_model(&self) -> Option<PathBuf> {
        let path = self.models.join(DEFAULT_FILE);
        let len = fs::metadata(&path).ok()?.len();
        let text = fs::read_to_string(path)
            .ok()
            .filter(|_| len <= MAX_DEFAULT_BYTES)?;
        let text = text.trim_end_matches(['\r', '\n']);
        (!text.is_empty()).then(|| self.models.join(text))
    }

    /// Makes a model the default of every command.
    pub fn set_default(&self, dir: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(&self.models).with_context(|| self.models.shown().to_string())?;
        // The folder above is told by where it is, the model by its name: it may be a link.
        let dir = match (dir.parent(), dir.file_name()) {
            (Some(parent), Some(name)) => {
                let parent = if parent == Path::new("") {
                    Path::new(".")
                } else {
                    parent
                };
                fs::canonicalize(parent).map_or_else(|_| dir.to_owned(), |parent| parent.join(name))
            }
            _ => dir.to_owned(),
        };
        let here = fs::canonicalize(&self.models).unwrap_or_else(|_| self.models.clone());
        // By name where it lies here, so that the folder can be moved.
        let text = dir.strip_prefix(&here).unwrap_or(&dir);
        let text = text
            .to_str()
            .with_context(|| format!("{}: a name that is not UTF-8", dir.shown()))?;
        let path = self.models.join(DEFAULT_FILE);
        let new = self.models.join(format!("{DEFAULT_FILE}.new"));
        let write = || -> io::Result<()> {
            let mut file = fs::File::create(&new)?;
            file.write_all(format!("{text}\n").as_bytes())?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().with_context(|| path.shown().to_string())
    }

    /// Forgets the default model.
    pub fn forget_default(&self) {
        // Where there is none, or where it cannot be removed, commands say that it is gone.
        let _ = fs::remove_file(self.models.join(DEFAULT_FILE));
    }

    /// Every model, by name; the bundled one is not among them.
    pub fn entries(&self) -> Vec<Entry> {
        let default = self.default_model();
        let mut dirs: Vec<PathBuf> = fs::read_dir(&self.models)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| model_of(&entry.path()))
            .filter(|path| !demo::is_demo(path))
            .chain(default.clone())
            .collect();
        dirs.sort();
        dirs.dedup();
        dirs.into_iter()
            .filter_map(|path| {
                let is_default = Some(&path) == default.as_ref();
                self.entry(path, is_default)
            })
            .collect()
    }

    /// The model of this name, or at this path.
    pub fn entry_of(&self, name: &str) -> anyhow::Result<Entry> {
        let entries = self.entries();
        let is_meant = |entry: &&Entry| entry.name == name || entry.path.as_os_str() == name;
        if let Some(entry) = entries.iter().find(is_meant) {
            return Ok(entry.clone());
        }
        let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let known = match names.as_slice() {
            [] => "none".to_owned(),
            names => names.join(", "),
        };
        Err(CliError::NoModel(format!(
            "there is no model {name:?} in {}; installed: {known}",
            self.models.shown()
        ))
        .into())
    }

    fn entry(&self, path: PathBuf, is_default: bool) -> Option<Entry> {
        let is_here = path.parent() == Some(&self.models);
        let name = match is_here {
            true => path.file_stem()?.to_str()?.to_owned(),
            false => path.to_str()?.to_owned(),
        };
        let (state, bytes) = state_of(&path);
        Some(Entry {
            name,
            path,
            bytes,
            state,
            is_default,
        })
    }
}

/// The model that a file or folder of the models folder belongs to.
fn model_of(path: &Path) -> Option<PathBuf> {
    let is_model = |path: &Path| path.extension() == Some(OsStr::new(EXTENSION));
    if is_model(path) && path.is_dir() {
        return Some(path.to_owned());
    }
    let is_partial = path.extension() == Some(OsStr::new("partial")) && path.is_dir();
    let model = path.with_extension("");
    (is_partial && is_model(&model)).then_some(model)
}

/// Whoever installs holds the lock.
fn unfinished(path: &Path) -> State {
    match DirLock::try_acquire_existing(&DirLock::path_for(path)) {
        Err(StorageError::Locked { .. }) => State::Installing,
        _ => State::Unfinished,
    }
}

fn state_of(path: &Path) -> (State, u64) {
    let manifest = path.join("manifest.json");
    if !path.exists() {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        return match was_cut_short(&OsDisk, path) {
            true => (unfinished(path), size_of(Path::new(&partial))),
            false => (State::Gone, 0),
        };
    }
    let state = match fs::read(&manifest) {
        Err(_) => State::Broken("it has no manifest.json".to_owned()),
        Ok(bytes) => match Manifest::parse(&bytes) {
            Err(error) => State::Broken(error.to_string()),
            Ok(manifest) => {
                let wrong = manifest.files.iter().find(|(file, record)| {
                    let len = fs::metadata(path.join(file)).map(|metadata| metadata.len());
                    len.ok() != Some(record.size)
                });
                match wrong {
                    None => State::Complete,
                    Some((file, _)) => State::Broken(format!("{file} is not as installed")),
                }
            }
        },
    };
    (state, size_of(path))
}

/// Bytes that the files in a folder and in its folders take, as far as they can be seen. Of an unfinished installation's, which have their whole length from
/// the beginning, that is what has come.
pub fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) if metadata.is_file() => taken(&metadata),
        _ => 0,
    });
    sizes.sum()
}

#[cfg(unix)]
fn taken(metadata: &fs::Metadata) -> u64 {
    use std::os::unix::fs::MetadataExt;

    /// What `st_blocks` counts in, on every system.
    const BLOCK_BYTES: u64 = 512;
    metadata.len().min(metadata.blocks() * BLOCK_BYTES)
}

#[cfg(not(unix))]
fn taken(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}
