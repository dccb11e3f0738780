//! How fast a disk gives random blocks of one size, which is how experts are read.
//!
//! A few threads read blocks at places drawn from a seed, each into a buffer of its own, past the page cache where that is possible,
//! and the bytes that arrive in a span of time are counted. The files are those of an installed model, or one scratch file
//! whose name is gone before its first byte is written, so that nothing is left behind however the program ends.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{AlignedBuf, IoMode, PositionedFile, ReadMode, StorageError, free_space, sys};

/// Bytes written at once.
const WRITE_BYTES: usize = 8 << 20;

/// What to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskProbe {
    /// Bytes of a block, a multiple of 4,096.
    pub block_bytes: usize,
    /// Time for each depth; the reads under way at its end are waited for and counted.
    pub time: Duration,
    /// Draws the places. A disk may remember what it was asked before, so each probe should have another one.
    pub seed: u64,
}

/// The bytes that came in a second, with so many reads under way at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DepthRate {
    /// Reads under way at once.
    pub depth: usize,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

/// Files to read from, and how that really goes.
#[derive(Debug)]
pub struct ProbeFiles {
    /// Each with the bytes that may be read of it.
    files: Vec<(PositionedFile, u64)>,
}

impl ProbeFiles {
    /// Existing files; those that are shorter than a block are never read.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn open(paths: &[PathBuf], mode: IoMode) -> Result<ProbeFiles, StorageError> {
        let open = |path: &PathBuf| {
            let file = PositionedFile::open(path, mode)?;
            let len = file.len();
            Ok((file, len))
        };
        Ok(ProbeFiles {
            files: paths.iter().map(open).collect::<Result<_, _>>()?,
        })
    }

    /// A new file of `bytes` bytes that no compression shortens, in the folder `dir`. Its space is free again when this is dropped.
    ///
    /// # Errors
    /// [`StorageError::NoSpace`] before anything is written, if the disk has not twice as much; [`StorageError::Io`].
    pub fn scratch(dir: &Path, bytes: u64, mode: IoMode) -> Result<ProbeFiles, StorageError> {
        let path = dir.join(format!(".ouzel-probe-{}", std::process::id()));
        if free_space(dir)? / 2 < bytes {
            return Err(StorageError::NoSpace { path });
        }
        let failed = |action| {
            let path = &path;
            move |source| StorageError::io(action, path, source)
        };
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        let mut file = options.open(&path).map_err(failed("creating"))?;
        let reader = PositionedFile::open(&path, mode);
        // Both handles stay good without the name.
        let removed = fs::remove_file(&path).map_err(failed("removing"));
        let reader = reader?;
        removed?;
        let mut random = SplitMix(bytes);
        let mut block = vec![0; WRITE_BYTES];
        let mut left = bytes;
        while left > 0 {
            for word in block.as_chunks_mut::<8>().0 {
                *word = random.next().to_le_bytes();
            }
            let n = left.min(WRITE_BYTES as u64);
            file.write_all(&block[..n as usize])
                .map_err(failed("writing"))?;
            left -= n;
        }
        file.sync_all().map_err(failed("making durable"))?;
        // What is read from now on comes from the disk even where reads go through the page cache.
        sys::drop_pages(&file, 0, bytes);
        Ok(ProbeFiles {
            files: vec![(reader, bytes)],
        })
    }

    /// How reads really go; the files lie on one file system.
    pub fn mode(&self) -> ReadMode {
        let mut modes = self.files.iter().map(|(file, _)| file.mode());
        modes.next().unwrap_or(ReadMode::Direct)
    }

    /// Reads at each depth in turn and says what came of each.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`], or the first read that failed.
    ///
    /// # Panics
    /// If no file is as long as a block, or the block is not a multiple of 4,096 bytes.
    pub fn rates(
        &self,
        probe: DiskProbe,
        depths: &[usize],
    ) -> Result<Vec<DepthRate>, StorageError> {
        let deepest = depths.iter().copied().max().unwrap_or(0);
        let mut buffers = Vec::with_capacity(deepest);
        for _ in 0..deepest {
            let mut buffer = AlignedBuf::new(probe.block_bytes)?;
            // The pages are there before the clock runs.
            buffer.fill(1);
            buffers.push(buffer);
        }
        let mut seeds = SplitMix(probe.seed);
        let mut rates = Vec::with_capacity(depths.len());
        for &depth in depths {
            let seed = seeds.next();
            let bytes_per_s = self.rate(DiskProbe { seed, ..probe }, &mut buffers[..depth])?;
            rates.push(DepthRate { depth, bytes_per_s });
        }
        Ok(rates)
    }

    fn rate(&self, probe: DiskProbe, buffers: &mut [AlignedBuf]) -> Result<f64, StorageError> {
        let n_blocks: u64 = self
            .files
            .iter()
            .map(|(_, len)| probe.blocks_of(*len))
            .sum();
        assert!(n_blocks > 0, "no file is as long as a block");
        let n_read = AtomicU64::new(0);
        let start = Instant::now();
        let read = |buffer: &mut AlignedBuf, mut random: SplitMix| {
            while start.elapsed() < probe.time {
                let (file, offset) = self.place(probe, random.next() % n_blocks);
                file.read_exact_at(buffer, offset)?;
                n_read.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let mut seeds = SplitMix(probe.seed);
        let results: Vec<Result<(), StorageError>> = std::thread::scope(|scope| {
            let threads: Vec<_> = buffers
                .iter_mut()
                .map(|buffer| {
                    let random = SplitMix(seeds.next());
                    scope.spawn(move || read(buffer, random))
                })
                .collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("a read returns its error")
            };
            threads.into_iter().map(join).collect()
        });
        let elapsed = start.elapsed().as_secs_f64();
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(n_read.into_inner() as f64 * probe.block_bytes as f64 / elapsed)
    }

    /// Block `nth`, counted over all files.
    fn place(&self, probe: DiskProbe, mut nth: u64) -> (&PositionedFile, u64) {
        for (file, len) in &self.files {
            let n = probe.blocks_of(*len);
            if nth < n {
                return (file, nth * probe.block_bytes as u64);
            }
            nth -= n;
        }
        unreachable!("the number was drawn below the sum of all")
    }
}

impl DiskProbe {
    fn blocks_of(self, len: u64) -> u64 {
        len / self.block_bytes as u64
    }
}

/// The depth at which most came.
pub fn best(rates: &[DepthRate]) -> Option<DepthRate> {
    let rates = rates.iter().copied();
    rates.max_by(|a, b| a.bytes_per_s.total_cmp(&b.bytes_per_s))
}

/// SplitMix64: places and filler need no better.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
