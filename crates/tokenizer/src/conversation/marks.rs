//! Marks around text that the model's template would put in the wrong place, and their removal.
//!
//! The template writes an assistant's text behind its calls and their results, though the model wrote it before them, and it closes a turn
//! behind results only where a text follows; and null comes out as Python spells it. So the text before a call travels in front of the call's name, between two
//! noncharacters, and is moved to where the call begins once the prompt is rendered; and a turn that must be closed carries a
//! third as its text, which vanishes; a fourth stands for null. What the session holds then equals what the template gives, so the prefix is reused.

use serde_json::Value;
use std::borrow::Cow;

/// Begins a text that belongs before the call whose name it precedes.
const BEFORE: char = '\u{FDD1}';
/// Ends it.
const AFTER: char = '\u{FDD2}';
/// A text that is none, so that the template closes the turn.
pub(super) const NOTHING: char = '\u{FDD3}';
/// A value that is null: the model's template writes `None`, its later versions `null`, which the model writes too.
const NULL: &str = "\u{FDD4}";
/// How a template writes a text that is `NULL`.
const NULL_TEXT: &str = "<|\"|>\u{FDD4}<|\"|>";
/// How the template opens a call, up to the name.
const CALL: &str = "<|tool_call>call:";

/// Takes the marks out of a text that came from outside.
pub(super) fn strip(text: &str) -> Cow<'_, str> {
    let is_mark = |c: char| ('\u{FDD1}'..='\u{FDD4}').contains(&c);
    if text.contains(is_mark) {
        Cow::Owned(text.replace(is_mark, ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// A call's name with the text that belongs before the call.
pub(super) fn named(before: &str, name: &str) -> String {
    if before.is_empty() {
        name.to_owned()
    } else {
        format!("{BEFORE}{before}{AFTER}{name}")
    }
}

/// The value with a mark for each null.
pub(super) fn spelled(value: Value) -> Value {
    match value {
        Value::Null => Value::String(NULL.to_owned()),
        Value::Array(items) => items.into_iter().map(spelled).collect(),
        Value::Object(map) => map
            .into_iter()
            .map(|(key, item)| (key, spelled(item)))
            .collect(),
        other => other,
    }
}

/// Moves the marked texts of a rendered prompt to where they belong. Where a template opens calls in another way, they stay before the name.
pub(crate) fn settle(rendered: String) -> String {
    if !rendered.contains([BEFORE, NOTHING, '\u{FDD4}']) {
        return rendered;
    }
    let mut settled = String::with_capacity(rendered.len());
    let mut rest = rendered.as_str();
    while let Some((head, tail)) = rest.split_once(BEFORE) {
        let (text, tail) = tail.split_once(AFTER).unwrap_or((tail, ""));
        match head.strip_suffix(CALL) {
            Some(head) => settled.extend([head, text, CALL]),
            None => settled.extend([head, text]),
        }
        rest = tail;
    }
    settled.push_str(rest);
    settled.replace(NULL_TEXT, "null").replace(NOTHING, "")
}
