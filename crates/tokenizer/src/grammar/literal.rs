//! Texts and values as a Lark grammar writes them.

use crate::call::QUOTE;
use serde_json::Value;

/// A text as a literal of the grammar.
pub(super) fn text(text: &str) -> String {
    let mut literal = String::with_capacity(text.len() + 2);
    literal.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => literal.extend(['\\', c]),
            '\0'..='\u{1f}' | '\u{7f}' => literal.push_str(&format!("\\u{:04x}", c as u32)),
            c => literal.push(c),
        }
    }
    literal.push('"');
    literal
}

/// Whether some text in a value could not be read again.
pub(super) fn holds_quote(value: &Value) -> bool {
    match value {
        Value::String(string) => string.contains(QUOTE),
        Value::Array(items) => items.iter().any(holds_quote),
        Value::Object(map) => map
            .iter()
            .any(|(name, item)| name.contains(QUOTE) || holds_quote(item)),
        _ => false,
    }
}

/// A value in the model's notation, as what the grammar asks for. `quote` is the grammar's name of the mark around strings.
pub(super) fn value(value: &Value, quote: &str) -> String {
    match value {
        Value::String(string) if string.is_empty() => format!("{quote} {quote}"),
        Value::String(string) => format!("{quote} {} {quote}", text(string)),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(|item| self::value(item, quote)).collect();
            format!("\"[\" {} \"]\"", items.join(" \",\" "))
        }
        Value::Object(map) => {
            let mut pairs: Vec<(&String, &Value)> = map.iter().collect();
            pairs.sort_by_key(|(key, _)| key.to_lowercase());
            let pairs: Vec<String> = pairs
                .iter()
                .map(|(name, item)| format!("{} {}", key(name, quote), self::value(item, quote)))
                .collect();
            format!("\"{{\" {} \"}}\"", pairs.join(" \",\" "))
        }
        other => text(&other.to_string()),
    }
}

/// A key and its colon. Keys stand as they are, as the template shows them, unless they could not be read again.
pub(super) fn key(name: &str, quote: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '$' | '@' | '/');
    if !name.is_empty() && name.chars().all(is_plain) {
        return text(&format!("{name}:"));
    }
    format!("{} \":\"", value(&Value::String(name.to_owned()), quote))
}
