//! A file of kept rows: a head that says whose they are, then pieces as long as a block of the arena.
//!
//! Everything is whole blocks of 16 KiB, so that it is written and read past the page cache. The head ends with its checksum, and every
//! piece with one over the head's checksum, its number and its bytes: a piece of another file, another place or another time is as
//! wrong as a flipped bit. A file is written under another name, made durable and renamed. Whatever is not exactly as expected
//! is no file of ours: there is no repair and no older version.

use std::ops::Range;
use std::path::{Path, PathBuf};

use ouzel_storage::{AlignedBuf, Disk, IoMode, OsDisk, PositionedFile, StorageError, StreamWriter};
use ouzel_storage::{Xxh3, xxh3_64};

use super::Kind;
use super::tree::Key;

#[cfg(test)]
mod tests;

const MAGIC: [u8; 8] = *b"OUZELKV\0";
const VERSION: u32 = 1;
/// Bytes before the ids.
const FIXED_BYTES: usize = 160;
/// Bytes of a checksum.
const SUM_BYTES: usize = 8;
/// Hexadecimal digits of a key in a name: enough that two never meet.
const NAME_DIGITS: usize = 32;
const PARTIAL: &str = ".partial";

/// What the head of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Model, tokenizer, template, precision and version, as one hash.
    pub identity: [u8; 32],
    pub key: Key,
    pub parent: Option<Key>,
    /// Where the node begins.
    pub start: usize,
    pub rows: Range<usize>,
    pub row_bytes: usize,
    /// Rows of every piece but the last.
    pub piece_rows: usize,
    /// Tokens of the node; only the file of full layers has them.
    pub ids: Vec<u32>,
}

impl Header {
    /// Bytes of the head.
    pub fn head_bytes(&self) -> usize {
        head_bytes(self.ids.len())
    }

    /// Bytes of the whole file; `None` for numbers that no file can have.
    pub fn file_bytes(&self) -> Option<u64> {
        self.rows
            .len()
            .checked_mul(self.row_bytes)?
            .checked_mul(2)?;
        self.piece_rows
            .checked_mul(self.row_bytes)?
            .checked_mul(2)?;
        let whole = self.rows.len() / self.piece_rows;
        let rest = self.rows.len() % self.piece_rows;
        let mut bytes = piece_bytes(self.piece_rows, self.row_bytes).checked_mul(whole)?;
        if rest > 0 {
            bytes = bytes.checked_add(piece_bytes(rest, self.row_bytes))?;
        }
        Some(bytes.checked_add(self.head_bytes())? as u64)
    }

    pub fn n_pieces(&self) -> usize {
        self.rows.len().div_ceil(self.piece_rows)
    }

    /// The rows of a piece.
    pub fn piece(&self, nth: usize) -> Range<usize> {
        let start = self.rows.start + nth * self.piece_rows;
        // Rows near the end of all numbers are in no file of ours, but in some that looks like one.
        start..self.rows.end.min(start.saturating_add(self.piece_rows))
    }

    /// The pieces that have some of these rows.
    pub fn pieces_of(&self, rows: &Range<usize>) -> Range<usize> {
        let nth = |row: usize| (row - self.rows.start) / self.piece_rows;
        nth(rows.start)..nth(rows.end - 1) + 1
    }

    /// The head's bytes.
    ///
    /// # Errors
    /// Where there is no memory for them.
    pub fn encode(&self) -> Result<AlignedBuf, StorageError> {
        let mut bytes = AlignedBuf::new(self.head_bytes())?;
        let mut at = 0;
        let mut put = |field: &[u8]| {
            bytes[at..at + field.len()].copy_from_slice(field);
            at += field.len();
        };
        put(&MAGIC);
        put(&VERSION.to_le_bytes());
        put(&(self.kind as u32).to_le_bytes());
        put(&self.identity);
        put(&self.key.0);
        put(&self.parent.map_or([0; 32], |key| key.0));
        for number in [
            self.start,
            self.rows.start,
            self.rows.end,
            self.row_bytes,
            self.piece_rows,
            self.ids.len(),
        ] {
            put(&(number as u64).to_le_bytes());
        }
        self.ids.iter().for_each(|id| put(&id.to_le_bytes()));
        seal(&mut bytes);
        Ok(bytes)
    }

    /// Reads a head; `None` for whatever is none.
    pub fn parse(bytes: &[u8]) -> Option<Header> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
        let mut fields = Fields(body);
        let is_ours = fields.take(8)? == MAGIC && fields.u32()? == VERSION;
        if !is_ours || sum != xxh3_64(body).to_le_bytes() {
            return None;
        }
        let kind = match fields.u32()? {
            0 => Kind::Full,
            1 => Kind::Sliding,
            _ => return None,
        };
        let (identity, key, parent) = (fields.hash()?, fields.hash()?, fields.hash()?);
        let start = fields.size()?;
        let rows = fields.size()?..fields.size()?;
        let (row_bytes, piece_rows, n_ids) = (fields.size()?, fields.size()?, fields.size()?);
        let is_sound = rows.start < rows.end && row_bytes > 0 && piece_rows > 0;
        if !is_sound || n_ids > bytes.len() / 4 || head_bytes(n_ids) != bytes.len() {
            return None;
        }
        Some(Header {
            kind,
            identity,
            key: Key(key),
            parent: (parent != [0; 32]).then_some(Key(parent)),
            start,
            rows,
            row_bytes,
            piece_rows,
            ids: (0..n_ids).map(|_| fields.u32()).collect::<Option<_>>()?,
        })
    }
}

/// Gives a head the checksum that its bytes call for.
pub fn seal(head: &mut [u8]) {
    let Some(end) = head.len().checked_sub(SUM_BYTES) else {
        return;
    };
    let sum = xxh3_64(&head[..end]);
    head[end..].copy_from_slice(&sum.to_le_bytes());
}

