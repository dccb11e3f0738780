//! Calls without an opening mark, in the text of an answer.
//!
//! A call begins with `call:NAME{` or `call:NAME(` where no word precedes it, or, at the beginning of a line, with `{"name": "NAME",`; in
//! either case NAME must mean one of the tools. From there on it goes to the bracket that closes the first one; brackets inside
//! strings do not count. What may become a call is held back, everything else goes out at once.

use super::QUOTE;
use super::names::{Names, is_in_name};
use super::read::MAX_NAME_BYTES;
use super::value::is_after_string;
use std::sync::Arc;

/// White space in a row between the parts of a call's beginning.
const MAX_SPACE: usize = 16;

/// What comes out.
pub(super) enum Found<'a> {
    /// Text.
    Text(&'a str),
    /// From the beginning of a call to its closing bracket.
    Call(&'a str),
}

/// What a call's beginning consists of.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// These characters.
    Literal(&'static str),
    /// White space, or none.
    Space,
    /// A tool's name.
    Name,
    /// One of these, which is the last.
    Last(&'static str),
}

/// `call:NAME{`.
const CALL: &[Part] = &[
    Part::Literal("call"),
    Part::Space,
    Part::Literal(":"),
    Part::Space,
    Part::Name,
    Part::Space,
    Part::Last("{("),
];
/// `{"name": "NAME",`, which a list may contain.
const JSON: &[Part] = &[
    Part::Literal("{"),
    Part::Space,
    Part::Literal("\"name\""),
    Part::Space,
    Part::Literal(":"),
    Part::Space,
    Part::Literal("\""),
    Part::Name,
    Part::Literal("\""),
    Part::Space,
    Part::Last(",}"),
];

#[derive(Debug)]
enum State {
    Text,
    /// In a part of a beginning, so many characters into it; the name begins at a byte of what is held.
    Beginning {
        parts: &'static [Part],
        n_chars: usize,
        name_at: usize,
    },
    Call(Brackets),
}

/// Finds the calls.
#[derive(Debug)]
pub(super) struct Finder {
    /// Nothing is looked for without names.
    is_idle: bool,
    longest_name: usize,
    names: Arc<Names>,
    state: State,
    /// What may be a call.
    held: String,
    /// Whether a word, or a line, may begin here.
    begins_word: bool,
    begins_line: bool,
}

impl Finder {
    pub fn new(names: Arc<Names>) -> Finder {
        Finder {
            is_idle: names.is_empty(),
            // A namespace may precede the name.
            longest_name: names.longest() + MAX_NAME_BYTES,
            names,
            state: State::Text,
            held: String::new(),
            begins_word: true,
            begins_line: true,
        }
    }

    /// Whether a call has begun.
    pub fn is_calling(&self) -> bool {
        matches!(self.state, State::Call(_))
    }

    pub fn push(&mut self, text: &str, emit: &mut dyn FnMut(Found<'_>)) {
        if self.is_idle {
            if !text.is_empty() {
                emit(Found::Text(text));
            }
            return;
        }
        // Text from here on was not given out, and is not held.
        let mut free = 0;
        for (at, c) in text.char_indices() {
            let end = at + c.len_utf8();
            let is_held = match &mut self.state {
                State::Call(brackets) => {
                    self.held.push(c);
                    brackets.push(c);
                    true
                }
                State::Beginning { .. } => self.goes_on(c),
                State::Text => false,
            };
            if is_held {
                free = end;
                if matches!(&self.state, State::Call(brackets) if brackets.is_done) {
                    emit(Found::Call(&self.held));
                    self.reset();
                }
                continue;
            }
            if !self.held.is_empty() {
                emit(Found::Text(&self.held));
                self.held.clear();
                free = at;
            }
            if self.begins(c) {
                if free < at {
                    emit(Found::Text(&text[free..at]));
                }
                self.held.push(c);
                free = end;
            }
            self.pass(c);
        }
        if free < text.len() {
            emit(Found::Text(&text[free..]));
        }
    }

    /// Gives out what is held, which has become no call.
    pub fn finish(&mut self, emit: &mut dyn FnMut(Found<'_>)) {
        if !self.held.is_empty() {
            emit(Found::Text(&self.held));
        }
        self.reset();
    }

    fn reset(&mut self) {
        self.held.clear();
        self.state = State::Text;
        (self.begins_word, self.begins_line) = (true, true);
    }

    fn pass(&mut self, c: char) {
        self.begins_word = !(c.is_alphanumeric() || c == '_');
        self.begins_line = c == '\n' || self.begins_line && c.is_whitespace();
    }

    /// Whether a beginning begins with this character; then that is the state.
    fn begins(&mut self, c: char) -> bool {
        let parts = match c {
            'c' if self.begins_word => CALL,
            '{' if self.begins_line => JSON,
            _ => return false,
        };
        // The first character of the first part is read.
        self.state = State::Beginning {
            parts,
            n_chars: 1,
            name_at: 0,
        };
        true
    }

    /// Takes a character that goes on with the beginning that is held. False if it does not; then there is none any more.
    fn goes_on(&mut self, c: char) -> bool {
        let State::Beginning {
            mut parts,
            mut n_chars,
            mut name_at,
        } = self.state
        else {
            return false;
        };
        self.state = State::Text;
        loop {
            let Some((part, others)) = parts.split_first() else {
                return false;
            };
            let takes = match part {
                Part::Literal(text) => match text.chars().nth(n_chars) {
                    Some(expected) if expected == c => true,
                    Some(_) => return false,
                    None => false,
                },
                Part::Space => c.is_whitespace() && n_chars < MAX_SPACE,
                Part::Name => is_in_name(c) && self.held.len() - name_at < self.longest_name,
                Part::Last(text) if text.contains(c) => break,
                Part::Last(_) => return false,
            };
            if takes {
                n_chars += 1;
                break;
            }
            if *part == Part::Name && self.names.resolve(&self.held[name_at..]).is_none() {
                return false;
            }
            (parts, n_chars) = (others, 0);
            if others.first() == Some(&Part::Name) {
                name_at = self.held.len();
            }
        }
        self.held.push(c);
        self.pass(c);
        self.state = if matches!(parts, [Part::Last(_)]) {
            let mut brackets = Brackets::default();
            self.held.chars().for_each(|c| brackets.push(c));
            State::Call(brackets)
        } else {
            State::Beginning {
                parts,
                n_chars,
                name_at,
            }
        };
        true
    }
}

/// Where a scan of brackets is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
enum Place {
    /// Where a value or a key may begin: so many characters of `QUOTE` are read.
    Start(usize),
    /// In a word, or between values.
    #[default]
    Word,
    /// Between two `QUOTE`s, of the second of which so many characters are read.
    Marked(usize),
    /// Between two of these; `true` behind a backslash.
    Quoted(char, bool),
    /// Behind a quote that ends the string if what follows may follow a string.
    Ended(char),
}

/// Counts brackets outside of strings.
#[derive(Debug, Clone, Copy, Default)]
struct Brackets {
    open: usize,
    place: Place,
    /// Whether the bracket that closes the first one is read.
    is_done: bool,
}

impl Brackets {
    fn push(&mut self, c: char) {
        self.place = match self.place {
            Place::Marked(n_read) => {
                let n_read = if QUOTE.chars().nth(n_read) == Some(c) {
                    n_read + 1
                } else {
                    usize::from(c == '<')
                };
                if n_read == QUOTE.len() {
                    Place::Start(0)
                } else {
                    Place::Marked(n_read)
                }
            }
            Place::Quoted(quote, true) => Place::Quoted(quote, false),
            Place::Quoted(quote, false) if c == quote => Place::Ended(quote),
            Place::Quoted(quote, false) => Place::Quoted(quote, c == '\\'),
            Place::Ended(quote) if c.is_whitespace() || c == quote => Place::Ended(quote),
            Place::Ended(quote) if !is_after_string(c) => Place::Quoted(quote, c == '\\'),
            Place::Start(n_read) if QUOTE.chars().nth(n_read) == Some(c) => {
                if n_read + 1 == QUOTE.len() {
                    Place::Marked(0)
                } else {
                    Place::Start(n_read + 1)
                }
            }
            Place::Start(0) if c == '"' || c == '\'' => Place::Quoted(c, false),
            Place::Start(0) if c.is_whitespace() => Place::Start(0),
            Place::Start(_) | Place::Word | Place::Ended(_) => self.outside(c),
        };
    }

    fn outside(&mut self, c: char) -> Place {
        match c {
            '{' | '[' | '(' => {
                self.open += 1;
                Place::Start(0)
            }
            '}' | ']' | ')' => {
                self.open = self.open.saturating_sub(1);
                self.is_done = self.open == 0;
                Place::Start(0)
            }
            ',' | ';' | ':' | '=' => Place::Start(0),
            _ => Place::Word,
        }
    }
}
