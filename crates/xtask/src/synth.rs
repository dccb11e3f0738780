//! `cargo xtask synth`: a model of random weights with the shapes of the real one, to measure on.
//!
//! Everything depends on preset, skew and seed alone. The directory grows beside its output under the name `OUTPUT.partial` and is renamed
//! when it is complete, so that a run that is killed leaves nothing that looks like a model. Nothing is ever written into the
//! repository, over something that is there, or onto a disk without room for all of it.

mod affine;
mod balance;
pub mod check;
mod directions;
mod preset;
mod random;
mod records;
mod rows;
mod tensors;
#[cfg(test)]
mod tests;
mod tokenizer;
mod write;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use ouzel_format::paths;
use ouzel_storage::{Disk, OsDisk};

use crate::process::root;
use preset::Skew;
use tensors::Source;

/// Left free beside what is written, in bytes.
const RESERVE_BYTES: u64 = 256 << 20;

/// What to make, and where.
#[derive(Debug)]
struct Order {
    preset: String,
    skew: Skew,
    seed: u64,
    tokenizer: Option<PathBuf>,
    output: PathBuf,
}

/// Runs the command.
pub fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let order = Order::parse(args)?;
    let started = Instant::now();
    let bytes = make(&order, &root()?)?;
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{}: {}, {:.2} GB in {seconds:.1} s, {:.2} GB/s",
        order.output.display(),
        order.model_id(),
        bytes as f64 / 1e9,
        bytes as f64 / 1e9 / seconds
    );
    Ok(ExitCode::SUCCESS)
}

impl Order {
    fn parse(args: &[String]) -> anyhow::Result<Order> {
        let (mut preset, mut skew, mut seed) = (None, None, None);
        let (mut tokenizer, mut output) = (None, None);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || {
                args.next()
                    .cloned()
                    .with_context(|| format!("{arg} needs a value"))
            };
            match arg.as_str() {
                "--preset" => preset = Some(value()?),
                "--skew" => skew = Some(Skew::parse(&value()?)?),
                "--seed" => seed = Some(value()?.parse().context("--seed is a whole number")?),
                "--tokenizer" => tokenizer = Some(PathBuf::from(value()?)),
                flag if flag.starts_with('-') => bail!("what is {flag:?}?"),
                path if output.is_none() => output = Some(PathBuf::from(path)),
                path => bail!("{path:?}: one output is enough"),
            }
        }
        Ok(Order {
            preset: preset.context("--preset names the model")?,
            skew: skew.context("--skew is trace or hard")?,
            seed: seed.context("--seed is a number of your choice")?,
            tokenizer,
            output: output.context("the output is missing: a path that ends in .gturbo")?,
        })
    }

    /// The model's name in its manifest, by which tables tell its skew.
    fn model_id(&self) -> String {
        format!(
            "synth-{}-{}-seed{}",
            self.preset,
            self.skew.name(),
            self.seed
        )
    }
}

/// Makes the model and returns the bytes of its weights. `repository` is where nothing may be written.
fn make(order: &Order, repository: &Path) -> anyhow::Result<u64> {
    let source = Source::new(preset::arch(&order.preset)?, order.skew, order.seed);
    let bytes = write::total_bytes(&source)?;
    check_output(&order.output, repository)?;
    check_room(&order.output, bytes)?;
    let partial = with_suffix(&order.output, ".partial");
    remove_leftover(&partial)?;
    let result = fill(order, &source, &partial).and_then(|()| {
        OsDisk.rename(&partial, &order.output)?;
        Ok(OsDisk.sync_dir(parent(&order.output))?)
    });
    if result.is_err() {
        // The error at hand says more than that of the removal.
        let _ = OsDisk.remove_dir_all(&partial);
    }
    result.map(|()| bytes)
}

/// Writes the whole directory, the manifest last.
fn fill(order: &Order, source: &Source, dir: &Path) -> anyhow::Result<()> {
    for folder in [paths::EXPERTS_DIR, paths::TOKENIZER_DIR] {
        OsDisk.create_dir_all(&dir.join(folder))?;
    }
    let mut files = write::weights(source, dir)?;
    let small = [
        (paths::LAYOUT, records::layout(source)),
        (paths::CHECKSUMS, records::checksums(source, &files[1..])),
        (paths::CONFIG, records::config(&source.arch)),
    ];
    for (path, bytes) in small {
        files.push(records::write_small(dir, path, &bytes)?);
    }
    for (path, bytes) in tokenizer::files(&source.arch, order.tokenizer.as_deref())? {
        files.push(records::write_small(dir, &path, &bytes)?);
    }
    for folder in [paths::EXPERTS_DIR, paths::TOKENIZER_DIR] {
        OsDisk.sync_dir(&dir.join(folder))?;
    }
    records::write_manifest(source, &order.model_id(), &files, (dir, &order.output))?;
    Ok(OsDisk.sync_dir(dir)?)
}

fn check_output(output: &Path, repository: &Path) -> anyhow::Result<()> {
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

fn check_room(output: &Path, bytes: u64) -> anyhow::Result<()> {
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
    Ok(OsDisk.remove_dir_all(partial)?)
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
