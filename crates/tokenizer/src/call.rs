//! Tool calls in what a model writes.
//!
//! Gemma writes `<|tool_call>call:NAME{key:value,...}<tool_call|>`, strings between `<|"|>`. It drifts from that: other brackets, other
//! quotes, JSON, no opening mark. `ToolCallParser` takes the text piece by piece and gives back calls and text; what is no call is text,
//! and every byte that went in comes out in the one or the other. How the text was cut makes no difference.
//!
//! Between marks the text is collected and read as a whole when the closing one comes, by `read`: a call that is not complete must not be
//! run, so nothing is lost by waiting. Outside of marks a call is only looked for where the tools' names are known (`find`), because prose
//! may well say `call:`. Each byte is looked at a fixed number of times.

mod find;
mod names;
mod read;
mod value;

use find::{Finder, Found};
use names::Names;
use serde_json::{Map, Value};
use std::sync::Arc;

pub(crate) const OPENS: &str = "<|tool_call>";
pub(crate) const CLOSES: &str = "<tool_call|>";
/// The mark on both sides of a string.
pub(crate) const QUOTE: &str = "<|\"|>";

/// What the parser found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Piece<'a> {
    /// Text that is no call.
    Text(&'a str),
    /// A call.
    Call {
        /// The tool's name, as the list of tools has it if one of them fits.
        name: &'a str,
        /// The arguments.
        arguments: &'a Map<String, Value>,
        /// What was written, marks included.
        raw: &'a str,
    },
}

/// Finds tool calls in a text that comes in pieces; see the module.
#[derive(Debug)]
pub struct ToolCallParser {
    names: Arc<Names>,
    finder: Finder,
    /// The text between the marks so far, the opening one included; empty outside of marks.
    marked: String,
}

impl ToolCallParser {
    /// A parser for calls of these tools. Without any, only calls between marks are found, and their names stay as they are written.
    pub fn new(tools: &[String]) -> ToolCallParser {
        let names = Arc::new(Names::new(tools));
        ToolCallParser {
            finder: Finder::new(Arc::clone(&names)),
            names,
            marked: String::new(),
        }
    }

    /// Takes text; between marks, it may spell `<|"|>`.
    pub fn push(&mut self, text: &str, emit: &mut dyn FnMut(Piece<'_>)) {
        if self.is_marked() {
            self.marked.push_str(text);
            return;
        }
        let names = &self.names;
        self.finder.push(text, &mut |found| match found {
            Found::Text(text) => emit(Piece::Text(text)),
            Found::Call(raw) => read_all(raw, names, false, emit),
        });
    }

    /// Takes the mark that begins a call. A call that is open already ends here.
    pub fn open(&mut self, emit: &mut dyn FnMut(Piece<'_>)) {
        self.finish(emit);
        self.marked.push_str(OPENS);
    }

    /// Takes the mark that ends a call. One that ends nothing is no text either.
    pub fn close(&mut self, emit: &mut dyn FnMut(Piece<'_>)) {
        if self.is_marked() {
            self.marked.push_str(CLOSES);
            self.finish(emit);
        }
    }

    /// Takes the end of the text, and what is still held back; then the next text may begin.
    pub fn finish(&mut self, emit: &mut dyn FnMut(Piece<'_>)) {
        if self.is_marked() {
            let marked = std::mem::take(&mut self.marked);
            read_all(&marked, &self.names, true, emit);
            self.marked = marked;
            self.marked.clear();
            return;
        }
        let names = &self.names;
        self.finder.finish(&mut |found| match found {
            Found::Text(text) => emit(Piece::Text(text)),
            Found::Call(raw) => read_all(raw, names, false, emit),
        });
    }

    /// Whether a call has begun, between marks or not: then `<|"|>` belongs to it.
    pub fn is_calling(&self) -> bool {
        self.is_marked() || self.finder.is_calling()
    }

    /// Forgets a call that has begun between marks.
    pub fn discard(&mut self) {
        self.marked.clear();
    }

    /// Whether the text is between marks.
    pub fn is_marked(&self) -> bool {
        !self.marked.is_empty()
    }
}

/// Emits the calls of a text in order and whatever else it holds as text. Adds up to the text.
fn read_all(raw: &str, names: &Names, is_marked: bool, emit: &mut dyn FnMut(Piece<'_>)) {
    let rest = read::calls(raw, is_marked, &mut |call, raw| {
        let name = names.resolve(&call.name);
        emit(Piece::Call {
            name: name.unwrap_or(&call.name),
            arguments: &call.arguments,
            raw,
        });
    });
    if !rest.is_empty() {
        emit(Piece::Text(rest));
    }
}

#[cfg(test)]
mod tests;
