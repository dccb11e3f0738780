//! Where a model is installed to, and what it is called.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ouzel_format::{Manifest, Receipt, paths};
use ouzel_install::{discard, pinned, was_cut_short};
use ouzel_storage::{DirLock, OsDisk, ShowPath, StorageError};

use crate::args::InstallArgs;
use crate::exit::usage;
use crate::models::Places;
use crate::running;

/// A place for a model.
pub struct Target {
    /// The directory, with no link at its end.
    pub output: PathBuf,
    /// The model's name in its manifest.
    pub name: String,
    places: Option<Places>,
    /// The repository and the commit, where both are known without asking.
    known: Option<(String, String)>,
}

impl Target {
    /// What the arguments mean.
    pub fn find(args: &InstallArgs) -> anyhow::Result<Target> {
        let name = name(args)?;
        let places = || Places::find(args.models_dir.as_deref());
        let (output, places) = match &args.output {
            // What lies beside the output is named after it: a slash at its end would be in the way.
            Some(output) => (output.components().collect(), places().ok()),
            None => {
                let places = places()?;
                let is_usual = args.from.is_none() && args.repo.is_none();
                let default = places.default_model().filter(|_| args.repair && is_usual);
                let output = default.unwrap_or_else(|| places.path_of(name.as_ref()));
                (output, Some(places))
            }
        };
        // Resolved once: what a link leads to is replaced, never the link, and nothing follows it later.
        let output = resolve(output)?;
        if places
            .as_ref()
            .is_some_and(|places| places.is_taken(&output))
        {
            return Err(usage(format!(
                "{}: this is the name of the bundled model, which --model would mean; give another one with --output, such as {}",
                output.shown(),
                output.with_file_name("my-model.gturbo").shown()
            )));
        }
        Ok(Target {
            output,
            name,
            places,
            known: known(args),
        })
    }

    /// The directory as programs read it.
    pub fn path(&self) -> String {
        self.output.display().to_string()
    }

    /// Whether exactly this commit is installed there; tidies up behind an installation that was cut short at its very end.
    pub fn is_done(&self) -> anyhow::Result<bool> {
        let bytes = fs::read(self.output.join(paths::RECEIPT)).ok();
        let receipt = bytes.and_then(|bytes| Receipt::parse(&bytes).ok());
        let source =
            receipt.and_then(|receipt| receipt.source_repo_id.zip(receipt.source_revision));
        let is_done = self.known.is_some()
            && source == self.known
            && self.output.join(paths::MANIFEST).is_file();
        if is_done && was_cut_short(&OsDisk, &self.output) {
            let lock = self.lock()?;
            let result = discard(&OsDisk, &self.output);
            lock.release();
            result?;
        }
        Ok(is_done)
    }

    /// Keeps other installations away, and waits for nobody: a model that runs is not changed under its session.
    pub fn lock(&self) -> anyhow::Result<DirLock> {
        let parent = self.parent();
        fs::create_dir_all(parent).map_err(|source| unwritable(parent, source))?;
        let lock = DirLock::try_acquire(&DirLock::path_for(&self.output));
        lock.map_err(|error| match (error, &self.places) {
            (StorageError::Io { source, .. }, _) => unwritable(parent, source),
            (error, Some(places)) => running::explain(places, &self.output, error),
            (error, None) => error.into(),
        })
    }

    /// Whether a model can be made there, found out by making a folder, which goes again: rights, file systems that are read-only
    /// and what only looks like a folder all say no to that.
    pub fn check_writable(&self) -> anyhow::Result<()> {
        let parent = self.parent();
        let there = parent.ancestors().find(|folder| folder.exists());
        let there = there.unwrap_or(Path::new("."));
        let probe = there.join(format!(".ouzel-{}", std::process::id()));
        let made = fs::create_dir(&probe).and_then(|()| fs::remove_dir(&probe));
        made.map_err(|source| unwritable(there, source))
    }

    /// The folder that the model lies in.
    fn parent(&self) -> &Path {
        let parent = self.output.parent();
        let parent = parent.filter(|parent| *parent != Path::new(""));
        parent.unwrap_or(Path::new("."))
    }

