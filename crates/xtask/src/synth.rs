//! `cargo xtask synth`: a model of random weights with the shapes of the real one, to measure on.
//!
//! Everything depends on preset, skew and seed alone. The directory grows beside its output under the name `OUTPUT.partial` and is renamed
//! when it is complete, so that a run that is killed leaves nothing that looks like a model. Nothing is ever written into the
//! repository, over something that is there, or onto a disk without room for all of it.

mod affine;
mod balance;
pub mod check;
mod directions;
mod gguf;
mod preset;
mod random;
mod records;
mod rows;
mod stage;
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

/// What to make, and where.
#[derive(Debug)]
struct Order {
    preset: String,
    skew: Skew,
    seed: u64,
    tokenizer: Option<PathBuf>,
    output: Option<PathBuf>,
    gguf: Option<PathBuf>,
    gguf_vocab: Option<PathBuf>,
}

/// Runs the command.
pub fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    make(&Order::parse(args)?, &root()?)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes a small model with the proportions of the real one: the preset `scaled`, or `scaled-text`, which has a tokenizer.
pub fn make_scaled(preset: &str, output: &Path) -> anyhow::Result<()> {
    let order = Order {
        preset: preset.to_owned(),
        skew: Skew::parse("hard")?,
        seed: 1,
        tokenizer: None,
        output: Some(output.to_owned()),
        gguf: None,
        gguf_vocab: None,
    };
    make(&order, &root()?)
}

impl Order {
    fn parse(args: &[String]) -> anyhow::Result<Order> {
        let (mut preset, mut skew, mut seed) = (None, None, None);
        let (mut tokenizer, mut output) = (None, None);
        let (mut gguf, mut gguf_vocab) = (None, None);
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
                "--gguf" => gguf = Some(PathBuf::from(value()?)),
                "--gguf-vocab" => gguf_vocab = Some(PathBuf::from(value()?)),
                flag if flag.starts_with('-') => bail!("what is {flag:?}?"),
                path if output.is_none() => output = Some(PathBuf::from(path)),
                path => bail!("{path:?}: one output is enough"),
            }
        }
        ensure!(
            output.is_some() || gguf.is_some(),
            "the output is missing: a path that ends in .gturbo"
        );
        ensure!(
            gguf.is_some() == gguf_vocab.is_some(),
            "--gguf and --gguf-vocab belong together: llama.cpp wants a tokenizer in the file"
        );
        Ok(Order {
            preset: preset.context("--preset names the model")?,
            skew: skew.context("--skew is trace or hard")?,
            seed: seed.context("--seed is a number of your choice")?,
            tokenizer,
            output,
            gguf,
            gguf_vocab,
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

/// Makes what is ordered. `repository` is where nothing may be written.
fn make(order: &Order, repository: &Path) -> anyhow::Result<()> {
    let source = Source::new(preset::arch(&order.preset)?, order.skew, order.seed);
    let name = order.model_id();
    let gguf = order.gguf.as_ref().zip(order.gguf_vocab.as_ref());
    let gguf = gguf
        .map(|(output, vocab)| anyhow::Ok((output, gguf::Plan::new(&source, &name, vocab)?)))
        .transpose()?;
    let outputs = [
        order
            .output
            .as_ref()
            .map(|path| Ok((path, write::total_bytes(&source)?))),
        gguf.as_ref()
            .map(|(path, plan)| anyhow::Ok((*path, plan.bytes()))),
    ];
    let mut needed = 0;
    for output in outputs.into_iter().flatten() {
        let (path, bytes) = output?;
        // Both on one disk, as far as anyone knows.
        needed += bytes;
        stage::check_output(path, repository)?;
        stage::check_room(path, needed)?;
    }
    if let Some(output) = &order.output {
        let bytes = write::total_bytes(&source)?;
        timed(output, bytes, || {
            stage::staged(output, |partial| fill(order, &source, (partial, output)))
        })?;
    }
    if let Some((output, plan)) = &gguf {
        timed(output, plan.bytes(), || {
            stage::staged(output, |partial| plan.write(&source, partial))
        })?;
    }
    Ok(())
}

/// Does `work`, and says how fast `bytes` of `output` were written.
fn timed(
    output: &Path,
    bytes: u64,
    work: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    work()?;
    let (gigabytes, seconds) = (bytes as f64 / 1e9, started.elapsed().as_secs_f64());
    println!(
        "{}: {gigabytes:.2} GB in {seconds:.1} s, {:.2} GB/s",
        output.display(),
        gigabytes / seconds
    );
    Ok(())
}

/// Writes the whole directory, the manifest last.
fn fill(order: &Order, source: &Source, (dir, output): (&Path, &Path)) -> anyhow::Result<()> {
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
    records::write_manifest(source, &order.model_id(), &files, (dir, output))?;
    Ok(OsDisk.sync_dir(dir)?)
}
