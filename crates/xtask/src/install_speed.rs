//! `cargo xtask install-speed`: the installer against a plain parallel range download of the same bytes to the same disk.
//!
//! A hub on loopback serves a synthetic checkpoint from the page cache. The two take turns; both end with every byte durable. The plain
//! download is what curl would do eight times at once: blocking sockets, one file, no hash, no journal, no layout. `cargo xtask hub` starts
//! the hub alone, to try the program by hand.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ouzel_hub::snapshot::{self, Shape};
use ouzel_hub::{COMMIT, Hub as Loopback, Options, REPOSITORY};
use ouzel_install::{
    Checkpoint, Event, Hub, HubOptions, InstallOptions, LocalFolder, Phase, Transfer, install, plan,
};
use ouzel_storage::{OsDisk, Sha256, xxh3_64};

/// Connections of both.
const N_CONNECTIONS: usize = 8;
/// Turns of each.
const N_TURNS: usize = 5;
/// Four layers of experts of the real size, 1.7 GB: the pieces that land are as large as those of the real model.
const SHAPE: Shape = Shape {
    n_layers: 4,
    n_experts: 128,
    hidden: 2816,
    expert: 704,
    vocab: 8192,
    with_text: false,
};

/// One run.
struct Turn {
    seconds: f64,
    /// Until the last byte had come, where that is another time.
    fetched: f64,
}

/// Measures in a folder that is made and removed.
pub fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let [folder] = args else {
        bail!("install-speed takes a folder on the disk to measure, which is made and removed");
    };
    let folder = PathBuf::from(folder);
    ensure!(!folder.exists(), "{}: exists already", folder.display());
    let result = measure(&folder);
    fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    result?;
    Ok(ExitCode::SUCCESS)
}

/// Serves a folder, or a synthetic checkpoint that is made in it.
pub fn serve(args: &[String]) -> anyhow::Result<ExitCode> {
    let [folder, more @ ..] = args else {
        bail!(
            "hub takes a folder with a checkpoint, and perhaps bytes a second for each connection"
        );
    };
    let folder = Path::new(folder);
    if !folder.exists() {
        println!("{}: a synthetic checkpoint is made", folder.display());
        snapshot::write(folder, &Shape::FULL_TOPOLOGY, 1)?;
    }
    let bytes_per_s = more.first().map(|text| text.parse()).transpose()?;
    let hub = Loopback::serve(
        folder,
        Options {
            bytes_per_s,
            ..Options::default()
        },
    )?;
    println!(
        "HF_ENDPOINT={} ouzel install --repo {REPOSITORY} --revision {COMMIT}",
        hub.endpoint()
    );
    loop {
        std::thread::park();
    }
}

fn measure(folder: &Path) -> anyhow::Result<()> {
    let source = folder.join("checkpoint");
    snapshot::write(&source, &SHAPE, 1)?;
    let checkpoint = Checkpoint::read(&LocalFolder::open(&source)?)?;
    let plan = plan(&checkpoint)?;
    let transfer = Transfer::of(&plan);
    let ranges: Vec<(String, u64, u64)> = transfer
        .runs(&vec![false; transfer.ranges.len()])
        .into_iter()
        .map(|run| {
            let source = transfer.ranges[run.ranges.start].source;
            (plan.sources[source].clone(), run.offset, run.len)
        })
        .collect();
    let bytes = transfer.bytes();
    println!(
        "{bytes} bytes in {} requests, {N_CONNECTIONS} at once, {N_TURNS} turns each",
        ranges.len()
    );
    let loopback = Loopback::serve(&source, Options::default())?;
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for turn in 0..N_TURNS {
        let one = install_once(&loopback, &folder.join("model.gturbo"))?;
        let two = download_once(&loopback, &ranges, &folder.join("plain"))?;
        let rate = |seconds: f64| bytes as f64 / 1e6 / seconds;
        println!(
            "turn {}: install {:.0} MB/s ({:.0} while fetching), plain {:.0} MB/s",
            turn + 1,
            rate(one.seconds),
            rate(one.fetched),
            rate(two.seconds)
        );
        ours.push(one);
        plain.push(two);
    }
    let median = |turns: &[Turn], of: fn(&Turn) -> f64| {
        let mut times: Vec<f64> = turns.iter().map(of).collect();
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    let whole = median(&plain, |turn| turn.seconds);
    println!(
        "of the plain download's speed: {:.0} % until everything is durable, {:.0} % until it is verified as well (medians)",
        100.0 * whole / median(&ours, |turn| turn.fetched),
        100.0 * whole / median(&ours, |turn| turn.seconds)
    );
    hashes();
    Ok(())
}

fn install_once(loopback: &Loopback, output: &Path) -> anyhow::Result<Turn> {
    let hub = Hub::open(&HubOptions {
        endpoint: loopback.endpoint(),
        connections: N_CONNECTIONS,
        ..HubOptions::new(REPOSITORY, COMMIT)
    })?;
    let started = Instant::now();
    let mut fetched = Duration::ZERO;
    let options = InstallOptions::default();
    install(&hub, &OsDisk, output, &options, &mut |event| {
        if let Event::Begins {
            phase: Phase::Verifying,
            ..
        } = event
        {
            fetched = started.elapsed();
        }
    })?;
    let seconds = started.elapsed().as_secs_f64();
    fs::remove_dir_all(output)?;
    Ok(Turn {
        seconds,
        fetched: fetched.as_secs_f64(),
    })
}

/// The same ranges, one behind the other in one file.
fn download_once(
    loopback: &Loopback,
    ranges: &[(String, u64, u64)],
    output: &Path,
) -> anyhow::Result<Turn> {
    let started = Instant::now();
    let file = File::create(output)?;
    let mut places = Vec::with_capacity(ranges.len());
    let mut end = 0;
    for (_, _, len) in ranges {
        places.push(end);
        end += len;
    }
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..N_CONNECTIONS)
            .map(|_| scope.spawn(|| download(loopback, ranges, &places, &next, &file)))
            .collect();
        for worker in workers {
            match worker.join() {
                Ok(result) => result?,
                Err(_) => bail!("a thread of the plain download panicked"),
            }
        }
        Ok(())
    })?;
    file.sync_all()?;
    let seconds = started.elapsed().as_secs_f64();
    fs::remove_file(output)?;
    Ok(Turn {
        seconds,
        fetched: seconds,
    })
}

