//! Methods of Python strings, dicts and lists that chat templates call.
//!
//! minijinja has none of its own. The list is the one that chat templates in the wild use; an unknown method is an error that names it.

use super::python;
use minijinja::value::{ValueKind, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// minijinja's hook for a method it does not know.
pub(super) fn call(
    state: &mut State<'_, '_>,
    value: &Value,
    method: &str,
    args: &[Value],
) -> Result<Value, Error> {
    match (value.kind(), value.as_str()) {
        (_, Some(text)) => string(state, text, method, args),
        (ValueKind::Map, _) => mapping(value, method, args),
        _ => Err(unknown(value, method)),
    }
}

fn unknown(value: &Value, method: &str) -> Error {
    Error::new(
        ErrorKind::UnknownMethod,
        format!("{} has no method named {method}", value.kind()),
    )
}

fn mapping(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let pairs = || python::pairs(value).unwrap_or_default().into_iter();
    if method == "get" {
        let (key, default): (&Value, Option<Value>) = from_args(args)?;
        let found = value.get_item(key)?;
        return Ok(if found.is_undefined() {
            default.unwrap_or_else(|| Value::from(()))
        } else {
            found
        });
    }
    let () = from_args(args)?;
    match method {
        "items" => Ok(pairs()
            .map(|(key, item)| Value::from(vec![key, item]))
            .collect()),
        "keys" => Ok(pairs().map(|(key, _)| key).collect()),
        "values" => Ok(pairs().map(|(_, item)| item).collect()),
        _ => Err(unknown(value, method)),
    }
}

fn string(state: &State<'_, '_>, text: &str, method: &str, args: &[Value]) -> Result<Value, Error> {
    match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            let stripped =
                |c: char| chars.map_or_else(|| python::is_space(c), |chars| chars.contains(c));
            Ok(Value::from(match method {
                "strip" => text.trim_matches(stripped),
                "lstrip" => text.trim_start_matches(stripped),
                _ => text.trim_end_matches(stripped),
            }))
        }
        "split" => {
            let (separator, limit): (Option<&str>, Option<i64>) = from_args(args)?;
            split(text, separator, limit)
        }
        "startswith" | "endswith" => {
            let (parts,): (&Value,) = from_args(args)?;
            let found = |part: &str| {
                if method == "startswith" {
                    text.starts_with(part)
                } else {
                    text.ends_with(part)
                }
            };
            match parts.as_str() {
                Some(part) => Ok(Value::from(found(part))),
                None => Ok(Value::from(
                    parts
                        .try_iter()?
                        .any(|part| part.as_str().is_some_and(found)),
                )),
            }
        }
        "replace" => {
            let (old, new, limit): (&str, &str, Option<i64>) = from_args(args)?;
            replace(state, text, old, new, limit)
        }
        "join" => {
            let (parts,): (&Value,) = from_args(args)?;
            join(state, text, parts)
        }
        "find" | "count" => {
            let (part,): (&str,) = from_args(args)?;
            Ok(match (method, text.find(part)) {
                ("count", _) => Value::from(text.matches(part).count()),
                (_, Some(at)) => Value::from(text[..at].chars().count()),
                (_, None) => Value::from(-1),
            })
        }
        _ => {
            let () = from_args(args)?;
            match method {
                "upper" => Ok(Value::from(text.to_uppercase())),
                "lower" => Ok(Value::from(text.to_lowercase())),
                "capitalize" => Ok(Value::from(capitalized(text))),
                "title" => Ok(Value::from(titled(text))),
                "splitlines" => Ok(text.lines().map(Value::from).collect()),
                "isdigit" => Ok(Value::from(
                    !text.is_empty() && text.chars().all(char::is_numeric),
                )),
                _ => Err(unknown(&Value::from(text), method)),
            }
        }
    }
}

/// Without a separator: at runs of white space, none of which gives an empty part.
fn split(text: &str, separator: Option<&str>, limit: Option<i64>) -> Result<Value, Error> {
    let cuts = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX);
    match separator {
        Some("") => Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        Some(separator) => Ok(text
            .splitn(cuts.saturating_add(1), separator)
            .map(Value::from)
            .collect()),
        None => {
            let mut rest = text.trim_start_matches(python::is_space);
            let mut parts = Vec::new();
            while !rest.is_empty() {
                let end = if parts.len() < cuts {
                    rest.find(python::is_space)
                } else {
                    None
                };
                let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
                parts.push(Value::from(part));
                rest = after.trim_start_matches(python::is_space);
            }
            Ok(Value::from(parts))
        }
    }
}

/// Pays for the result before it exists: a short template could otherwise double a text again and again.
fn replace(
    state: &State<'_, '_>,
    text: &str,
    old: &str,
    new: &str,
    limit: Option<i64>,
) -> Result<Value, Error> {
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .unwrap_or(usize::MAX);
    let count = (text.len() / old.len().max(1) + 1).min(limit);
    state.consume_fuel((count.saturating_mul(new.len()) / 64) as u64)?;
    Ok(Value::from(text.replacen(old, new, limit)))
}

fn join(state: &State<'_, '_>, separator: &str, parts: &Value) -> Result<Value, Error> {
    let mut joined = String::new();
    for (i, part) in parts.try_iter()?.enumerate() {
        let before = joined.len();
        if i > 0 {
            joined.push_str(separator);
        }
        joined.push_str(&python::text(state, &part)?);
        state.consume_fuel(1 + (joined.len() - before) as u64 / 64)?;
    }
    Ok(Value::from(joined))
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    match chars.next() {
        Some(first) => first
            .to_uppercase()
            .chain(chars.as_str().to_lowercase().chars())
            .collect(),
        None => String::new(),
    }
}

/// Every run of letters begins upper case and goes on lower case.
fn titled(text: &str) -> String {
    let mut titled = String::with_capacity(text.len());
    let mut in_word = false;
    for c in text.chars() {
        if in_word {
            titled.extend(c.to_lowercase())
        } else {
            titled.extend(c.to_uppercase())
        }
        in_word = c.is_alphabetic();
    }
    titled
}
