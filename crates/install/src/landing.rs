//! Where bytes land: the one writer of an installation.
//!
//! Whatever order requests come in, those of one come in order. A cursor for each follows them through its ranges and segments, writes
//! every part at its place and digests it on the way. From time to time what has landed is made durable and then recorded,
//! never the other way round.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use ouzel_storage::{Disk, WriteFile, Xxh3};

use crate::InstallError;
use crate::hash::BUFFER_BYTES;
use crate::journal::Record;
use crate::plan::{Piece, Plan};
use crate::ranges::{Run, Transfer};
use crate::stage::{Landed, Stage};

/// The most that a power cut can take from a fast installation, in bytes; each record waits for the disk.
const MAX_UNRECORDED_BYTES: u64 = 128 << 20;
/// A small model records as often over its length as a large one.
const RECORDS: u64 = 16;
/// The most that it can take from a slow one.
const MAX_UNRECORDED_TIME: Duration = Duration::from_secs(1);
/// So often the system is asked to begin writing back, in bytes.
const BEGIN_SYNC_BYTES: u64 = 16 << 20;

/// How far a request has come.
struct Cursor {
    range: usize,
    segment: usize,
    in_segment: u64,
    xxh3: Xxh3,
    digests: Vec<u64>,
}

/// The files being written.
pub struct Landing<'a> {
    transfer: &'a Transfer,
    runs: &'a [Run],
    stage: Stage<'a>,
    landed: Landed,
    files: Vec<Box<dyn WriteFile + 'a>>,
    cursors: BTreeMap<usize, Cursor>,
    /// Files with bytes that are not durable.
    dirty: BTreeSet<usize>,
    /// Whether every name in the directory is durable.
    names_are_durable: bool,
    /// What landed since the last record.
    records: Vec<Record>,
    unrecorded_bytes: u64,
    record_bytes: u64,
    recorded: Instant,
    begun_bytes: u64,
    /// Segments that each file still lacks.
    lacks: Vec<usize>,
    /// Files that lack nothing any more and were not handed on yet.
    complete: Vec<usize>,
}

impl<'a> Landing<'a> {
    /// Opens every planned file and writes what planning made.
    pub fn open(
        disk: &'a dyn Disk,
        stage: Stage<'a>,
        plan: &Plan,
        (transfer, landed): (&'a Transfer, Landed),
        runs: &'a [Run],
    ) -> Result<Landing<'a>, InstallError> {
        let mut files = Vec::with_capacity(plan.files.len());
        for file in &plan.files {
            files.push(disk.open_write(&stage.path(&file.path))?);
        }
        let mut lacks = vec![0; files.len()];
        for (range, _) in transfer
            .ranges
            .iter()
            .zip(&landed.ranges)
            .filter(|&(_, &has_landed)| !has_landed)
        {
            for segment in &transfer.segments[range.segments.clone()] {
                lacks[segment.file] += 1;
            }
        }
        let complete = (0..files.len()).filter(|&file| lacks[file] == 0).collect();
        let mut landing = Landing {
            transfer,
            runs,
            stage,
            landed,
            dirty: (0..files.len()).collect(),
            files,
            cursors: BTreeMap::new(),
            names_are_durable: false,
            records: Vec::new(),
            unrecorded_bytes: 0,
            record_bytes: (transfer.bytes() / RECORDS).clamp(1, MAX_UNRECORDED_BYTES),
            recorded: Instant::now(),
            begun_bytes: 0,
            lacks,
            complete,
        };
        for (file, planned) in plan.files.iter().enumerate() {
            landing.write_own(file, &planned.pieces)?;
        }
        Ok(landing)
    }

    /// Writes bytes that planning made and padding. They are few, and every run writes them anew.
    fn write_own(&mut self, file: usize, pieces: &[Piece]) -> Result<(), InstallError> {
        let file = &mut self.files[file];
        let zeros = [0; 16 << 10];
        let mut at = 0;
        for piece in pieces {
            match piece {
                Piece::Bytes(bytes) => {
                    for (i, part) in bytes.chunks(BUFFER_BYTES).enumerate() {
                        file.write_at(at + (i * BUFFER_BYTES) as u64, part)?;
                    }
                }
                Piece::Zeros(len) => {
                    let mut done = 0;
                    while done < *len {
                        let n = (len - done).min(zeros.len() as u64);
                        file.write_at(at + done, &zeros[..n as usize])?;
                        done += n;
                    }
                }
                Piece::Copy { .. } => {}
            }
            at += piece.len();
        }
        Ok(())
    }

