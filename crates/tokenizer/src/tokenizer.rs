//! Text to ids on a compiled image.
//!
//! Text is split at the literals of added tokens; what lies between has its spaces turned into U+2581, is cut where no merge can reach
//! across, and each piece is merged by `bpe`. There is no normal form, no prefix space and no `<bos>`: the chat template writes that one.

use crate::bpe::Merger;
use crate::error::TokenizerError;
use crate::image::{CUT_AT_NEWLINES, CUT_AT_WORDS, Layout, Tables};
use std::fmt;
use std::io::Read;
use std::ops::Deref;

/// What stands for a space inside tokens, U+2581.
pub(crate) const SPACE: char = '\u{2581}';
/// Keeps control text typed by a user apart from control tokens, see `guard`. A noncharacter: Unicode promises never to assign it.
pub(crate) const GUARD: char = '\u{FDD0}';

/// A tokenizer on the bytes of a compiled image; cheap to open, safe to share between threads.
pub struct Tokenizer {
    image: Box<dyn Deref<Target = [u8]> + Send + Sync>,
    layout: Layout,
    /// Which bytes begin an added token.
    added_starts: [bool; 256],
    /// Ids of the special tokens, ascending.
    specials: Vec<u32>,
    /// The characters that begin a special token, ascending.
    special_starts: Vec<char>,
}

impl Tokenizer {
    /// Compiles a tokenizer.json, read as a stream, to the image that `from_image` takes. Refuses by name what is not implemented.
    pub fn compile(tokenizer_json: impl Read) -> Result<Vec<u8>, TokenizerError> {
        crate::compile::compile(tokenizer_json)
    }

    /// Opens a compiled image: a `Vec<u8>`, or a mapped file, which then is the whole resident cost. Any bytes are safe to pass.
    pub fn from_image(
        image: impl Deref<Target = [u8]> + Send + Sync + 'static,
    ) -> Result<Tokenizer, TokenizerError> {
        let layout = Tables::open(&image)?;
        let tables = Tables::new(&image, &layout);
        let mut added_starts = [false; 256];
        let mut specials = Vec::new();
        let mut special_starts = Vec::new();
        for (id, special) in (0..layout.n_added).map(|i| tables.added(i)) {
            let text = tables.token(id).unwrap_or("");
            added_starts[usize::from(*text.as_bytes().first().unwrap_or(&0))] = true;
            if special {
                specials.push(id);
                special_starts.extend(text.chars().next());
            }
        }
        specials.sort_unstable();
        special_starts.sort_unstable();
        special_starts.dedup();
        Ok(Tokenizer {
            image: Box::new(image),
            layout,
            added_starts,
            specials,
            special_starts,
        })
    }

    /// Ids of a text in which the literals of added tokens become those tokens, as the reference library does it.
    pub fn encode(&self, text: &str) -> Vec<u32> {
        self.encode_counting(text, Mode::Literals).0
    }

    /// Ids of a text in which nothing becomes an added token.
    pub fn encode_plain(&self, text: &str) -> Vec<u32> {
        self.encode_counting(text, Mode::Plain).0
    }

    /// Ids of a text rendered from guarded parts: guarded literals become plain text, the guards vanish, all else is as in `encode`.
    pub fn encode_guarded(&self, text: &str) -> Vec<u32> {
        self.encode_counting(text, Mode::Guarded).0
    }

    /// Text of the ids. A run of byte tokens is decoded as UTF-8 as a whole, or becomes one U+FFFD a byte; ids beyond the vocabulary
    /// give nothing. With `skip_special`, special tokens are dropped before runs are formed.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut text = String::new();
        let mut detokenizer = crate::Detokenizer::new(self, skip_special);
        for id in ids {
            text.push_str(detokenizer.push(*id));
        }
        text.push_str(detokenizer.finish());
        text
    }

    /// Number of ids, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.layout.n_tokens
    }

    /// Id of the token with exactly this text, for example `<turn|>`.
    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.tables().id_of(text)
    }

    /// The raw text of a token, with U+2581 for spaces; `None` beyond the vocabulary.
    pub fn token(&self, id: u32) -> Option<&str> {
        self.tables().token(id)
    }

    /// What the token adds to a text, as bytes: a part of a character for a byte token, its literal for a special one. `None` beyond the
    /// vocabulary.
    pub fn token_bytes(&self, id: u32) -> Option<Vec<u8>> {
        let text = self.token(id)?;
        Some(match crate::image::byte_of(text) {
            Some(byte) => vec![byte],
            None if self.is_special(id) => text.as_bytes().to_vec(),
            None => text.replace(SPACE, " ").into_bytes(),
        })
    }

    /// Whether the token stands for one byte.
    pub(crate) fn is_byte(&self, id: u32) -> bool {
        self.token(id)
            .is_some_and(|text| crate::image::byte_of(text).is_some())
    }

    /// Whether the token is special: a control token that never comes out of typed text.
    pub fn is_special(&self, id: u32) -> bool {
        self.specials.binary_search(&id).is_ok()
    }

    /// Ids of all special tokens, ascending.
    pub fn specials(&self) -> &[u32] {
        &self.specials
    }

    /// Bytes this tokenizer keeps resident once all of its image has been touched.
    pub fn resident_bytes(&self) -> usize {
        let lists = size_of_val(&*self.specials) + size_of_val(&*self.special_starts);
        size_of::<Tokenizer>() + lists + self.image.len()
    }

    pub(crate) fn begins_special(&self, c: char) -> bool {
        self.special_starts.binary_search(&c).is_ok()
    }

    fn tables(&self) -> Tables<'_> {
        Tables::new(&self.image, &self.layout)
    }

    /// The ids, and how many symbols and merges were looked at.
    fn encode_counting(&self, text: &str, mode: Mode) -> (Vec<u32>, u64) {
        let mut encoder = Encoder {
            tokenizer: self,
            tables: self.tables(),
            merger: Merger::default(),
            ids: Vec::new(),
        };
        let mut done = 0;
        while mode != Mode::Plain
            && let Some((start, end, id)) = encoder.next_literal(text, done)
        {
            encoder.segment(&text[done..start], mode);
            encoder.ids.push(id);
            done = end;
        }
        encoder.segment(&text[done..], mode);
        (encoder.ids, encoder.merger.steps)
    }
}

