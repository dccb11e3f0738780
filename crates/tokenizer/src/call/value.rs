//! Values as a model writes them: Gemma's notation, JSON, Python's, and mixtures.
//!
//! ```text
//! value   object | array | string | word
//! object  { pairs } or ( pairs )            pair  key : value, key = value; commas between pairs, one may follow
//! array   [ values ] or ( values )
//! string  <|"|> anything <|"|>, or with escapes between " or '
//! word    anything else up to , } ] ) outside of its own brackets: null, true, false, a number, or a text without quotes
//! ```
//!
//! A plain quote ends a string only where something can follow a string; any other one belongs to the text, as in 'it's'.

use super::QUOTE;
use serde_json::{Map, Value};

/// Levels of brackets. JSON of the outside world is limited to 128 too, and reading costs the stack a frame a level.
const MAX_DEPTH: usize = 128;

/// Reads values from a text, from left to right.
pub(super) struct Reader<'a> {
    text: &'a str,
    pub at: usize,
    /// Whether the end of the text is where the model ended it: then brackets that are still open end there too.
    pub is_closed: bool,
}

impl<'a> Reader<'a> {
    pub fn new(text: &'a str, at: usize, is_closed: bool) -> Reader<'a> {
        Reader {
            text,
            at,
            is_closed,
        }
    }

    pub fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    pub fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Skips white space and whatever else of these stands here.
    pub fn skip(&mut self, others: &[char]) {
        let rest = self.rest();
        let kept = rest.trim_start_matches(|c: char| c.is_whitespace() || others.contains(&c));
        self.at += rest.len() - kept.len();
    }

    /// Takes one character, if it is one of these.
    pub fn take(&mut self, expected: &[char]) -> Option<char> {
        let c = self.peek().filter(|c| expected.contains(c))?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn ends_early(&self) -> bool {
        self.is_closed && self.rest().is_empty()
    }

    pub fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > MAX_DEPTH {
            return None;
        }
        self.skip(&[]);
        match self.peek()? {
            '{' => self.object(depth).map(Value::Object),
            '[' => self.array(depth),
            '(' if self.begins_pairs() => self.object(depth).map(Value::Object),
            '(' => self.array(depth),
            _ => match self.string() {
                Some(text) => text.map(Value::String),
                None => self.word(),
            },
        }
    }

    /// Whether a key and its separator follow the bracket.
    fn begins_pairs(&self) -> bool {
        let mut ahead = Reader::new(self.text, self.at + 1, self.is_closed);
        ahead.skip(&[]);
        ahead.key().is_some() && ahead.take(&[':', '=']).is_some()
    }

    /// Pairs between brackets, the opening one included.
    pub fn object(&mut self, depth: usize) -> Option<Map<String, Value>> {
        self.take(&['{', '('])?;
        let mut map = Map::new();
        loop {
            self.skip(&[]);
            if self.ends_early() || self.take(&['}', ')']).is_some() {
                return Some(map);
            }
            let key = self.key()?;
            self.take(&[':', '='])?;
            // `:=`, `=>` and the like.
            self.take(&['=', '>']);
            let value = self.value(depth + 1)?;
            map.insert(key, value);
            self.skip(&[]);
            self.take(&[',', ';']);
        }
    }

    fn array(&mut self, depth: usize) -> Option<Value> {
        self.take(&['[', '('])?;
        let mut items = Vec::new();
        loop {
            self.skip(&[]);
            if self.ends_early() || self.take(&[']', ')']).is_some() {
                return Some(Value::Array(items));
            }
            items.push(self.value(depth + 1)?);
            self.skip(&[]);
            self.take(&[',', ';']);
        }
    }

    /// A key, up to its separator.
    fn key(&mut self) -> Option<String> {
        if let Some(text) = self.string() {
            let text = text?;
            self.skip(&[]);
            return Some(text);
        }
        let rest = self.rest();
        let end = rest.find([':', '=', ',', ';', '{', '}', '[', ']', '(', ')'])?;
        self.at += end;
        let key = rest[..end].trim();
        (!key.is_empty()).then(|| key.to_owned())
    }

    /// A string, if one begins here; `Some(None)` if it does not end.
    pub fn string(&mut self) -> Option<Option<String>> {
        if let Some(inside) = self.rest().strip_prefix(QUOTE) {
            return Some(inside.find(QUOTE).map(|len| {
                self.at += len + 2 * QUOTE.len();
                inside[..len].to_owned()
            }));
        }
        let quote = self.take(&['"', '\''])?;
        Some(self.quoted(quote))
    }

    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        loop {
            let rest = self.rest();
            let at = rest.find([quote, '\\'])?;
            text.push_str(&rest[..at]);
            self.at += at + 1;
            if rest[at..].starts_with('\\') {
                self.escape(&mut text)?;
            } else if may_follow_string(self.rest()) {
                return Some(text);
            } else {
                text.push(quote);
            }
        }
    }

    /// Reads what follows a backslash. One that JSON does not know stays: paths and patterns are often written without doubling it.
    fn escape(&mut self, text: &mut String) -> Option<()> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        let meant = match c {
            'n' => Some('\n'),
            't' => Some('\t'),
            'r' => Some('\r'),
            'b' => Some('\u{8}'),
            'f' => Some('\u{c}'),
            '"' | '\'' | '\\' | '/' => Some(c),
            'u' => self.scalar(),
            _ => None,
        };
        match meant {
            Some(meant) => text.push(meant),
            None => text.extend(['\\', c]),
        }
        Some(())
    }

    /// Four hexadecimal digits, or twice four for a pair of surrogates.
    fn scalar(&mut self) -> Option<char> {
        let unit = |text: &str| u32::from_str_radix(text.get(..4)?, 16).ok();
        let rest = self.rest();
        let first = unit(rest)?;
        if let Some(c) = char::from_u32(first) {
            self.at += 4;
            return Some(c);
        }
        let second = unit(rest.get(4..)?.strip_prefix("\\u")?)?;
        let units = [first as u16, second as u16];
        let c = char::decode_utf16(units).next()?.ok()?;
        self.at += 10;
        Some(c)
    }

    /// A value without quotes.
    fn word(&mut self) -> Option<Value> {
        let rest = self.rest();
        let mut open = 0usize;
        let end = rest.find(|c: char| match c {
            '{' | '[' | '(' => {
                open += 1;
                false
            }
            '}' | ']' | ')' if open > 0 => {
                open -= 1;
                false
            }
            '}' | ']' | ')' => true,
            ',' => open == 0,
            _ => false,
        });
        let end = end.or_else(|| self.is_closed.then_some(rest.len()))?;
        self.at += end;
        let word = rest[..end].trim();
        Some(match word {
            "" => return None,
            "null" | "None" => Value::Null,
            "true" | "True" => Value::Bool(true),
            "false" | "False" => Value::Bool(false),
            _ => match serde_json::from_str(word) {
                Ok(number) => Value::Number(number),
                Err(_) => Value::String(word.to_owned()),
            },
        })
    }
}

/// Whether a string may end before this text.
fn may_follow_string(rest: &str) -> bool {
    rest.trim_start().chars().next().is_none_or(is_after_string)
}

/// The characters that follow a string.
pub(super) fn is_after_string(c: char) -> bool {
    matches!(c, ',' | ';' | ':' | '=' | '}' | ']' | ')')
}