/// Bytes of a head with so many ids.
fn head_bytes(n_ids: usize) -> usize {
    (FIXED_BYTES + 4 * n_ids + SUM_BYTES).next_multiple_of(AlignedBuf::ALIGNMENT)
}

/// Bytes of a piece of `n` rows.
fn piece_bytes(n: usize, row_bytes: usize) -> usize {
    (n * row_bytes + SUM_BYTES).next_multiple_of(AlignedBuf::ALIGNMENT)
}

/// Rows of a piece that fits into a block.
pub fn piece_rows(block_bytes: usize, row_bytes: usize) -> usize {
    block_bytes
        .saturating_sub(SUM_BYTES)
        .checked_div(row_bytes)
        .unwrap_or(0)
}

/// The file of a node's rows.
pub fn path(dir: &Path, key: Key, kind: Kind) -> PathBuf {
    let extension = match kind {
        Kind::Full => "rows",
        Kind::Sliding => "ring",
    };
    let digits = &crate::cache::hex(&key.0)[..NAME_DIGITS];
    dir.join(format!("{digits}.{extension}"))
}

/// Whether a file could have been written here, whole or in part: nothing else in the folder is ever touched.
pub fn is_ours(name: &str) -> bool {
    let whole = name.strip_suffix(PARTIAL).unwrap_or(name);
    let digits = whole.strip_suffix(".rows").or(whole.strip_suffix(".ring"));
    digits.is_some_and(|digits| {
        digits.len() == NAME_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// Where the pieces of a file come from.
pub trait Pieces {
    /// A block that begins with the bytes of the piece's rows; the rest of it may be overwritten.
    fn piece(&mut self, nth: usize, rows: Range<usize>) -> &mut [u8];
}

/// Writes a file.
pub fn write(path: &Path, header: &Header, pieces: &mut dyn Pieces) -> Result<(), StorageError> {
    let partial = PathBuf::from(format!("{}{PARTIAL}", path.display()));
    let written = write_to(&partial, header, pieces).and_then(|()| OsDisk.rename(&partial, path));
    if written.is_err() {
        // Best effort: what failed before may fail again, and a partial file is never read.
        let _ = OsDisk.remove_file(&partial);
        return written;
    }
    path.parent().map_or(Ok(()), |dir| OsDisk.sync_dir(dir))
}

fn write_to(path: &Path, header: &Header, pieces: &mut dyn Pieces) -> Result<(), StorageError> {
    let head = header.encode()?;
    let head_sum = xxh3_64(&head);
    let mut file = StreamWriter::create(path)?;
    file.write_block(&head)?;
    for nth in 0..header.n_pieces() {
        let rows = header.piece(nth);
        let used = rows.len() * header.row_bytes;
        let block = pieces.piece(nth, rows.clone());
        let block = &mut block[..piece_bytes(rows.len(), header.row_bytes)];
        let end = block.len() - SUM_BYTES;
        block[used..end].fill(0);
        let sum = piece_sum(head_sum, nth, &block[..end]);
        block[end..].copy_from_slice(&sum.to_le_bytes());
        file.write_block(block)?;
    }
    file.finish(&[])
}

fn piece_sum(head_sum: u64, nth: usize, bytes: &[u8]) -> u64 {
    let mut sum = Xxh3::new();
    sum.update(&head_sum.to_le_bytes());
    sum.update(&(nth as u64).to_le_bytes());
    sum.update(bytes);
    sum.take()
}

/// A file whose head was checked.
#[derive(Debug)]
pub struct KeptFile {
    file: PositionedFile,
    pub header: Header,
    head_sum: u64,
}

impl KeptFile {
    /// Opens a file; `None` where it is anything but a whole file of this version. Pieces are not read.
    pub fn open(path: &Path, io: IoMode) -> Option<KeptFile> {
        let file = PositionedFile::open(path, io).ok()?;
        let mut first = AlignedBuf::new(AlignedBuf::ALIGNMENT).ok()?;
        file.read_exact_at(&mut first, 0).ok()?;
        let n_ids = first[FIXED_BYTES - 8..FIXED_BYTES].try_into().ok()?;
        let n_ids = usize::try_from(u64::from_le_bytes(n_ids)).ok()?;
        // A number that was never written must not become an allocation.
        if n_ids as u64 > file.len() / 4 {
            return None;
        }
        let mut head = AlignedBuf::new(head_bytes(n_ids)).ok()?;
        file.read_exact_at(&mut head, 0).ok()?;
        let header = Header::parse(&head)?;
        (header.file_bytes()? == file.len()).then(|| KeptFile {
            head_sum: xxh3_64(&head),
            file,
            header,
        })
    }

    /// Reads a piece into a block, and says whether it is what was written.
    pub fn read_piece(&self, nth: usize, block: &mut [u8]) -> bool {
        let header = &self.header;
        let whole = piece_bytes(header.piece_rows, header.row_bytes);
        let offset = header.head_bytes() + nth * whole;
        let block = &mut block[..piece_bytes(header.piece(nth).len(), header.row_bytes)];
        if self.file.read_exact_at(block, offset as u64).is_err() {
            return false;
        }
        let (bytes, sum) = block.split_at(block.len() - SUM_BYTES);
        sum == piece_sum(self.head_sum, nth, bytes).to_le_bytes()
    }
}

/// Reads fields one after the other.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(field)
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn size(&mut self) -> Option<usize> {
        let number = u64::from_le_bytes(self.take(8)?.try_into().ok()?);
        usize::try_from(number).ok()
    }

    fn hash(&mut self) -> Option<[u8; 32]> {
        self.take(32)?.try_into().ok()
    }
}
