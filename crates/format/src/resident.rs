//! The index at the head of `model_weights.bin`: name, type, shape and place of every resident tensor.
//!
//! ```text
//! header 24 bytes: u64 index size, u64 payload size, u64 entry count
//! entry  72 bytes: u32 name offset, u16 name length, u8 dtype, u8 zero, u64 offset, u64 size, 4 x u32 shape,
//!                  u64 scale offset, u64 scale size, u64 bias offset, u64 bias size
//! names, back to back; zeros up to a multiple of 16,384
//! ```
//! All little endian, all offsets from the file's start. The reader takes exactly what the writer writes: names in the order of the
//! entries, no gap, zero padding, the smallest index size. So whatever is accepted encodes to the same bytes again.

use std::collections::HashSet;

use crate::{ALIGNMENT, Dtype, FormatError};

const WHAT: &str = "the index of model_weights.bin";
const HEADER_BYTES: usize = 24;
const ENTRY_BYTES: usize = 72;
/// The largest index that the format allows.
const MAX_INDEX_BYTES: u64 = 16 << 20;
const MAX_DIMENSIONS: usize = 4;

/// A range of bytes, from the file's start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub size: u64,
}

/// A resident tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentEntry {
    /// The source's name of it.
    pub name: String,
    /// `U32` is packed quantized values.
    pub dtype: Dtype,
    /// Where its elements or packed words lie, from the file's start; even, but not always a multiple of four.
    pub offset: u64,
    /// Bytes of those, scales and biases not included.
    pub size: u64,
    /// The shape in values, not in packed words: at most four dimensions.
    pub shape: Vec<u32>,
    /// Scales of a quantized tensor, BF16.
    pub scales: Option<Extent>,
    /// Biases of a quantized tensor, BF16.
    pub biases: Option<Extent>,
}

impl ResidentEntry {
    /// The range of the elements or packed words.
    pub fn extent(&self) -> Extent {
        Extent {
            offset: self.offset,
            size: self.size,
        }
    }

    fn extents(&self) -> impl Iterator<Item = Extent> {
        [Some(self.extent()), self.scales, self.biases]
            .into_iter()
            .flatten()
    }
}

/// The decoded index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResidentIndex {
    /// In the order of the file.
    pub entries: Vec<ResidentEntry>,
    /// Bytes after the index.
    pub payload_size: u64,
}

impl ResidentIndex {
    /// Bytes that [`ResidentIndex::index_size`] needs.
    pub const HEADER_BYTES: usize = HEADER_BYTES;

    /// How many bytes from the file's start are the index, by its first 24.
    ///
    /// # Errors
    /// [`FormatError::Truncated`], [`FormatError::IndexTooLarge`], [`FormatError::IndexSize`], [`FormatError::TooManyEntries`].
    pub fn index_size(first_24: &[u8]) -> Result<u64, FormatError> {
        Header::parse(first_24).map(|header| header.index_size)
    }

