//! Which ranges of the checkpoint are transferred, and where their bytes land: pure, from the plan alone.
//!
//! A range is what is recorded as landed: up to [`Transfer::range_bytes`] neighbouring bytes of one source file, all of them wanted. It
//! lands as segments, each in one place of one file: a range of a routed tensor is spread over as many experts as it touches. A
//! request asks for a run of neighbouring ranges. No wanted byte is in two ranges and no other byte is in any.

use std::ops::Range as Span;

use crate::plan::{Piece, Plan};

/// The longest range; a fault costs at most so much again.
const MAX_RANGE_BYTES: u64 = 1 << 20;
/// The shortest cut of a range; small models have small ranges, so that they resume like large ones.
const MIN_RANGE_BYTES: u64 = 32 << 10;
/// Into so many ranges a model is cut where the two limits allow it.
const RANGES: u64 = 256;
/// Ranges of one request: 8 MiB of the real model.
pub const RANGES_PER_REQUEST: usize = 8;

/// Bytes that land together in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index into [`Plan::files`].
    pub file: usize,
    /// Where in that file.
    pub at: u64,
    /// How many.
    pub len: u64,
}

/// Neighbouring bytes of a source file that are recorded together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Index into [`Plan::sources`].
    pub source: usize,
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
    /// Indices into [`Transfer::segments`], in the order of the source.
    pub segments: Span<usize>,
}

/// A run of neighbouring ranges that are asked for together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Indices into [`Transfer::ranges`].
    pub ranges: Span<usize>,
    /// Where it starts.
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

/// Everything that is transferred for a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// By source file and place.
    pub ranges: Vec<Range>,
    /// In the order of their ranges.
    pub segments: Vec<Segment>,
    /// Bytes of a range that is cut.
    pub range_bytes: u64,
}

impl Transfer {
    /// The ranges of a plan.
    pub fn of(plan: &Plan) -> Transfer {
        let mut wanted = wanted(plan);
        // Two pieces never want the same bytes, so the order is one only.
        wanted.sort_unstable_by_key(|&(source, offset, _)| (source, offset));
        let total: u64 = wanted.iter().map(|(_, _, segment)| segment.len).sum();
        let range_bytes = (total / RANGES).clamp(MIN_RANGE_BYTES, MAX_RANGE_BYTES);
        let mut transfer = Transfer {
            ranges: Vec::new(),
            segments: Vec::new(),
            range_bytes,
        };
        for (source, offset, segment) in wanted {
            transfer.add(source, offset, segment);
        }
        transfer
    }

    /// Appends wanted bytes to the last range, and to new ones when it is full or lies elsewhere.
    fn add(&mut self, source: usize, mut offset: u64, mut segment: Segment) {
        while segment.len > 0 {
            let follows = self.ranges.last().is_some_and(|range| {
                range.source == source
                    && range.offset + range.len == offset
                    && range.len < self.range_bytes
            });
            if !follows {
                let end = self.segments.len();
                self.ranges.push(Range {
                    source,
                    offset,
                    len: 0,
                    segments: end..end,
                });
            }
            let last = self.ranges.len() - 1;
            let range = &mut self.ranges[last];
            let len = segment.len.min(self.range_bytes - range.len);
            self.segments.push(Segment { len, ..segment });
            range.len += len;
            range.segments.end += 1;
            offset += len;
            segment.at += len;
            segment.len -= len;
        }
    }

    /// Bytes transferred in all.
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.len).sum()
    }

    /// The requests that bring every range which has not landed.
    pub fn runs(&self, has_landed: &[bool]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (i, range) in self.ranges.iter().enumerate() {
            if has_landed[i] {
                continue;
            }
            match runs.last_mut() {
                Some(run)
                    if run.ranges.end == i
                        && run.ranges.len() < RANGES_PER_REQUEST
                        && self.ranges[i - 1].source == range.source
                        && run.offset + run.len == range.offset =>
                {
                    run.ranges.end += 1;
                    run.len += range.len;
                }
                _ => runs.push(Run {
                    ranges: i..i + 1,
                    offset: range.offset,
                    len: range.len,
                }),
            }
        }
        runs
    }

    /// For each planned file its segments, as indices, in the order of the file.
    pub fn segments_by_file(&self, n_files: usize) -> Vec<Vec<usize>> {
        let mut by_file = vec![Vec::new(); n_files];
        for (i, segment) in self.segments.iter().enumerate() {
            by_file[segment.file].push(i);
        }
        for segments in &mut by_file {
            segments.sort_unstable_by_key(|&i| self.segments[i].at);
        }
        by_file
    }
}

/// Every copied piece: its source, its place there, and where it lands.
fn wanted(plan: &Plan) -> Vec<(usize, u64, Segment)> {
    let mut wanted = Vec::new();
    for (file, planned) in plan.files.iter().enumerate() {
        let mut at = 0;
        for piece in &planned.pieces {
            let len = piece.len();
            if let Piece::Copy { source, offset, .. } = *piece {
                wanted.push((source, offset, Segment { file, at, len }));
            }
            at += len;
        }
    }
    wanted
}

#[cfg(test)]
mod tests;
