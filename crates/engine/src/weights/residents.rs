//! Where each resident tensor lies in memory, and how the file gets there.
//!
//! The file only promises even offsets; in memory every tensor starts at a multiple of [`ALIGNMENT`], so that no load of a kernel crosses
//! a cache line more often than it must. Tensors keep their order, so a span of the file is one span of memory, and a few
//! threads each read spans of their own through a small buffer. No second copy of the weights ever exists.

use std::ops::Range;
use std::sync::Mutex;

use ouzel_format::{Extent, ResidentIndex};
use ouzel_storage::{AlignedBuf, PositionedFile, StorageError};

/// A cache line, which every tensor in memory starts with.
pub const ALIGNMENT: usize = 64;
/// Bytes that a thread reads at once.
const READ_BYTES: usize = 2 << 20;
/// Threads that read. They copy as well, which keeps one core from holding up a fast disk.
const READ_THREADS: usize = 4;

/// A part of a tensor that lies in one piece: packed words, scales or biases, or the elements of a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    /// In the file.
    file: Range<usize>,
    /// Where it starts in memory.
    memory: usize,
}

/// The pieces of all tensors, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Residents {
    pieces: Vec<Piece>,
    n_bytes: usize,
}

/// A span of the file, and the memory of the pieces in it.
struct Job<'a> {
    file: Range<usize>,
    /// The place of `bytes` in memory.
    memory: usize,
    bytes: &'a mut [u8],
}

impl Residents {
    /// Gives every tensor of the index a place.
    pub fn new(index: &ResidentIndex) -> Residents {
        let extents = index.entries.iter().flat_map(|entry| {
            [Some(entry.extent()), entry.scales, entry.biases]
                .into_iter()
                .flatten()
        });
        let mut files: Vec<_> = extents.map(file_range).collect();
        files.sort_unstable_by_key(|file| file.start);
        let mut n_bytes = 0;
        let pieces = files.into_iter().map(|file| {
            let memory = n_bytes;
            n_bytes = (n_bytes + file.len()).next_multiple_of(ALIGNMENT);
            Piece { file, memory }
        });
        Residents {
            pieces: pieces.collect(),
            n_bytes,
        }
    }

    /// Bytes of memory, padding included.
    pub fn n_bytes(&self) -> usize {
        self.n_bytes
    }

    /// Where a piece of the index lies in memory.
    ///
    /// # Panics
    /// If the index has no such piece.
    pub fn place(&self, extent: Extent) -> Range<usize> {
        let file = file_range(extent);
        let piece = &self.pieces[self.pieces.partition_point(|p| p.file.start < file.start)];
        assert_eq!(piece.file, file, "a piece of the index");
        piece.memory..piece.memory + file.len()
    }

    /// Reads all tensors.
    pub fn read(&self, file: &PositionedFile) -> Result<AlignedBuf, StorageError> {
        self.read_in(file, READ_BYTES, READ_THREADS)
    }

    /// Reads them in spans of `span` bytes, which must be a multiple of [`AlignedBuf::ALIGNMENT`].
    fn read_in(
        &self,
        file: &PositionedFile,
        span: usize,
        n_threads: usize,
    ) -> Result<AlignedBuf, StorageError> {
        let mut bytes = AlignedBuf::new(self.n_bytes)?;
        let jobs = self.jobs(&mut bytes, span);
        let n_threads = n_threads.min(jobs.len());
        let jobs = Mutex::new(jobs.into_iter());
        let work = || {
            let mut buffer = AlignedBuf::new(span)?;
            loop {
                let job = jobs.lock().expect("no thread panics here").next();
                let Some(job) = job else {
                    return Ok(());
                };
                self.run(file, &mut buffer, job)?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(work)).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
                thread.join().expect("a read returns its error")
            };
            threads.into_iter().try_for_each(join)
        })?;
        Ok(bytes)
    }

    /// Cuts the file at multiples of `span`, and the memory where the pieces lie then.
    fn jobs<'a>(&self, mut bytes: &'a mut [u8], span: usize) -> Vec<Job<'a>> {
        let (Some(first), Some(last)) = (self.pieces.first(), self.pieces.last()) else {
            return Vec::new();
        };
        let mut jobs = Vec::new();
        let mut memory = 0;
        for start in (first.file.start / span * span..last.file.end).step_by(span) {
            let file = start..(start + span).min(last.file.end);
            let end = self.memory_at(file.end);
            let (here, rest) = bytes.split_at_mut(end - memory);
            jobs.push(Job {
                file,
                memory,
                bytes: here,
            });
            (bytes, memory) = (rest, end);
        }
        jobs
    }

    /// The memory that everything before a place of the file takes.
    fn memory_at(&self, at: usize) -> usize {
        match self.pieces.get(self.first_beyond(at)) {
            Some(piece) => piece.memory + at.saturating_sub(piece.file.start),
            None => self.n_bytes,
        }
    }

    /// The first piece that ends beyond a place of the file.
    fn first_beyond(&self, at: usize) -> usize {
        self.pieces.partition_point(|piece| piece.file.end <= at)
    }

    fn run(
        &self,
        file: &PositionedFile,
        buffer: &mut [u8],
        job: Job<'_>,
    ) -> Result<(), StorageError> {
        // A direct read wants whole pages: the last one may run past the end of the file.
        let padded = job.file.len().next_multiple_of(AlignedBuf::ALIGNMENT);
        file.read_at_least(&mut buffer[..padded], job.file.start as u64, job.file.len())?;
        for piece in &self.pieces[self.first_beyond(job.file.start)..] {
            let from = piece.file.start.max(job.file.start);
            let to = piece.file.end.min(job.file.end);
            if from >= to {
                break;
            }
            let memory = piece.memory + (from - piece.file.start) - job.memory;
            let read = &buffer[from - job.file.start..to - job.file.start];
            job.bytes[memory..memory + read.len()].copy_from_slice(read);
        }
        Ok(())
    }
}

fn file_range(extent: Extent) -> Range<usize> {
    extent.offset as usize..(extent.offset + extent.size) as usize
}

#[cfg(test)]
mod tests;
