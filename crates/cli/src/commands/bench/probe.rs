//! What this machine can do at best: disk, memory and arithmetic, each by itself.
//!
//! A probe of the memory holds a buffer far larger than the caches, which would show as the peak memory of the session measured beside it.
//! So whoever measures a session has another process of this program probe, and reads what it prints as CSV.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use ouzel_engine::floor::Rates;
use ouzel_engine::{IoMode, Isa, ReadMode};
use ouzel_kernels::probe::{f32_peak, int8_peak, read_sum};
use ouzel_storage::probe::{DepthRate, DiskProbe, ProbeFiles, best};
use ouzel_storage::{AlignedBuf, free_memory};

use super::median;
use crate::exit::{self, CliError};
use crate::report;

/// Reads under way at once that are tried.
const DEPTHS: [usize; 4] = [1, 2, 4, 8];
/// Bytes of the scratch file, and with `--quick`.
const SCRATCH_BYTES: u64 = 2 << 30;
const QUICK_SCRATCH_BYTES: u64 = 256 << 20;
/// Bytes that are read from memory: four times the largest cache that is common on servers.
const MEMORY_BYTES: u64 = 1280 << 20;
/// Bytes below which a read from memory would be one from the cache on any machine.
const LEAST_MEMORY_BYTES: u64 = 64 << 20;
/// How the CSV names what a depth gave.
const DEPTH: &str = "disk_bytes_per_s_at_depth_";
/// Passes over memory whose median counts, at least.
const PASSES: usize = 5;

/// What a probe may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Memory, in bytes.
    pub memory: u64,
    /// Threads for memory and arithmetic.
    pub threads: usize,
    /// A short one.
    pub quick: bool,
}

/// What to probe with.
#[derive(Debug)]
pub struct Order {
    pub limits: Limits,
    /// Files of experts; none means a scratch file.
    pub files: Vec<PathBuf>,
    /// Where a scratch file may be.
    pub folder: PathBuf,
    /// Bytes of one read from the disk.
    pub read_bytes: u64,
}

/// What a machine can do at best.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// The instruction set of the arithmetic.
    pub isa: String,
    /// Threads for memory and arithmetic.
    pub threads: usize,
    /// How reads from the disk went.
    pub io_mode: String,
    /// Bytes of one read from the disk.
    pub read_bytes: u64,
    /// What each depth gave.
    pub disk: Vec<DepthRate>,
    /// Bytes of the buffer that was read from memory.
    pub buffer_bytes: u64,
    pub memory_bytes_per_s: f64,
    pub int8_macs_per_s: f64,
    pub f32_macs_per_s: f64,
}

impl Order {
    /// Probes, on this thread and those that it starts.
    pub fn run(&self) -> anyhow::Result<Probe> {
        let isa = Isa::detect();
        let time = Duration::from_millis(if self.limits.quick { 250 } else { 1000 });
        let (io_mode, disk) = self.disk(time)?;
        // Half of what may be taken leaves the rest to stay what it is.
        let allowed = (self.limits.memory / 2).min(free_memory().map_or(u64::MAX, |free| free / 2));
        let buffer_bytes = MEMORY_BYTES.min(allowed).max(LEAST_MEMORY_BYTES) >> 20 << 20;
        let peak = |f| peak(f, isa, self.limits.threads, time / 4);
        Ok(Probe {
            isa: isa.name().to_owned(),
            threads: self.limits.threads,
            io_mode: report::reads(io_mode).to_owned(),
            read_bytes: self.read_bytes,
            disk,
            buffer_bytes,
            memory_bytes_per_s: memory_rate(isa, self.limits.threads, buffer_bytes, time)?,
            int8_macs_per_s: peak(int8_peak),
            f32_macs_per_s: peak(f32_peak),
        })
    }

