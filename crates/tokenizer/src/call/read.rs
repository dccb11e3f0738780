//! The calls in a text that holds nothing else, or should.
//!
//! ```text
//! calls   call or JSON, one after another, commas between them or not
//! call    call : NAME arguments, or NAME arguments
//! JSON    {"name": NAME, "arguments": {...}}, a list of these, or either inside {"function": ...}
//! ```

use super::names::is_in_name;
use super::value::Reader;
use super::{CLOSES, OPENS};
use serde_json::{Map, Value};

/// Bytes of a name. The APIs allow 64; a namespace may precede it.
pub(super) const MAX_NAME_BYTES: usize = 256;

/// The keys under which JSON calls have their arguments.
const ARGUMENTS: [&str; 4] = ["arguments", "parameters", "args", "input"];

/// A call as it is written.
pub(super) struct Call {
    pub name: String,
    pub arguments: Map<String, Value>,
}

/// Emits the calls at the beginning of a text with the part of the text each is written in, and returns the text that is left. The parts
/// and the rest add up to the text. With `is_marked`, the text begins with the opening mark and may end with the closing one.
pub(super) fn calls<'a>(
    raw: &'a str,
    is_marked: bool,
    emit: &mut dyn FnMut(&Call, &'a str),
) -> &'a str {
    let begin = if is_marked { OPENS.len() } else { 0 };
    let body = raw[begin..].strip_suffix(CLOSES).filter(|_| is_marked);
    let end = body.map_or(raw.len(), |body| begin + body.len());
    let mut reader = Reader::new(&raw[..end], begin, body.is_some());
    let mut found: Vec<(Vec<Call>, usize)> = Vec::new();
    let is_whole = loop {
        reader.skip(&[',', ';']);
        if reader.rest().is_empty() {
            break true;
        }
        match one(&mut reader) {
            Some(calls) => found.push((calls, reader.at)),
            None => break false,
        }
    };
    if let (true, Some((_, end))) = (is_whole, found.last_mut()) {
        *end = raw.len();
    }
    let mut done = 0;
    for (calls, end) in found {
        // A list is one text and several calls; the first has it.
        let mut part = &raw[done..end];
        done = end;
        for call in &calls {
            emit(call, std::mem::take(&mut part));
        }
    }
    &raw[done..]
}

/// The call or the list of calls that begins here.
fn one(reader: &mut Reader<'_>) -> Option<Vec<Call>> {
    if let Some('{' | '[') = reader.peek() {
        let calls = match reader.value(0)? {
            Value::Array(items) => items
                .into_iter()
                .map(from_json)
                .collect::<Option<Vec<Call>>>()?,
            value => vec![from_json(value)?],
        };
        return (!calls.is_empty()).then_some(calls);
    }
    let (name, is_announced) = name(reader)?;
    reader.skip(&[]);
    let arguments = match reader.peek() {
        Some('{') => reader.object(0)?,
        Some('(') => parenthesised(reader)?,
        // A call of a tool without arguments; a mere word is none.
        None if is_announced && reader.is_closed => Map::new(),
        _ => return None,
    };
    Some(vec![Call { name, arguments }])
}

/// The tool's name, and whether `call:` stands before it.
fn name(reader: &mut Reader<'_>) -> Option<(String, bool)> {
    let mut word = name_word(reader);
    let mut is_announced = false;
    if let Some(rest) = word.strip_prefix("call:") {
        (word, is_announced) = (rest, true);
    } else if word == "call" {
        let at = reader.at;
        reader.skip(&[]);
        is_announced = reader.take(&[':', '=']).is_some();
        if !is_announced {
            reader.at = at;
        }
        word = if is_announced { "" } else { word };
    }
    if word.is_empty() {
        reader.skip(&[]);
        if let Some(text) = reader.string() {
            return text
                .filter(|text| text.len() <= MAX_NAME_BYTES && !text.is_empty())
                .map(|text| (text, is_announced));
        }
        word = name_word(reader);
    }
    let word = word.trim_end_matches(':');
    let is_name = word.chars().any(char::is_alphanumeric) && word.len() <= MAX_NAME_BYTES;
    is_name.then(|| (word.to_owned(), is_announced))
}

fn name_word<'a>(reader: &mut Reader<'a>) -> &'a str {
    let rest = reader.rest();
    let end = rest.find(|c| !is_in_name(c)).unwrap_or(rest.len());
    reader.at += end;
    &rest[..end]
}

/// Arguments between parentheses: pairs, or one object.
fn parenthesised(reader: &mut Reader<'_>) -> Option<Map<String, Value>> {
    let at = reader.at;
    reader.take(&['('])?;
    reader.skip(&[]);
    if reader.peek() != Some('{') {
        reader.at = at;
        return reader.object(0);
    }
    let arguments = reader.object(1)?;
    reader.skip(&[',']);
    let is_closed = reader.take(&[')']).is_some() || reader.is_closed && reader.rest().is_empty();
    is_closed.then_some(arguments)
}

/// A call in JSON.
fn from_json(value: Value) -> Option<Call> {
    let Value::Object(mut map) = value else {
        return None;
    };
    if let Some(function @ Value::Object(_)) = map.get_mut("function") {
        let Value::Object(function) = function.take() else {
            return None;
        };
        map = function;
    }
    let name = ["name", "function", "tool"]
        .iter()
        .find_map(|key| map.get(*key)?.as_str().map(str::to_owned))?;
    let is_name = name.chars().any(char::is_alphanumeric) && name.len() <= MAX_NAME_BYTES;
    let arguments = ARGUMENTS.iter().find_map(|key| map.remove(*key));
    let arguments = match arguments {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(arguments)) => arguments,
        Some(Value::String(text)) => serde_json::from_str(&text).ok()?,
        Some(_) => return None,
    };
    is_name.then_some(Call { name, arguments })
}
