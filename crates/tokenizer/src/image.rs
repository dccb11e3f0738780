//! The compiled tokenizer: its byte layout, its validation and the look-ups that run on the bytes as they are.
//!
//! The image is meant to be mapped from a cache file, so its pages are the whole resident cost and nothing is deserialised. All numbers
//! are little-endian `u32` read byte by byte: no alignment, no unsafe. `Tables::open` checks every offset, id and order once; after
//! that look-ups are still total functions (a file that changes under the mapping gives wrong ids, never a panic).
//!
//! ```text
//! header, 48 bytes
//!   0  magic "OUZELTOK"     8 version   12 flags   16 n_tokens   20 text_bytes   24 n_added   28 char_slots   32 n_merges   36 n_spans
//!  40  XXH3-64 of bytes 0..40 and 48..end, u64
//! text_ends     [n_tokens]      end of token i in `text`; it starts where token i - 1 ends
//! text          [text_bytes]    all tokens in id order, UTF-8
//! by_text       [n_tokens]      ids in the order of their text's bytes
//! added         [n_added]       ids of the added tokens in the order of their text's bytes; bit 31 marks a special token
//! bytes         [256]           id of the token `<0xNN>`
//! chars         [char_slots, 2] open addressing: scalar value and id; an empty slot has scalar u32::MAX
//! merge_ends    [n_tokens]      end of the merges whose left side is token i
//! merges        [n_merges, 3]   right side, rank, result; ascending right side within one left side
//! spans         [n_spans, 2]    token id and byte offset in it: the tokens that span an otherwise safe cut before a word
//! ```

use crate::error::TokenizerError;
use xxhash_rust::xxh3::Xxh3;

pub(crate) const MAGIC: [u8; 8] = *b"OUZELTOK";
/// Raised whenever the layout or the meaning of a table changes; a cached image of another version is compiled again.
pub(crate) const VERSION: u32 = 1;
pub(crate) const HEADER_BYTES: usize = 48;
const CHECKSUM_AT: usize = 40;
/// Flag: no merge joins a newline with anything else, so text may be cut between them.
pub(crate) const CUT_AT_NEWLINES: u32 = 1;
/// Flag: no merge but those listed in `spans` joins a word's space with what precedes it.
pub(crate) const CUT_AT_WORDS: u32 = 2;
/// Marks a special token in `added`. Ids stay below it because a tokenizer.json of the largest size holds fewer tokens.
pub(crate) const SPECIAL_BIT: u32 = 1 << 31;
/// Scalar value of an empty slot of `chars`; no `char` has it.
pub(crate) const EMPTY_SLOT: u32 = u32::MAX;

/// Where each table starts, from the header's counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub flags: u32,
    pub n_tokens: usize,
    pub n_added: usize,
    pub char_slots: usize,
    pub n_merges: usize,
    pub n_spans: usize,
    pub text_bytes: usize,
    text_ends: usize,
    text: usize,
    by_text: usize,
    added: usize,
    bytes: usize,
    chars: usize,
    merge_ends: usize,
    merges: usize,
    spans: usize,
}

impl Layout {
    /// Reads the header's counts and checks the image's size against them.
    fn of(image: &[u8]) -> Result<Layout, TokenizerError> {
        let head = image
            .get(..HEADER_BYTES)
            .filter(|h| h[..8] == MAGIC && u32_at(h, 8) == VERSION);
        let Some(head) = head else {
            let actual = image[..image.len().min(12)].to_vec();
            return Err(TokenizerError::NotAnImage {
                expected: VERSION,
                actual,
            });
        };
        let counts: [u32; 7] = std::array::from_fn(|i| u32_at(head, 12 + 4 * i));
        let [
            _,
            n_tokens,
            text_bytes,
            n_added,
            char_slots,
            n_merges,
            n_spans,
        ] = counts.map(u64::from);
        let sizes = [
            HEADER_BYTES as u64,
            4 * n_tokens,
            text_bytes,
            4 * n_tokens,
            4 * n_added,
            4 * 256,
            8 * char_slots,
            4 * n_tokens,
            12 * n_merges,
            8 * n_spans,
        ];
        // Each term is below 2^36, so the sum cannot overflow.
        let expected: u64 = sizes.iter().sum();
        let actual = image.len() as u64;
        if expected != actual {
            return Err(TokenizerError::ImageSize { expected, actual });
        }
        // Every start is at most the image's length, so it fits a usize.
        let mut starts = [0usize; 10];
        for i in 1..10 {
            starts[i] = starts[i - 1] + sizes[i - 1] as usize;
        }
        Ok(Layout {
            flags: counts[0],
            n_tokens: counts[1] as usize,
            text_bytes: counts[2] as usize,
            n_added: counts[3] as usize,
            char_slots: counts[4] as usize,
            n_merges: counts[5] as usize,
            n_spans: counts[6] as usize,
            text_ends: starts[1],
            text: starts[2],
            by_text: starts[3],
            added: starts[4],
            bytes: starts[5],
            chars: starts[6],
            merge_ends: starts[7],
            merges: starts[8],
            spans: starts[9],
        })
    }
}

