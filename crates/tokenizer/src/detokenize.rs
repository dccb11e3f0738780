//! Ids to text, one id at a time.
//!
//! A token's text is known at once, except for byte tokens: a maximal run of them is decoded as UTF-8 as a whole, and one bad byte turns
//! every byte of the run into U+FFFD. So a run, and nothing else, is held until it ends.

use crate::image::byte_of;
use crate::tokenizer::{SPACE, Tokenizer};

/// Incremental decoding. The concatenated pieces equal `Tokenizer::decode` of all ids, however they are split.
#[derive(Debug)]
pub struct Detokenizer<'t> {
    tokenizer: &'t Tokenizer,
    skip_special: bool,
    /// The bytes of the run that has not ended yet.
    run: Vec<u8>,
    /// The piece handed out last; kept for its capacity.
    piece: String,
}

impl<'t> Detokenizer<'t> {
    /// With `skip_special`, special tokens give no text and do not end a run.
    pub fn new(tokenizer: &'t Tokenizer, skip_special: bool) -> Self {
        Detokenizer {
            tokenizer,
            skip_special,
            run: Vec::new(),
            piece: String::new(),
        }
    }

    /// The text that became known with this id, possibly none. Ids beyond the vocabulary give nothing.
    pub fn push(&mut self, id: u32) -> &str {
        self.push_as(id, self.skip_special)
    }

    /// Like `push`, with its own choice about special tokens.
    pub(crate) fn push_as(&mut self, id: u32, skip_special: bool) -> &str {
        self.piece.clear();
        let skipped = skip_special && self.tokenizer.is_special(id);
        let Some(text) = self.tokenizer.token(id).filter(|_| !skipped) else {
            return "";
        };
        if let Some(byte) = byte_of(text) {
            self.run.push(byte);
            return "";
        }
        self.end_run();
        for (i, part) in text.split(SPACE).enumerate() {
            if i > 0 {
                self.piece.push(' ');
            }
            self.piece.push_str(part);
        }
        &self.piece
    }

    /// Ends a run that is still held; afterwards the next text may begin.
    pub fn finish(&mut self) -> &str {
        self.piece.clear();
        self.end_run();
        &self.piece
    }

    fn end_run(&mut self) {
        match std::str::from_utf8(&self.run) {
            Ok(text) => self.piece.push_str(text),
            Err(_) => self
                .piece
                .extend(self.run.iter().map(|_| char::REPLACEMENT_CHARACTER)),
        }
        self.run.clear();
    }
}

#[cfg(test)]
mod tests;