impl fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokenizer")
            .field("layout", &self.layout)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Literals,
    Plain,
    Guarded,
}

/// One text on its way to ids.
struct Encoder<'t> {
    tokenizer: &'t Tokenizer,
    tables: Tables<'t>,
    merger: Merger,
    ids: Vec<u32>,
}

impl Encoder<'_> {
    /// The leftmost literal of an added token from a byte on, the longest one there: start, end, id.
    fn next_literal(&self, text: &str, from: usize) -> Option<(usize, usize, u32)> {
        let bytes = text.as_bytes();
        (from..bytes.len())
            .filter(|at| self.tokenizer.added_starts[usize::from(bytes[*at])])
            .find_map(|at| {
                self.literal_at(&bytes[at..])
                    .map(|(len, id)| (at, at + len, id))
            })
    }

    /// The longest literal that these bytes begin with. Narrows the sorted list byte by byte, so a list of thousands costs no more.
    fn literal_at(&self, bytes: &[u8]) -> Option<(usize, u32)> {
        let text = |index: usize| {
            self.tables
                .token(self.tables.added(index).0)
                .unwrap_or("")
                .as_bytes()
        };
        let (mut low, mut high) = (0, self.tokenizer.layout.n_added);
        let mut longest = None;
        for (depth, byte) in bytes.iter().enumerate() {
            // All of low..high begin with the bytes before this one; one that ends here sorts before those that go on.
            let next = |index: usize| text(index).get(depth).copied();
            low = partition(low, high, |i| next(i) < Some(*byte));
            high = partition(low, high, |i| next(i) == Some(*byte));
            if low == high {
                break;
            }
            if text(low).len() == depth + 1 {
                longest = Some((depth + 1, self.tables.added(low).0));
            }
        }
        longest
    }

    fn segment(&mut self, text: &str, mode: Mode) {
        if mode == Mode::Guarded && text.contains(GUARD) {
            self.pieces(&text.replace(GUARD, ""));
        } else {
            self.pieces(text);
        }
    }

    fn pieces(&mut self, text: &str) {
        let mut previous = None;
        for (at, c) in text.char_indices() {
            let c = spaced(c);
            if previous.is_some_and(|before| self.cuts(text, at, before, c)) {
                self.merger.finish_piece(self.tables, &mut self.ids);
            }
            self.merger.push_char(self.tables, c);
            previous = Some(c);
        }
        self.merger.finish_piece(self.tables, &mut self.ids);
    }

    /// Whether no merge can join what stands before and after this place.
    fn cuts(&self, text: &str, at: usize, before: char, after: char) -> bool {
        let flags = self.tokenizer.layout.flags;
        if is_newline_edge(before, after) {
            return flags & CUT_AT_NEWLINES != 0;
        }
        flags & CUT_AT_WORDS != 0 && is_word_start(before, after) && !self.is_spanned(text, at)
    }

    fn is_spanned(&self, text: &str, at: usize) -> bool {
        let begins = |mut text: std::str::Chars<'_>, part: &str| {
            part.chars().all(|c| text.next().map(spaced) == Some(c))
        };
        let ends = |text: std::str::Chars<'_>, part: &str| {
            let mut text = text.rev();
            part.chars()
                .rev()
                .all(|c| text.next().map(spaced) == Some(c))
        };
        (0..self.tokenizer.layout.n_spans).any(|i| {
            let (left, right) = self.tables.span(i);
            ends(text[..at].chars(), left) && begins(text[at..].chars(), right)
        })
    }
}

fn partition(mut low: usize, mut high: usize, is_before: impl Fn(usize) -> bool) -> usize {
    while low < high {
        let middle = low + (high - low) / 2;
        if is_before(middle) {
            low = middle + 1
        } else {
            high = middle
        }
    }
    low
}

fn spaced(c: char) -> char {
    if c == ' ' { SPACE } else { c }
}

/// Where a newline meets anything else.
pub(crate) fn is_newline_edge(before: char, after: char) -> bool {
    (before == '\n') != (after == '\n')
}

/// Where a space follows what is neither a space nor a newline.
pub(crate) fn is_word_start(before: char, after: char) -> bool {
    after == SPACE && before != SPACE && before != '\n'
}

#[cfg(test)]
mod tests;