    fn disk(&self, time: Duration) -> anyhow::Result<(ReadMode, Vec<DepthRate>)> {
        let bytes = if self.limits.quick {
            QUICK_SCRATCH_BYTES
        } else {
            SCRATCH_BYTES
        };
        let files = if self.files.is_empty() {
            ProbeFiles::scratch(&self.folder, bytes, IoMode::Auto)?
        } else {
            ProbeFiles::open(&self.files, IoMode::Auto)?
        };
        let probe = DiskProbe {
            block_bytes: self.read_bytes as usize,
            time,
            // Another probe's places might still be in a cache of the disk.
            seed: u64::from(std::process::id()),
        };
        Ok((files.mode(), files.rates(probe, &DEPTHS)?))
    }
}

impl Probe {
    /// Has another process of this program probe with the files of a model.
    pub fn of_model(dir: &Path, limits: Limits) -> anyhow::Result<Probe> {
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.args(["bench", "--probe", "--csv", "-", "--quiet"]);
        command.arg("--memory").arg(limits.memory.to_string());
        command.arg("--threads").arg(limits.threads.to_string());
        if limits.quick {
            command.arg("--quick");
        }
        // The folder of models does not matter to a model that is named by its path, but it has to be somewhere.
        let folder = dir.parent().unwrap_or(dir);
        command.arg("--models-dir").arg(folder);
        command.arg("--model").arg(dir);
        let output = command
            .stdin(Stdio::null())
            .output()
            .context("starting the probe")?;
        let code = output
            .status
            .code()
            .and_then(|code| u8::try_from(code).ok());
        match code {
            Some(0) => {}
            Some(exit::INTERRUPTED) => return Err(CliError::Interrupted.into()),
            _ => {
                let line = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(CliError::Probe { code, line }.into());
            }
        }
        Probe::parse(&String::from_utf8_lossy(&output.stdout)).context("reading the probe's rows")
    }

    /// One row for each measure.
    pub fn to_csv(&self) -> String {
        let mut rows = vec![
            ("measure".to_owned(), "value".to_owned()),
            ("isa".to_owned(), self.isa.clone()),
            ("threads".to_owned(), self.threads.to_string()),
            ("io_mode".to_owned(), self.io_mode.clone()),
            ("read_bytes".to_owned(), self.read_bytes.to_string()),
        ];
        let mut rate = |what: String, value: f64| rows.push((what, format!("{value:.0}")));
        for disk in &self.disk {
            rate(format!("{DEPTH}{}", disk.depth), disk.bytes_per_s);
        }
        rate("memory_buffer_bytes".to_owned(), self.buffer_bytes as f64);
        rate("memory_bytes_per_s".to_owned(), self.memory_bytes_per_s);
        rate("int8_macs_per_s".to_owned(), self.int8_macs_per_s);
        rate("f32_macs_per_s".to_owned(), self.f32_macs_per_s);
        let line = |(what, value): (String, String)| format!("{what},{value}\n");
        rows.into_iter().map(line).collect()
    }

    /// What [`Probe::to_csv`] wrote.
    pub fn parse(csv: &str) -> anyhow::Result<Probe> {
        let rows: Vec<(&str, &str)> = csv.lines().filter_map(|row| row.split_once(',')).collect();
        let text = |what: &'static str| -> anyhow::Result<&str> {
            let row = rows.iter().find(|(name, _)| *name == what);
            Ok(row.with_context(|| format!("no {what}"))?.1)
        };
        let number = |what| -> anyhow::Result<f64> { Ok(text(what)?.parse()?) };
        let mut disk = Vec::new();
        for (name, value) in &rows {
            if let Some(depth) = name.strip_prefix(DEPTH) {
                let (depth, bytes_per_s) = (depth.parse()?, value.parse()?);
                disk.push(DepthRate { depth, bytes_per_s });
            }
        }
        Ok(Probe {
            isa: text("isa")?.to_owned(),
            threads: text("threads")?.parse()?,
            io_mode: text("io_mode")?.to_owned(),
            read_bytes: text("read_bytes")?.parse()?,
            disk,
            buffer_bytes: text("memory_buffer_bytes")?.parse()?,
            memory_bytes_per_s: number("memory_bytes_per_s")?,
            int8_macs_per_s: number("int8_macs_per_s")?,
            f32_macs_per_s: number("f32_macs_per_s")?,
        })
    }

    /// The depth that gave most.
    pub fn best_disk(&self) -> DepthRate {
        best(&self.disk).unwrap_or(DepthRate {
            depth: 0,
            bytes_per_s: 0.0,
        })
    }

    /// The rates of the speed model.
    pub fn rates(&self) -> Rates {
        Rates {
            disk_bytes_per_s: self.best_disk().bytes_per_s,
            memory_bytes_per_s: self.memory_bytes_per_s,
            int8_macs_per_s: self.int8_macs_per_s,
            f32_macs_per_s: self.f32_macs_per_s,
        }
    }
}

