//! The journal of an unfinished installation as bytes: which ranges have landed, and what landed.
//!
//! A header names the plan; each record names a range and has the digest of every segment of it, as the bytes were when they came, and
//! a digest of itself. Records are appended, so what a power cut leaves is a prefix; reading stops at the first record that is
//! not whole. What is read here is a claim: the segments are read and compared before it is believed.

use ouzel_format::Sha256Hex;
use ouzel_storage::xxh3_64;

use crate::ranges::Transfer;

const MAGIC: &[u8; 4] = b"OUZJ";
/// 2: records of ranges; also changes with the way in which ranges are cut.
const VERSION: u32 = 2;
/// Magic, version, fingerprint, digest.
const HEADER_BYTES: usize = 4 + 4 + 32 + 8;
/// A record has one digest a segment and three numbers; the real model's journal has a megabyte.
pub const MAX_BYTES: u64 = 64 << 20;

/// A range that has landed, with the XXH3-64 of its segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Index into [`Transfer::ranges`].
    pub range: usize,
    /// One a segment.
    pub digests: Vec<u64>,
}

/// What a journal of this plan begins with.
pub fn header(fingerprint: &Sha256Hex) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(fingerprint.bytes());
    seal(&mut bytes, 0);
    bytes
}

/// Appends records.
pub fn encode(records: &[Record], bytes: &mut Vec<u8>) {
    for record in records {
        let start = bytes.len();
        bytes.extend_from_slice(&(record.range as u32).to_le_bytes());
        bytes.extend_from_slice(&(record.digests.len() as u32).to_le_bytes());
        for digest in &record.digests {
            bytes.extend_from_slice(&digest.to_le_bytes());
        }
        seal(bytes, start);
    }
}

fn seal(bytes: &mut Vec<u8>, start: usize) {
    let digest = xxh3_64(&bytes[start..]);
    bytes.extend_from_slice(&digest.to_le_bytes());
}

/// The records of a journal of this plan, as far as they are whole; `None` if it is of another plan or none at all.
pub fn decode(bytes: &[u8], fingerprint: &Sha256Hex, transfer: &Transfer) -> Option<Vec<Record>> {
    let mut rest = bytes.strip_prefix(header(fingerprint).as_slice())?;
    let mut records = Vec::new();
    while let Some(record) = take_record(&mut rest, transfer) {
        records.push(record);
    }
    Some(records)
}

fn take_record(rest: &mut &[u8], transfer: &Transfer) -> Option<Record> {
    let number = |at: usize| {
        let bytes = rest.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let (range, n) = (number(0)?, number(4)?);
    if transfer.ranges.get(range)?.segments.len() != n {
        return None;
    }
    let end = 8 + 8 * n;
    let sealed = rest.get(..end + 8)?;
    let (bytes, digest) = sealed.split_at(end);
    if xxh3_64(bytes).to_le_bytes() != digest {
        return None;
    }
    let digests = bytes[8..]
        .chunks_exact(8)
        .map(|chunk| u64::from_le_bytes(chunk.try_into().expect("eight bytes")))
        .collect();
    *rest = &rest[end + 8..];
    Some(Record { range, digests })
}

#[cfg(test)]
mod tests;