/// The look-ups, on borrowed bytes.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    image: &'a [u8],
    layout: &'a Layout,
}

impl<'a> Tables<'a> {
    /// Validates an image; the layout it returns is what `Tables::new` needs later.
    pub fn open(image: &'a [u8]) -> Result<Layout, TokenizerError> {
        let layout = Layout::of(image)?;
        let expected = u64::from_le_bytes(std::array::from_fn(|i| image[CHECKSUM_AT + i]));
        let actual = checksum(image);
        if expected != actual {
            return Err(TokenizerError::ImageChecksum { expected, actual });
        }
        let tables = Tables::new(image, &layout);
        tables.check_texts()?;
        tables.check_added()?;
        tables.check_symbols()?;
        tables.check_merges()?;
        tables.check_spans()?;
        Ok(layout)
    }

    pub fn new(image: &'a [u8], layout: &'a Layout) -> Self {
        Tables { image, layout }
    }

    fn word(&self, table: usize, index: usize) -> u32 {
        u32_at(self.image, table + 4 * index)
    }

    /// The text of a token, `None` beyond the vocabulary.
    pub fn token(&self, id: u32) -> Option<&'a str> {
        let id = id as usize;
        if id >= self.layout.n_tokens {
            return None;
        }
        let start = if id == 0 {
            0
        } else {
            self.word(self.layout.text_ends, id - 1)
        };
        let end = self.word(self.layout.text_ends, id);
        let text = self.image.get(self.layout.text..self.layout.by_text)?;
        std::str::from_utf8(text.get(start as usize..end as usize)?).ok()
    }

    /// The id of the token with exactly this text.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        let (mut low, mut high) = (0, self.layout.n_tokens);
        while low < high {
            let middle = low + (high - low) / 2;
            let id = self.word(self.layout.by_text, middle);
            match self.token(id)?.cmp(text) {
                std::cmp::Ordering::Equal => return Some(id),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// The added token at a place of the text order, and whether it is special.
    pub fn added(&self, index: usize) -> (u32, bool) {
        let word = self.word(self.layout.added, index);
        (word & !SPECIAL_BIT, word & SPECIAL_BIT != 0)
    }

    /// The token that stands for one byte of a scalar value outside the vocabulary.
    pub fn byte_id(&self, byte: u8) -> u32 {
        self.word(self.layout.bytes, usize::from(byte))
    }

    /// The token that is exactly one scalar value.
    pub fn char_id(&self, c: char) -> Option<u32> {
        let mut slot = char_slot(c, self.layout.char_slots);
        for _ in 0..self.layout.char_slots {
            match self.word(self.layout.chars, 2 * slot) {
                EMPTY_SLOT => return None,
                scalar if scalar == c as u32 => {
                    return Some(self.word(self.layout.chars, 2 * slot + 1));
                }
                _ => slot = (slot + 1) % self.layout.char_slots,
            }
        }
        None
    }

    fn merge_range(&self, left: u32) -> (usize, usize) {
        let left = left as usize;
        let start = if left == 0 {
            0
        } else {
            self.word(self.layout.merge_ends, left - 1)
        };
        (
            start as usize,
            self.word(self.layout.merge_ends, left) as usize,
        )
    }

    /// Rank and result of the merge of two neighbours.
    pub fn merge(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let (mut low, mut high) = self.merge_range(left);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.word(self.layout.merges, 3 * middle).cmp(&right) {
                std::cmp::Ordering::Equal => {
                    let rank = self.word(self.layout.merges, 3 * middle + 1);
                    return Some((rank, self.word(self.layout.merges, 3 * middle + 2)));
                }
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// A token that spans a cut before a word, in its two halves.
    pub fn span(&self, index: usize) -> (&'a str, &'a str) {
        let id = self.word(self.layout.spans, 2 * index);
        let at = self.word(self.layout.spans, 2 * index + 1) as usize;
        self.token(id)
            .and_then(|text| text.split_at_checked(at))
            .unwrap_or(("", ""))
    }

    fn check_texts(&self) -> Result<(), TokenizerError> {
        let layout = self.layout;
        let text = std::str::from_utf8(&self.image[layout.text..layout.by_text])
            .map_err(|e| damaged("text", e.valid_up_to()))?;
        let mut start = 0;
        for id in 0..layout.n_tokens {
            let end = self.word(layout.text_ends, id) as usize;
            if end < start || !text.is_char_boundary(end) {
                return Err(damaged("text_ends", id));
            }
            start = end;
        }
        if start != text.len() {
            return Err(damaged("text_ends", layout.n_tokens));
        }
        // Only that the ids exist: reading all texts in this order would double the time to open, and a wrong order finds nothing.
        let exists = |i: &usize| self.word(layout.by_text, *i) < layout.n_tokens as u32;
        (0..layout.n_tokens)
            .find(|i| !exists(i))
            .map_or(Ok(()), |i| Err(damaged("by_text", i)))
    }

    fn check_added(&self) -> Result<(), TokenizerError> {
        let mut before = "";
        for i in 0..self.layout.n_added {
            // An empty text is not above the empty `before`, so it is refused here too.
            let text = self.token(self.added(i).0).filter(|text| *text > before);
            before = text.ok_or(damaged("added", i))?;
        }
        Ok(())
    }

    fn check_symbols(&self) -> Result<(), TokenizerError> {
        for byte in 0..=255u8 {
            if self.token(self.byte_id(byte)).and_then(byte_of) != Some(byte) {
                return Err(damaged("bytes", byte.into()));
            }
        }
        if !self.layout.char_slots.is_power_of_two() {
            return Err(damaged("chars", self.layout.char_slots));
        }
        for slot in 0..self.layout.char_slots {
            let (scalar, id) = (
                self.word(self.layout.chars, 2 * slot),
                self.word(self.layout.chars, 2 * slot + 1),
            );
            if scalar != EMPTY_SLOT && id as usize >= self.layout.n_tokens {
                return Err(damaged("chars", slot));
            }
        }
        Ok(())
    }

    fn check_merges(&self) -> Result<(), TokenizerError> {
        let layout = self.layout;
        let mut start = 0;
        for left in 0..layout.n_tokens {
            let end = self.word(layout.merge_ends, left) as usize;
            if end < start || end > layout.n_merges {
                return Err(damaged("merge_ends", left));
            }
            for i in start..end {
                let right = self.word(layout.merges, 3 * i);
                let result = self.word(layout.merges, 3 * i + 2);
                let ascending = i == start || self.word(layout.merges, 3 * (i - 1)) < right;
                if !ascending
                    || right as usize >= layout.n_tokens
                    || result as usize >= layout.n_tokens
                {
                    return Err(damaged("merges", i));
                }
            }
            start = end;
        }
        if start == layout.n_merges {
            Ok(())
        } else {
            Err(damaged("merge_ends", layout.n_tokens))
        }
    }

    fn check_spans(&self) -> Result<(), TokenizerError> {
        let halves = |i: &usize| self.span(*i).0.is_empty() || self.span(*i).1.is_empty();
        (0..self.layout.n_spans)
            .find(halves)
            .map_or(Ok(()), |i| Err(damaged("spans", i)))
    }
}

fn damaged(table: &'static str, index: usize) -> TokenizerError {
    TokenizerError::ImageTable { table, index }
}

/// The four bytes at an offset; zero outside the image, which only a file that changed after validation can reach.
fn u32_at(image: &[u8], offset: usize) -> u32 {
    match image.get(offset..).and_then(|rest| rest.first_chunk()) {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => 0,
    }
}

/// The first slot to look at for a scalar value. A multiplicative hash (2^32 / golden ratio, odd) spreads the runs of neighbouring
/// scalar values that scripts are made of.
pub(crate) fn char_slot(c: char, char_slots: usize) -> usize {
    let hash = (c as u32).wrapping_mul(0x9E37_79B9);
    (hash >> 8) as usize & char_slots.wrapping_sub(1)
}

/// The byte that a token like `<0x0A>` stands for, read as the reference's decoder reads it.
pub(crate) fn byte_of(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 {
        u8::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

fn checksum(image: &[u8]) -> u64 {
    let mut hasher = Xxh3::new();
    hasher.update(&image[..CHECKSUM_AT]);
    hasher.update(&image[HEADER_BYTES..]);
    hasher.digest()
}

/// Writes the checksum into an image whose other bytes are final. Shorter than a header: does nothing.
pub(crate) fn seal(image: &mut [u8]) {
    if image.len() >= HEADER_BYTES {
        let sum = checksum(image);
        image[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&sum.to_le_bytes());
    }
}

#[cfg(test)]
mod tests;