    /// The index size for tensors of these names, which is where the payload starts.
    ///
    /// # Errors
    /// [`FormatError::NameLength`], [`FormatError::IndexTooLarge`].
    pub fn size_for<'n>(names: impl IntoIterator<Item = &'n str>) -> Result<u64, FormatError> {
        let mut bytes = HEADER_BYTES as u64;
        for (entry, name) in names.into_iter().enumerate() {
            check_name_length(entry as u64, name)?;
            bytes += ENTRY_BYTES as u64 + name.len() as u64;
        }
        let actual = bytes.next_multiple_of(ALIGNMENT);
        if actual > MAX_INDEX_BYTES {
            return Err(FormatError::IndexTooLarge {
                limit: MAX_INDEX_BYTES,
                actual,
            });
        }
        Ok(actual)
    }

    /// Decodes and checks the index; `bytes` start with it and may go on behind it.
    ///
    /// # Errors
    /// A [`FormatError`] that names the tensor or the place.
    pub fn parse(bytes: &[u8]) -> Result<ResidentIndex, FormatError> {
        let header = Header::parse(bytes)?;
        if (bytes.len() as u64) < header.index_size {
            return Err(FormatError::Truncated {
                what: WHAT,
                expected: header.index_size,
                actual: bytes.len() as u64,
            });
        }
        // The index is at most 16 MiB, and its entries fit into it: see `Header::parse`.
        let bytes = &bytes[..header.index_size as usize];
        let n_entries = header.n_entries as usize;
        let mut name_start = HEADER_BYTES + n_entries * ENTRY_BYTES;
        let mut entries = Vec::with_capacity(n_entries);
        for i in 0..n_entries {
            let entry = parse_entry(bytes, i, name_start)?;
            name_start += entry.name.len();
            entries.push(entry);
        }
        if let Some(at) = bytes[name_start..].iter().position(|&byte| byte != 0) {
            let at = name_start + at;
            return Err(FormatError::ReservedNotZero {
                offset: at as u64,
                actual: bytes[at],
            });
        }
        let index = ResidentIndex {
            entries,
            payload_size: header.payload_size,
        };
        let expected = index.check()?;
        if header.index_size != expected {
            return Err(FormatError::IndexSize {
                expected,
                actual: header.index_size,
            });
        }
        Ok(index)
    }

    /// The bytes of the index.
    ///
    /// # Panics
    /// When [`ResidentIndex::check`] fails.
    pub fn encode(&self) -> Vec<u8> {
        let index_size = match self.check() {
            Ok(size) => size,
            Err(error) => panic!("not an index: {error}"),
        };
        let mut out = Vec::with_capacity(index_size as usize);
        for value in [index_size, self.payload_size, self.entries.len() as u64] {
            out.extend_from_slice(&value.to_le_bytes());
        }
        let mut name_start = HEADER_BYTES + self.entries.len() * ENTRY_BYTES;
        for entry in &self.entries {
            encode_entry(entry, name_start, &mut out);
            name_start += entry.name.len();
        }
        for entry in &self.entries {
            out.extend_from_slice(entry.name.as_bytes());
        }
        out.resize(index_size as usize, 0);
        out
    }

    /// Checks what the format demands of an index, whoever made it, and returns its size in bytes.
    ///
    /// # Errors
    /// A [`FormatError`] that names the tensor.
    pub fn check(&self) -> Result<u64, FormatError> {
        let index_size =
            ResidentIndex::size_for(self.entries.iter().map(|entry| entry.name.as_str()))?;
        let end =
            index_size
                .checked_add(self.payload_size)
                .ok_or_else(|| FormatError::Overflow {
                    name: "the payload".into(),
                    offset: index_size,
                    size: self.payload_size,
                })?;
        let mut names = HashSet::with_capacity(self.entries.len());
        let mut ranges = Vec::with_capacity(3 * self.entries.len());
        for entry in &self.entries {
            if !names.insert(entry.name.as_str()) {
                return Err(FormatError::DuplicateName {
                    name: entry.name.clone(),
                });
            }
            check_shape(entry)?;
            for extent in entry.extents() {
                if extent.size == 0 {
                    return Err(FormatError::EmptyTensor {
                        name: entry.name.clone(),
                    });
                }
                ranges.push(range_within(&entry.name, extent, index_size, end)?);
            }
        }
        check_disjoint(&mut ranges)?;
        Ok(index_size)
    }
}

/// A named range of bytes: start, end, name.
pub(crate) type NamedRange<'n> = (u64, u64, &'n str);

/// The range of `extent`, which has to lie in `from..to`.
pub(crate) fn range_within(
    name: &str,
    extent: Extent,
    from: u64,
    to: u64,
) -> Result<NamedRange<'_>, FormatError> {
    let Extent { offset, size } = extent;
    let end = offset
        .checked_add(size)
        .ok_or_else(|| FormatError::Overflow {
            name: name.to_owned(),
            offset,
            size,
        })?;
    if offset < from || end > to {
        return Err(FormatError::OutOfBounds {
            name: name.to_owned(),
            offset,
            end,
            from,
            to,
        });
    }
    Ok((offset, end, name))
}

