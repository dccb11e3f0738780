//! Values as Python shows them: `str`, `repr`, `json.dumps`, and Python's idea of white space and of sequences.
//!
//! A template that prints `None`, `True` or `1e+20` does so by Python's rules, and models were trained on that text.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};

/// Values nest at most this deep in print; what lies deeper is shortened. JSON input is limited to 128 levels by its parser, so only
/// a template that builds a value containing itself gets there.
const MAX_DEPTH: usize = 192;

/// `str(value)`; undefined is empty.
pub(super) fn text(state: &State<'_, '_>, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    match value.as_str() {
        Some(text) => out.push_str(text),
        None => repr(state, &mut out, value, 0)?,
    }
    Ok(out)
}

/// Pays for each value: what contains one part twice, and that again, prints far longer than it is.
fn repr(state: &State<'_, '_>, out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    state.consume_fuel(1)?;
    if depth > MAX_DEPTH {
        out.push_str("...");
        return Ok(());
    }
    match value.kind() {
        ValueKind::Undefined => {}
        ValueKind::None => out.push_str("None"),
        ValueKind::Bool => out.push_str(if value.is_true() { "True" } else { "False" }),
        ValueKind::Number => number(out, value),
        ValueKind::String => quoted(out, value.as_str().unwrap_or("")),
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            for (i, item) in items(value).enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(state, out, &item, depth + 1)?;
            }
            out.push(']');
        }
        ValueKind::Map => {
            out.push('{');
            for (i, (key, item)) in pairs(value).unwrap_or_default().iter().enumerate() {
                out.push_str(if i > 0 { ", " } else { "" });
                repr(state, out, key, depth + 1)?;
                out.push_str(": ");
                repr(state, out, item, depth + 1)?;
            }
            out.push('}');
        }
        // Functions and the like; no conversation holds one.
        kind => {
            out.push('<');
            out.push_str(&kind.to_string());
            out.push('>');
        }
    }
    Ok(())
}

fn items(value: &Value) -> impl Iterator<Item = Value> {
    value.try_iter().into_iter().flatten()
}

/// The pairs of a mapping in its own order.
pub(super) fn pairs(value: &Value) -> Option<Vec<(Value, Value)>> {
    if value.kind() != ValueKind::Map {
        return None;
    }
    let pair = |key: Value| {
        let item = value.get_item(&key).unwrap_or(Value::UNDEFINED);
        (key, item)
    };
    Some(items(value).map(pair).collect())
}

fn number(out: &mut String, value: &Value) {
    match f64::try_from(value.clone()) {
        Ok(number) if !value.is_integer() => out.push_str(&float(number)),
        _ => out.push_str(&value.to_string()),
    }
}

/// `repr` of a float: shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>().unwrap_or(0) {
        exponent @ -4..16 if exponent >= 0 || number != 0.0 => {
            let plain = format!("{number}");
            if plain.contains('.') {
                plain
            } else {
                plain + ".0"
            }
        }
        exponent => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.unsigned_abs())
        }
    }
}

/// `repr` of a string: single quotes unless only they occur inside.
fn quoted(out: &mut String, text: &str) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if c.is_control() && (c as u32) < 0x100 => {
                out.push_str(&format!("\\x{:02x}", c as u32))
            }
            c => out.push(c),
        }
    }
    out.push(quote);
}

/// `json.dumps(value, ensure_ascii=False, indent=indent)`.
pub(super) fn dumps(
    state: &State<'_, '_>,
    value: &Value,
    indent: Option<usize>,
) -> Result<String, Error> {
    let mut out = String::new();
    dump(state, &mut out, value, indent, 0)?;
    Ok(out)
}

fn dump(
    state: &State<'_, '_>,
    out: &mut String,
    value: &Value,
    indent: Option<usize>,
    depth: usize,
) -> Result<(), Error> {
    state.consume_fuel(1)?;
    if depth > MAX_DEPTH {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "tojson: nested too deep",
        ));
    }
    match value.kind() {
        ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => number(out, value),
        ValueKind::String => json_string(out, value.as_str().unwrap_or("")),
        ValueKind::Seq | ValueKind::Iterable => {
            let parts = items(value).map(|item| (None, item)).collect();
            dump_parts(state, out, ['[', ']'], parts, indent, depth)?;
        }
        ValueKind::Map => {
            let parts = pairs(value)
                .unwrap_or_default()
                .into_iter()
                .map(|(key, item)| (Some(key), item))
                .collect();
            dump_parts(state, out, ['{', '}'], parts, indent, depth)?;
        }
        kind => {
            return Err(Error::new(
                ErrorKind::InvalidOperation,
                format!("tojson: a value of type {kind} is not JSON"),
            ));
        }
    }
    Ok(())
}

fn dump_parts(
    state: &State<'_, '_>,
    out: &mut String,
    ends: [char; 2],
    parts: Vec<(Option<Value>, Value)>,
    indent: Option<usize>,
    depth: usize,
) -> Result<(), Error> {
    let line = |out: &mut String, depth: usize| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width.min(16) * depth));
        }
    };
    out.push(ends[0]);
    let some = !parts.is_empty();
    for (i, (key, item)) in parts.into_iter().enumerate() {
        if i > 0 {
            out.push_str(if indent.is_some() { "," } else { ", " });
        }
        line(out, depth + 1);
        if let Some(key) = key {
            json_string(out, &text(state, &key)?);
            out.push_str(": ");
        }
        dump(state, out, &item, indent, depth + 1)?;
    }
    if some {
        line(out, depth);
    }
    out.push(ends[1]);
    Ok(())
}

fn json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// White space as `str.strip` sees it: Unicode's, and the four separators that Unicode calls controls.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Jinja2's test `sequence`: whatever has a length and can be indexed, hence strings and mappings too.
pub(super) fn is_sequence(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::String | ValueKind::Iterable
    )
}
