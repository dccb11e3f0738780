//! The code, the literals and the comments of a Rust text, each by itself, and the functions in it.
//!
//! A scanner of some hundred lines instead of a parser: it knows comments, strings and character literals, which is all that stands
//! between a text and its braces.

/// What a piece of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Neither of the others.
    Code,
    /// A string or a character, quotation marks included.
    Literal,
    /// A comment, documentation included.
    Comment,
}

/// `text` with everything but one kind blanked; lines stay where they are.
pub fn only(kind: Kind, text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut masked = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let (found, end) = piece(&chars, at);
        let end = end.min(chars.len());
        let blank = |&c: &char| if c == '\n' || found == kind { c } else { ' ' };
        masked.extend(chars[at..end].iter().map(blank));
        at = end;
    }
    masked
}

/// What starts at `at`, and where it ends.
fn piece(chars: &[char], at: usize) -> (Kind, usize) {
    let next = chars.get(at + 1).copied();
    let raw = || end_of_raw(chars, at + 1).map(|end| (Kind::Literal, end));
    let code = (Kind::Code, at + 1);
    match (chars[at], next) {
        ('/', Some('/')) => (Kind::Comment, find(chars, at, |rest| rest[0] == '\n')),
        ('/', Some('*')) => (Kind::Comment, end_of_comment(chars, at)),
        ('"', _) => (Kind::Literal, end_of_string(chars, at + 1)),
        ('r', Some('"' | '#')) if !is_in_word(chars, at) => raw().unwrap_or(code),
        ('\'', Some('\\')) => (
            Kind::Literal,
            find(chars, at + 3, |rest| rest[0] == '\'') + 1,
        ),
        // A lifetime has no quotation mark two places on.
        ('\'', Some(_)) if chars.get(at + 2) == Some(&'\'') => (Kind::Literal, at + 3),
        _ => code,
    }
}

fn end_of_comment(chars: &[char], start: usize) -> usize {
    let (mut at, mut depth) = (start, 0_usize);
    while at < chars.len() {
        match (chars[at], chars.get(at + 1)) {
            ('/', Some('*')) => (at, depth) = (at + 2, depth + 1),
            ('*', Some('/')) => (at, depth) = (at + 2, depth - 1),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn end_of_string(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() && chars[at] != '"' {
        at += if chars[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// `at` is behind the `r`; a raw identifier is no string.
fn end_of_raw(chars: &[char], at: usize) -> Option<usize> {
    let n = chars[at..].iter().take_while(|&&c| c == '#').count();
    if chars.get(at + n) != Some(&'"') {
        return None;
    }
    let closes =
        |rest: &[char]| rest[0] == '"' && rest.len() > n && rest[1..=n].iter().all(|&c| c == '#');
    Some(find(chars, at + n + 1, closes) + 1 + n)
}

fn find(chars: &[char], from: usize, is_it: impl Fn(&[char]) -> bool) -> usize {
    (from..chars.len())
        .find(|&at| is_it(&chars[at..]))
        .unwrap_or(chars.len())
}

fn is_in_word(chars: &[char], at: usize) -> bool {
    // `br"…"` is a string too, and its `b` does no harm.
    at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_') && chars[at - 1] != 'b'
}

/// Whether `word` stands in `text` by itself, not as a part of another.
pub fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part)
    })
}

/// Whether `start` stands in `text` where a word begins.
pub fn begins_word(text: &str, start: &str) -> bool {
    text.match_indices(start)
        .any(|(at, _)| !text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

/// The functions of a masked text: name, first line from 1, number of lines from the signature to the closing brace.
pub fn functions(masked: &str) -> Vec<(String, usize, usize)> {
    let mut found = Vec::new();
    for (at, _) in masked.match_indices("fn ") {
        if masked[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let name: String = masked[at + 3..]
            .chars()
            .take_while(|&c| c.is_alphanumeric() || c == '_')
            .collect();
        let Some(length) = length_of(&masked[at..]) else {
            continue;
        };
        if !name.is_empty() {
            found.push((name, masked[..at].matches('\n').count() + 1, length));
        }
    }
    found
}

/// Lines up to the brace that closes the body; a declaration without one has none. A semicolon inside brackets is part of a type.
fn length_of(text: &str) -> Option<usize> {
    let (mut braces, mut brackets, mut lines) = (0, 0, 1);
    for c in text.chars() {
        match c {
            '\n' => lines += 1,
            '[' | '(' => brackets += 1,
            ']' | ')' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(lines);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests;
