//! Control text typed by a user never becomes a control token.
//!
//! A template writes control tokens as text, so after rendering a user's `<turn|>` would look like the template's own. Before rendering,
//! U+FDD0 is put behind every character that could begin a special token in text that is not the template's: then no literal can begin
//! there, whatever the template trims, splits or joins, and `Tokenizer::encode_guarded` drops the marks. Only a template that itself
//! writes part of a literal right before a user's text could still complete one; Gemma's templates write literals whole.
//!
//! Templates cut the thoughts out of an assistant's earlier answers by looking for `<|channel>` and `<channel|>`, so in the content of
//! assistant messages those two stay as they are.

use crate::tokenizer::{GUARD, Tokenizer};
use serde_json::Value;
use std::borrow::Cow;

/// Literals that a template must recognise in an assistant's earlier answers.
const CHANNEL: [&str; 2] = ["<|channel>", "<channel|>"];

/// Marks a text so that nothing in it becomes a special token in `Tokenizer::encode_guarded`.
pub fn guard_control_text(tokenizer: &Tokenizer, text: &str) -> String {
    let mut guarded = String::with_capacity(text.len());
    for c in text.chars().filter(|c| *c != GUARD) {
        guarded.push(c);
        if tokenizer.begins_special(c) {
            guarded.push(GUARD);
        }
    }
    guarded
}

/// Takes the marks out again, for text that is shown instead of encoded.
pub fn strip_guards(text: &str) -> Cow<'_, str> {
    if text.contains(GUARD) {
        Cow::Owned(text.replace(GUARD, ""))
    } else {
        Cow::Borrowed(text)
    }
}

/// Guards every string of a JSON value, keys of objects included: for tool declarations and whatever else reaches a template.
pub fn guard_json(tokenizer: &Tokenizer, value: &mut Value) {
    match value {
        Value::String(text) => *text = guard_control_text(tokenizer, text),
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| guard_json(tokenizer, item)),
        Value::Object(map) => {
            let entries = std::mem::take(map).into_iter();
            *map = entries
                .map(|(key, mut item)| {
                    guard_json(tokenizer, &mut item);
                    (guard_control_text(tokenizer, &key), item)
                })
                .collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Guards a list of chat messages; the content of assistant messages keeps its channel markers.
pub fn guard_messages(tokenizer: &Tokenizer, messages: &mut Value) {
    let Value::Array(messages) = messages else {
        return guard_json(tokenizer, messages);
    };
    for message in messages {
        let is_answer = matches!(message["role"].as_str(), Some("assistant" | "model"));
        let content = message
            .get_mut("content")
            .filter(|_| is_answer)
            .map(Value::take);
        guard_json(tokenizer, message);
        if let Some(mut content) = content {
            guard_answer(tokenizer, &mut content);
            message["content"] = content;
        }
    }
}

/// Guards the content of an assistant message: a text, or a list of parts.
fn guard_answer(tokenizer: &Tokenizer, content: &mut Value) {
    match content {
        Value::String(text) => *text = guard_between_channels(tokenizer, text),
        Value::Array(parts) => {
            for part in parts {
                let text = part.get_mut("text").map(Value::take);
                guard_json(tokenizer, part);
                if let Some(mut text) = text {
                    guard_answer(tokenizer, &mut text);
                    part["text"] = text;
                }
            }
        }
        other => guard_json(tokenizer, other),
    }
}

fn guard_between_channels(tokenizer: &Tokenizer, text: &str) -> String {
    // Marks that a user brought along would hide a literal from the search.
    let text = strip_guards(text);
    let (mut guarded, mut rest) = (String::with_capacity(text.len()), &*text);
    while let Some((at, literal)) = next_channel_literal(rest) {
        guarded.push_str(&guard_control_text(tokenizer, &rest[..at]));
        guarded.push_str(literal);
        rest = &rest[at + literal.len()..];
    }
    guarded + &guard_control_text(tokenizer, rest)
}

fn next_channel_literal(text: &str) -> Option<(usize, &'static str)> {
    CHANNEL
        .iter()
        .filter_map(|literal| text.find(literal).map(|at| (at, *literal)))
        .min()
}
