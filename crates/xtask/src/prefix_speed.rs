//! `cargo xtask prefix-speed`: how fast a kept prefix comes back from the disk, beside what the disk gives.
//!
//! A session pretends to hold a prompt, so that nothing but the restoring has to be waited for: what rows mean changes no time. Probe and
//! restore take turns in one folder, both past the page cache. Copying the rows into the cache is timed alone as well, since it is what
//! would bound the restoring on a faster disk.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ouzel::{
    Cancel, Event, GenerateOptions, IoMode, Model, Options, PrefixOptions, Session, token_sequence,
};
use ouzel_engine::LayerKind;
use ouzel_storage::probe::{DiskProbe, ProbeFiles, best};

/// Turns of each.
const N_TURNS: usize = 5;
/// Blocks as large as the pieces of a file, and for how long each depth is asked.
const PROBE_TIME: Duration = Duration::from_millis(1500);
const PROBE_DEPTHS: [usize; 4] = [1, 2, 4, 8];
/// The scratch file of the probe.
const PROBE_BYTES: u64 = 1 << 30;

struct Asked {
    model: PathBuf,
    folder: PathBuf,
    n_tokens: usize,
    memory: u64,
}

/// `cargo xtask prefix-speed MODEL.gturbo FOLDER [--tokens N] [--memory BYTES]`
pub fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let asked = parse(args)?;
    ensure!(
        !asked.folder.exists(),
        "{}: exists already",
        asked.folder.display()
    );
    fs::create_dir_all(&asked.folder)?;
    let result = measure(&asked);
    fs::remove_dir_all(&asked.folder).with_context(|| asked.folder.display().to_string())?;
    result?;
    Ok(ExitCode::SUCCESS)
}

fn parse(args: &[String]) -> anyhow::Result<Asked> {
    let [model, folder, more @ ..] = args else {
        bail!(
            "prefix-speed takes a model and a folder on the disk to measure, which is made and removed"
        );
    };
    let mut asked = Asked {
        model: PathBuf::from(model),
        folder: PathBuf::from(folder),
        n_tokens: 20_000,
        memory: 4 << 30,
    };
    for pair in more.chunks(2) {
        match pair {
            [flag, value] if flag == "--tokens" => asked.n_tokens = value.parse()?,
            [flag, value] if flag == "--memory" => asked.memory = value.parse()?,
            _ => bail!("what is {pair:?}?"),
        }
    }
    Ok(asked)
}

fn measure(asked: &Asked) -> anyhow::Result<()> {
    let options = Options {
        memory: Some(asked.memory),
        max_context: Some(u32::try_from(asked.n_tokens + 16)?),
        prefixes: Some(PrefixOptions {
            dir: Some(asked.folder.join("kept")),
            disk_bytes: 16 << 30,
            ..PrefixOptions::default()
        }),
        ..Options::default()
    };
    let model = Model::open(&asked.model, &options)?;
    let mut session = model.session(&options)?;
    let ids = token_sequence(model.config().vocab_size, 1, asked.n_tokens + 1);
    session.pretend(&ids[..asked.n_tokens])?;
    answer(&mut session, &ids)?;
    let kept = session.prefix_stats().context("prefixes are kept")?;
    println!(
        "{} tokens: {} bytes written after the turn in {:.2} s, {:.0} MB/s",
        asked.n_tokens,
        kept.written_bytes,
        kept.last_keep.as_secs_f64(),
        rate(kept.written_bytes, kept.last_keep)
    );
    let block_bytes = session.budget().blocks.bytes;
    let (mut probes, mut restores) = (Vec::new(), Vec::new());
    for turn in 0..N_TURNS {
        let disk = probe(&asked.folder, block_bytes, turn as u64)?;
        session.reset();
        let (reused, time) = answer(&mut session, &ids)?;
        ensure!(reused == asked.n_tokens, "{reused} tokens came back");
        let restored = rate(kept.written_bytes, time);
        println!(
            "turn {}: disk {disk:.0} MB/s, restored in {:.3} s, {restored:.0} MB/s, {:.0} %",
            turn + 1,
            time.as_secs_f64(),
            100.0 * restored / disk
        );
        probes.push(disk);
        restores.push(restored);
    }
    let (disk, restored) = (median(&mut probes), median(&mut restores));
    println!(
        "medians: disk {disk:.0} MB/s, restored at {restored:.0} MB/s, {:.0} %; rows are copied in at {:.0} MB/s",
        100.0 * restored / disk,
        copy_rate(session, asked.n_tokens)?
    );
    Ok(())
}

/// One token behind the prompt: how much of it was reused, and how long bringing that back took.
fn answer(session: &mut Session, ids: &[u32]) -> anyhow::Result<(usize, Duration)> {
    let options = GenerateOptions {
        max_new: 1,
        ..GenerateOptions::default()
    };
    let mut done = None;
    for event in session.generate(ids.to_vec(), &options, &Cancel::new())? {
        if let Event::Done(stats) = event? {
            done = Some((stats.reused_tokens, stats.restore_time));
        }
    }
    done.context("an answer has an end")
}

/// What the disk gives at its best depth, in MB/s.
fn probe(folder: &Path, block_bytes: usize, seed: u64) -> anyhow::Result<f64> {
    let files = ProbeFiles::scratch(folder, PROBE_BYTES, IoMode::Auto)?;
    let probe = DiskProbe {
        block_bytes,
        time: PROBE_TIME,
        seed,
    };
    let best = best(&files.rates(probe, &PROBE_DEPTHS)?).context("a rate")?;
    Ok(best.bytes_per_s / 1e6)
}

/// How fast rows enter the cache from memory, in MB/s.
fn copy_rate(session: Session, n_tokens: usize) -> anyhow::Result<f64> {
    let mut engine = session.into_engine();
    let (mut bytes, mut time) = (0, Duration::ZERO);
    let shapes = [LayerKind::Full, LayerKind::Sliding].map(|kind| (kind, engine.row_bytes(kind)));
    let block = vec![1; engine.budget().blocks.bytes];
    let mut restore = engine.restore(n_tokens, 0)?;
    for (kind, row_bytes) in shapes {
        let needed = restore.needed(kind);
        let n = block.len() / row_bytes;
        for first in needed.clone().step_by(n) {
            let rows = first..needed.end.min(first + n);
            let start = Instant::now();
            restore.load(
                kind,
                rows.clone(),
                &block[..rows.len() * row_bytes],
                rows.clone(),
            );
            time += start.elapsed();
            bytes += (rows.len() * row_bytes) as u64;
        }
    }
    restore.finish();
    Ok(rate(bytes, time))
}

fn rate(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