/// Checks that no byte belongs to two ranges; sorts them by their start.
pub(crate) fn check_disjoint(ranges: &mut [NamedRange<'_>]) -> Result<(), FormatError> {
    ranges.sort_unstable();
    match ranges.windows(2).find(|pair| pair[1].0 < pair[0].1) {
        None => Ok(()),
        Some(pair) => Err(FormatError::Overlap {
            name: pair[1].2.to_owned(),
            other: pair[0].2.to_owned(),
            offset: pair[1].0,
        }),
    }
}

fn check_name_length(entry: u64, name: &str) -> Result<(), FormatError> {
    if name.is_empty() || name.len() > usize::from(u16::MAX) {
        return Err(FormatError::NameLength {
            entry,
            actual: name.len(),
        });
    }
    Ok(())
}

fn check_shape(entry: &ResidentEntry) -> Result<(), FormatError> {
    if entry.shape.len() > MAX_DIMENSIONS || entry.shape.contains(&0) {
        return Err(FormatError::BadShape {
            name: entry.name.clone(),
            shape: entry.shape.iter().map(|&n| n.into()).collect(),
        });
    }
    Ok(())
}

struct Header {
    index_size: u64,
    payload_size: u64,
    n_entries: u64,
}

impl Header {
    fn parse(bytes: &[u8]) -> Result<Header, FormatError> {
        if bytes.len() < HEADER_BYTES {
            return Err(FormatError::Truncated {
                what: WHAT,
                expected: HEADER_BYTES as u64,
                actual: bytes.len() as u64,
            });
        }
        let header = Header {
            index_size: u64_at(bytes, 0),
            payload_size: u64_at(bytes, 8),
            n_entries: u64_at(bytes, 16),
        };
        let index_size = header.index_size;
        if index_size > MAX_INDEX_BYTES {
            return Err(FormatError::IndexTooLarge {
                limit: MAX_INDEX_BYTES,
                actual: index_size,
            });
        }
        if index_size == 0 || !index_size.is_multiple_of(ALIGNMENT) {
            let expected = index_size.next_multiple_of(ALIGNMENT).max(ALIGNMENT);
            return Err(FormatError::IndexSize {
                expected,
                actual: index_size,
            });
        }
        if header.n_entries > (index_size - HEADER_BYTES as u64) / ENTRY_BYTES as u64 {
            return Err(FormatError::TooManyEntries {
                n_entries: header.n_entries,
                index_size,
            });
        }
        Ok(header)
    }
}

/// Reads entry `i`, whose name has to start at `name_start`. `bytes` is the whole index, which holds all entries.
fn parse_entry(bytes: &[u8], i: usize, name_start: usize) -> Result<ResidentEntry, FormatError> {
    let at = HEADER_BYTES + i * ENTRY_BYTES;
    let entry = i as u64;
    let actual = u64::from(u32_at(bytes, at));
    if actual != name_start as u64 {
        return Err(FormatError::NamePosition {
            entry,
            expected: name_start as u64,
            actual,
        });
    }
    let name_len = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
    let name = bytes
        .get(name_start..name_start + name_len)
        .ok_or(FormatError::OutOfBounds {
            name: format!("the name of entry {entry}"),
            offset: name_start as u64,
            end: (name_start + name_len) as u64,
            from: name_start as u64,
            to: bytes.len() as u64,
        })?;
    let name = std::str::from_utf8(name).map_err(|_| FormatError::NameNotUtf8 { entry })?;
    check_name_length(entry, name)?;
    let dtype = Dtype::from_code(bytes[at + 6]).ok_or_else(|| FormatError::UnknownDtype {
        name: name.to_owned(),
        dtype: bytes[at + 6].to_string(),
    })?;
    if bytes[at + 7] != 0 {
        return Err(FormatError::ReservedNotZero {
            offset: at as u64 + 7,
            actual: bytes[at + 7],
        });
    }
    Ok(ResidentEntry {
        name: name.to_owned(),
        dtype,
        offset: u64_at(bytes, at + 8),
        size: u64_at(bytes, at + 16),
        shape: parse_shape(bytes, at + 24, name)?,
        scales: parse_companion(bytes, at + 40, name, "scales")?,
        biases: parse_companion(bytes, at + 56, name, "biases")?,
    })
}

fn parse_shape(bytes: &[u8], at: usize, name: &str) -> Result<Vec<u32>, FormatError> {
    let padded: [u32; MAX_DIMENSIONS] = std::array::from_fn(|d| u32_at(bytes, at + 4 * d));
    let rank = padded
        .iter()
        .position(|&n| n == 0)
        .unwrap_or(MAX_DIMENSIONS);
    if padded[rank..].iter().any(|&n| n != 0) {
        return Err(FormatError::BadShape {
            name: name.to_owned(),
            shape: padded.map(u64::from).to_vec(),
        });
    }
    Ok(padded[..rank].to_vec())
}

fn parse_companion(
    bytes: &[u8],
    at: usize,
    name: &str,
    companion: &'static str,
) -> Result<Option<Extent>, FormatError> {
    let extent = Extent {
        offset: u64_at(bytes, at),
        size: u64_at(bytes, at + 8),
    };
    let Extent { offset, size } = extent;
    match (offset == 0, size == 0) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(extent)),
        _ => Err(FormatError::HalfCompanion {
            name: name.to_owned(),
            companion,
            offset,
            size,
        }),
    }
}

fn encode_entry(entry: &ResidentEntry, name_start: usize, out: &mut Vec<u8>) {
    // No cast below loses anything: the index has at most 16 MiB and `check` bounds names and shapes.
    out.extend_from_slice(&(name_start as u32).to_le_bytes());
    out.extend_from_slice(&(entry.name.len() as u16).to_le_bytes());
    out.extend_from_slice(&[entry.dtype.code(), 0]);
    out.extend_from_slice(&entry.offset.to_le_bytes());
    out.extend_from_slice(&entry.size.to_le_bytes());
    for d in 0..MAX_DIMENSIONS {
        out.extend_from_slice(&entry.shape.get(d).copied().unwrap_or(0).to_le_bytes());
    }
    for companion in [entry.scales, entry.biases] {
        let Extent { offset, size } = companion.unwrap_or(Extent { offset: 0, size: 0 });
        out.extend_from_slice(&offset.to_le_bytes());
        out.extend_from_slice(&size.to_le_bytes());
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]))
}