    /// The repository and the commit that the model there, whole or not, was installed from.
    pub fn source(&self, args: &InstallArgs) -> anyhow::Result<(String, String)> {
        let mut partial = self.output.as_os_str().to_owned();
        partial.push(".partial");
        // A repair that was cut short left the receipt where it was.
        for dir in [&self.output, Path::new(&partial)] {
            let receipt = fs::read(dir.join(paths::RECEIPT)).ok();
            let receipt = receipt.and_then(|bytes| Receipt::parse(&bytes).ok());
            let source =
                receipt.and_then(|receipt| receipt.source_repo_id.zip(receipt.source_revision));
            if let Some(source) = source {
                return Ok(source);
            }
            let manifest = fs::read(dir.join(paths::MANIFEST)).ok();
            let manifest = manifest.and_then(|bytes| Manifest::parse(&bytes).ok());
            let hash = manifest.and_then(|manifest| manifest.source_snapshot_hash);
            if hash == Some(pinned::index_sha256().to_string()) {
                return Ok(pinned_source());
            }
        }
        let is_usual = args.output.is_none() && self.name == name_of(pinned::REPOSITORY);
        if is_usual && !self.output.exists() && was_cut_short(&OsDisk, &self.output) {
            return Ok(pinned_source());
        }
        Err(usage(format!(
            "{} does not say which repository it came from; name it with --repo and --revision, or its checkpoint's folder with --from",
            self.output.shown()
        )))
    }

    /// Makes the model the one that is used when none is named.
    pub fn become_default(&self) -> anyhow::Result<()> {
        match &self.places {
            Some(places) => places.set_default(&self.output),
            None => Ok(()),
        }
    }
}

/// A folder in which nothing can be made.
fn unwritable(folder: &Path, source: io::Error) -> anyhow::Error {
    // The system says of a file only that it exists.
    let source = match folder.is_file() {
        true => io::ErrorKind::NotADirectory.into(),
        false => source,
    };
    anyhow::Error::new(source).context(format!(
        "{}: nothing can be installed there; name another place with --output or --models-dir",
        folder.shown()
    ))
}

fn pinned_source() -> (String, String) {
    (pinned::REPOSITORY.to_owned(), pinned::REVISION.to_owned())
}

fn name_of(repository: &str) -> &str {
    repository.rsplit('/').next().unwrap_or_default()
}

/// The checkpoint's name: of its folder, or of its repository.
fn name(args: &InstallArgs) -> anyhow::Result<String> {
    let Some(from) = &args.from else {
        let repository = args.repo.as_deref().unwrap_or(pinned::REPOSITORY);
        return match name_of(repository) {
            "" | "." | ".." => Err(usage(format!(
                "{:?}: a repository is named OWNER/NAME",
                repository
            ))),
            name => Ok(name.to_owned()),
        };
    };
    // Also of `.`.
    let full = fs::canonicalize(from).unwrap_or_else(|_| from.clone());
    let name = full.file_name().map(|name| name.to_string_lossy());
    name.map(|name| name.into_owned())
        .ok_or_else(|| usage("this folder has no name to call the model by; give --output"))
}

/// What the command would fetch, if that needs no question to the hub.
fn known(args: &InstallArgs) -> Option<(String, String)> {
    if args.from.is_some() {
        return None;
    }
    let repository = args.repo.as_deref().unwrap_or(pinned::REPOSITORY);
    let revision = match &args.revision {
        Some(revision) => revision.clone(),
        None if repository == pinned::REPOSITORY => pinned::REVISION.to_owned(),
        None => return None,
    };
    Some((repository.to_owned(), revision))
}

fn resolve(output: PathBuf) -> anyhow::Result<PathBuf> {
    if output.is_symlink() {
        return fs::canonicalize(&output)
            .with_context(|| format!("{}: a link that leads nowhere", output.shown()));
    }
    if output.file_name().is_none() {
        return Err(usage(format!(
            "{}: a model needs a name of its own; give --output DIR/NAME.gturbo",
            output.shown()
        )));
    }
    Ok(output)
}