fn download(
    loopback: &Loopback,
    ranges: &[(String, u64, u64)],
    places: &[u64],
    next: &AtomicUsize,
    file: &File,
) -> anyhow::Result<()> {
    let endpoint = loopback.endpoint();
    let host = endpoint.trim_start_matches("http://");
    let mut stream = TcpStream::connect(host)?;
    let mut buffer = vec![0; 256 << 10];
    loop {
        let i = next.fetch_add(1, Ordering::Relaxed);
        let Some((name, offset, len)) = ranges.get(i) else {
            return Ok(());
        };
        // Small files come from the endpoint itself.
        let path = match name.ends_with(".safetensors") {
            true => format!("/stored/{name}?signature=0"),
            false => format!("/{REPOSITORY}/resolve/{COMMIT}/{name}"),
        };
        let last = offset + len - 1;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {host}\r\nRange: bytes={offset}-{last}\r\n\r\n"
        )?;
        let mut head = Vec::new();
        let mut filled = 0;
        let body = loop {
            let n = stream.read(&mut buffer)?;
            ensure!(n > 0, "the hub hung up");
            head.extend_from_slice(&buffer[..n]);
            if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
        };
        ensure!(head.starts_with(b"HTTP/1.1 206"), "not a range");
        file.write_all_at(&head[body..], places[i])?;
        filled += (head.len() - body) as u64;
        while filled < *len {
            let n = stream.read(&mut buffer)?;
            ensure!(n > 0, "the hub hung up");
            file.write_all_at(&buffer[..n], places[i] + filled)?;
            filled += n as u64;
        }
    }
}

/// What hashing costs on one core.
fn hashes() {
    let bytes: Vec<u8> = (0..64_u32 << 20)
        .map(|i| (i.wrapping_mul(37) >> 3) as u8)
        .collect();
    let mhz = fs::read_to_string("/proc/cpuinfo").ok().and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("cpu MHz"))?;
        line.split(':').nth(1)?.trim().parse::<f64>().ok()
    });
    let tell = |name: &str, work: &dyn Fn()| {
        let mut best = f64::MAX;
        for _ in 0..5 {
            let started = Instant::now();
            work();
            best = best.min(started.elapsed().as_secs_f64());
        }
        let rate = bytes.len() as f64 / best;
        let cycles = mhz.map_or("unknown".to_owned(), |mhz| {
            format!("{:.2} at {mhz:.0} MHz", mhz * 1e6 / rate)
        });
        println!("{name}: {:.0} MB/s, cycles a byte: {cycles}", rate / 1e6);
    };
    tell("XXH3-64, in the stream", &|| {
        std::hint::black_box(xxh3_64(&bytes));
    });
    tell("SHA-256, beside it", &|| {
        std::hint::black_box(Sha256::digest(&bytes));
    });
}
