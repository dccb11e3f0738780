//! Where outputs may go, and how they get there: beside their place under another name first, then renamed in one step.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use ouzel_format::paths;
use ouzel_storage::{Disk, OsDisk};

/// Left free beside what is written, in bytes.
const RESERVE_BYTES: u64 = 256 << 20;

/// Lets `write` make the directory or file `OUTPUT.partial` and gives it its name when it is complete; an error removes it.
pub fn staged(
    output: &Path,
    write: impl FnOnce(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let partial = with_suffix(output, ".partial");
    remove_leftover(&partial)?;
    let result = write(&partial).and_then(|()| {
        OsDisk.rename(&partial, output)?;
        Ok(OsDisk.sync_dir(parent(output))?)
    });
    if result.is_err() {
        // The error at hand says more than that of the removal.
        let _ = remove(&partial);
    }
    result
}

fn remove(partial: &Path) -> anyhow::Result<()> {
    match partial.is_dir() {
        true => OsDisk.remove_dir_all(partial)?,
        false => OsDisk.remove_file(partial)?,
    }
    Ok(())
}

/// Refuses an output that exists, or lies in the repository.
pub fn check_output(output: &Path, repository: &Path) -> anyhow::Result<()> {
    ensure!(!output.exists(), "{} exists already", output.display());
    let there = parent(output);
    let there = there
        .canonicalize()
        .with_context(|| format!("{}: make this folder first", there.display()))?;
    let repository = repository.canonicalize().context("the repository")?;
    ensure!(
        !there.starts_with(&repository),
        "{} is inside the repository, where no model may be; choose another folder",
        output.display()
    );
    Ok(())
}

/// Refuses an output that the disk has no room for.
pub fn check_room(output: &Path, bytes: u64) -> anyhow::Result<()> {
    let (free, needed) = (OsDisk.free_space(parent(output))?, bytes + RESERVE_BYTES);
    ensure!(
        free >= needed,
        "{} needs {:.2} GB with some reserve, and the disk has {:.2} GB free",
        output.display(),
        needed as f64 / 1e9,
        free as f64 / 1e9
    );
    Ok(())
}

/// Removes what a killed run left, and nothing else.
fn remove_leftover(partial: &Path) -> anyhow::Result<()> {
    let ours = [
        paths::MANIFEST,
        paths::RECEIPT,
        paths::WEIGHTS,
        paths::EXPERTS_DIR,
        paths::TOKENIZER_DIR,
    ];
    let names = OsDisk.names(partial)?.unwrap_or_default();
    let foreign = names
        .iter()
        .find(|name| !ours.iter().any(|ours| *name == ours));
    if let Some(name) = foreign {
        bail!(
            "{} holds {}, which is no part of a model; move it away",
            partial.display(),
            name.display()
        );
    }
    remove(partial)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