    /// Writes the next bytes of the request `run`.
    ///
    /// # Errors
    /// Those of the disk.
    ///
    /// # Panics
    /// If the request has fewer bytes.
    pub fn take(&mut self, run: usize, mut bytes: &[u8]) -> Result<(), InstallError> {
        let mut cursor = self.cursors.remove(&run).unwrap_or_else(|| {
            let range = self.runs[run].ranges.start;
            Cursor {
                range,
                segment: self.transfer.ranges[range].segments.start,
                in_segment: 0,
                xxh3: Xxh3::new(),
                digests: Vec::new(),
            }
        });
        while !bytes.is_empty() {
            assert!(
                self.runs[run].ranges.contains(&cursor.range),
                "a request brings what was asked for and no more"
            );
            let segment = self.transfer.segments[cursor.segment];
            let n = (segment.len - cursor.in_segment).min(bytes.len() as u64);
            let (now, later) = bytes.split_at(n as usize);
            self.files[segment.file].write_at(segment.at + cursor.in_segment, now)?;
            self.dirty.insert(segment.file);
            cursor.xxh3.update(now);
            cursor.in_segment += n;
            if cursor.in_segment == segment.len {
                self.end_segment(&mut cursor);
            }
            bytes = later;
        }
        if cursor.range < self.runs[run].ranges.end {
            self.cursors.insert(run, cursor);
        }
        self.begin_sync();
        let is_due = self.unrecorded_bytes >= self.record_bytes
            || (!self.records.is_empty() && self.recorded.elapsed() >= MAX_UNRECORDED_TIME);
        if is_due { self.record() } else { Ok(()) }
    }

    fn end_segment(&mut self, cursor: &mut Cursor) {
        cursor.digests.push(cursor.xxh3.take());
        cursor.in_segment = 0;
        cursor.segment += 1;
        let range = &self.transfer.ranges[cursor.range];
        if cursor.segment < range.segments.end {
            return;
        }
        let record = Record {
            range: cursor.range,
            digests: std::mem::take(&mut cursor.digests),
        };
        self.landed.add(self.transfer, &record);
        for segment in &self.transfer.segments[range.segments.clone()] {
            self.lacks[segment.file] -= 1;
            if self.lacks[segment.file] == 0 {
                self.complete.push(segment.file);
            }
        }
        self.unrecorded_bytes += range.len;
        self.begun_bytes += range.len;
        self.records.push(record);
        cursor.range += 1;
    }

    fn begin_sync(&mut self) {
        if self.begun_bytes >= BEGIN_SYNC_BYTES {
            self.begun_bytes = 0;
            for &file in &self.dirty {
                self.files[file].begin_sync();
            }
        }
    }

    /// Makes what has landed durable, then records it.
    ///
    /// # Errors
    /// Those of the disk. What they leave open must not be recorded by a second try: the system may have dropped it.
    pub fn record(&mut self) -> Result<(), InstallError> {
        for file in std::mem::take(&mut self.dirty) {
            self.files[file].sync()?;
        }
        if !self.names_are_durable {
            self.stage.sync_names()?;
            self.names_are_durable = true;
        }
        self.stage.record(&self.records)?;
        self.records.clear();
        self.unrecorded_bytes = 0;
        self.recorded = Instant::now();
        Ok(())
    }

    /// Files that lack nothing, each handed out once.
    pub fn complete(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.complete)
    }

    /// Where a file of the directory is being built.
    pub fn path(&self, file: &str) -> std::path::PathBuf {
        self.stage.path(file)
    }

    /// What has landed so far.
    pub fn landed(&self) -> &Landed {
        &self.landed
    }

    /// Records the rest and hands the stage on.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn finish(mut self) -> Result<Stage<'a>, InstallError> {
        self.record()?;
        Ok(self.stage)
    }
}