/// A probe before the runs and one after them.
#[derive(Clone, Debug)]
pub struct Probes {
    pub before: Probe,
    pub after: Probe,
}

impl Probes {
    /// The rates that the runs had: halfway between both.
    pub fn rates(&self) -> Rates {
        let (a, b) = (self.before.rates(), self.after.rates());
        Rates {
            disk_bytes_per_s: (a.disk_bytes_per_s + b.disk_bytes_per_s) / 2.0,
            memory_bytes_per_s: (a.memory_bytes_per_s + b.memory_bytes_per_s) / 2.0,
            int8_macs_per_s: (a.int8_macs_per_s + b.int8_macs_per_s) / 2.0,
            f32_macs_per_s: (a.f32_macs_per_s + b.f32_macs_per_s) / 2.0,
        }
    }

    /// What differs most between both, and by which share of the larger.
    pub fn drift(&self) -> (&'static str, f64) {
        let (a, b) = (self.before.rates(), self.after.rates());
        let pairs = [
            ("disk", a.disk_bytes_per_s, b.disk_bytes_per_s),
            ("memory", a.memory_bytes_per_s, b.memory_bytes_per_s),
            ("int8", a.int8_macs_per_s, b.int8_macs_per_s),
            ("f32", a.f32_macs_per_s, b.f32_macs_per_s),
        ];
        let drifts = pairs.map(|(what, a, b)| (what, (a - b).abs() / a.max(b)));
        drifts
            .into_iter()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or(("nothing", 0.0))
    }
}

/// Bytes a second that the threads read together, each a part of its own: the median of a few passes.
fn memory_rate(isa: Isa, threads: usize, bytes: u64, time: Duration) -> anyhow::Result<f64> {
    let mut buffer = AlignedBuf::new(bytes as usize)?;
    // Pages that were never written would all be the same one.
    buffer.fill(1);
    let parts: Vec<&[u8]> = buffer.chunks(buffer.len().div_ceil(threads)).collect();
    let (start, mut rates) = (Instant::now(), Vec::new());
    while rates.len() < PASSES || start.elapsed() < time {
        let pass = Instant::now();
        std::thread::scope(|scope| {
            for part in &parts {
                scope.spawn(|| std::hint::black_box(read_sum(isa, part)));
            }
        });
        rates.push(bytes as f64 / pass.elapsed().as_secs_f64());
    }
    Ok(median(rates))
}

/// Multiply-adds a second of all threads together: the best of a few rounds, since whatever is below it is other programs' doing.
fn peak(f: fn(Isa, u64) -> u64, isa: Isa, threads: usize, time: Duration) -> f64 {
    let mut n_iterations = 1000;
    loop {
        let start = Instant::now();
        f(isa, n_iterations);
        if start.elapsed() >= time / 8 {
            break;
        }
        n_iterations *= 2;
    }
    let (start, mut fastest) = (Instant::now(), 0.0);
    while start.elapsed() < time {
        let round = Instant::now();
        let n: u64 = std::thread::scope(|scope| {
            let work: Vec<_> = (0..threads)
                .map(|_| scope.spawn(|| f(isa, n_iterations)))
                .collect();
            let done = work.into_iter().map(|thread| thread.join().unwrap_or(0));
            done.sum()
        });
        fastest = f64::max(fastest, n as f64 / round.elapsed().as_secs_f64());
    }
    fastest
}
