//! Strings, numbers and the rest, and which keywords belong to which type.

use super::{Writer, object};
use crate::grammar::GrammarError;
use crate::grammar::keywords::unsupported;
use serde_json::{Map, Value, json};

/// A number; the digits are bounded, so that they end.
pub(super) const NUMBER: &str = "/-?(0|[1-9][0-9]{0,14})(\\.[0-9]{1,15})?([eE][+\\-]?[0-9]{1,2})?/";
const INTEGER: &str = "/-?(0|[1-9][0-9]{0,14})/";

/// Repetitions in a pattern that llguidance takes without a large automaton.
const MAX_COUNT: u64 = 4_096;

const STRING: [&str; 5] = ["type", "nullable", "minLength", "maxLength", "pattern"];
const ARRAY: [&str; 5] = ["type", "nullable", "items", "minItems", "maxItems"];
const NUMERIC: [&str; 7] = [
    "type",
    "nullable",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
];

/// The keywords that are enforced for values of a type.
pub(super) fn keywords(kind: &str) -> &'static [&'static str] {
    match kind {
        "string" => &STRING,
        "array" => &ARRAY,
        "integer" | "number" => &NUMERIC,
        "object" => &object::KEYWORDS,
        _ => &["type", "nullable"],
    }
}

/// Whether a keyword narrows values of some type, or chooses between values.
pub(super) fn is_keyword(keyword: &str) -> bool {
    let lists: [&[&str]; 4] = [&STRING, &ARRAY, &NUMERIC, &object::KEYWORDS];
    lists.iter().any(|list| list.contains(&keyword))
        || matches!(
            keyword,
            "$ref" | "anyOf" | "oneOf" | "allOf" | "const" | "enum"
        )
}

/// The type of a schema that names none, by its keywords.
pub(super) fn implied(map: &Map<String, Value>) -> Option<&'static str> {
    let kinds = ["object", "array", "string", "number"];
    kinds.into_iter().find(|kind| {
        let own = keywords(kind)
            .iter()
            .filter(|k| !["type", "nullable"].contains(k));
        own.into_iter().any(|keyword| map.contains_key(*keyword))
    })
}

/// Whether a value is of a type, or of one of several.
pub(super) fn is_of(value: &Value, kind: &Value) -> bool {
    match kind {
        Value::Array(kinds) => kinds.iter().any(|kind| is_of(value, kind)),
        Value::String(kind) => match kind.as_str() {
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "string" => value.is_string(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            "number" => value.is_number(),
            "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
            _ => false,
        },
        _ => false,
    }
}

/// A keyword whose value is a count.
pub(super) fn count(
    map: &Map<String, Value>,
    keyword: &str,
    path: &str,
) -> Result<Option<u64>, GrammarError> {
    match map.get(keyword) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|count| *count <= MAX_COUNT) {
            Some(count) => Ok(Some(count)),
            None => Err(unsupported(keyword, path)),
        },
    }
}

impl Writer<'_> {
    pub(super) fn scalar(
        &mut self,
        kind: &str,
        map: &Map<String, Value>,
        path: &str,
    ) -> Result<String, GrammarError> {
        match kind {
            "string" => self.string(map, path),
            "integer" | "number" => number(kind, map),
            "boolean" => self.rule("\"true\" | \"false\""),
            "null" => Ok("\"null\"".to_owned()),
            _ => Err(unsupported("type", path)),
        }
    }

    fn string(&mut self, map: &Map<String, Value>, path: &str) -> Result<String, GrammarError> {
        let least = count(map, "minLength", path)?;
        let most = count(map, "maxLength", path)?;
        if let Some(pattern) = map.get("pattern") {
            let lengths = least.map(|_| "minLength").or(most.map(|_| "maxLength"));
            if let Some(keyword) = lengths {
                return Err(unsupported(keyword, path));
            }
            let pattern = pattern.as_str().and_then(anchored);
            let pattern = pattern.ok_or_else(|| unsupported("pattern", path))?;
            return Ok(format!("{quote} {pattern} {quote}", quote = self.quote));
        }
        let quote = &self.quote;
        Ok(match (least.unwrap_or(0), most) {
            (0, None) => self.string_of("/(.|\\n)+/"),
            (0, Some(0)) => format!("{quote} {quote}"),
            (0, Some(most)) => self.string_of(&format!("/(.|\\n){{1,{most}}}/")),
            (least, None) => format!("{quote} /(.|\\n){{{least},}}/ {quote}"),
            (least, Some(most)) if least <= most => {
                format!("{quote} /(.|\\n){{{least},{most}}}/ {quote}")
            }
            (_, Some(_)) => return Err(unsupported("maxLength", path)),
        })
    }
}

/// A number; one with limits as llguidance enforces them, whose notation for numbers is the same.
fn number(kind: &str, map: &Map<String, Value>) -> Result<String, GrammarError> {
    let limits: Map<String, Value> = NUMERIC[2..]
        .iter()
        .filter_map(|keyword| Some(((*keyword).to_owned(), map.get(*keyword)?.clone())))
        .collect();
    if limits.is_empty() {
        let all = if kind == "integer" { INTEGER } else { NUMBER };
        return Ok(all.to_owned());
    }
    let mut schema = json!({"type": kind});
    if let Some(map) = schema.as_object_mut() {
        map.extend(limits);
    }
    Ok(format!("%json {schema}"))
}

/// The characters that an escaped letter stands for in JSON schema's patterns, which are not Unicode's.
fn class(letter: char) -> Option<&'static str> {
    match letter {
        'd' => Some("0-9"),
        'w' => Some("A-Za-z0-9_"),
        's' => Some(" \\t"),
        _ => None,
    }
}

/// A pattern between `^` and `$` as the grammar writes one. Others would need what the grammar's expressions cannot say.
fn anchored(pattern: &str) -> Option<String> {
    let inside = pattern.strip_prefix('^')?.strip_suffix('$')?;
    let (mut depth, mut is_escaped, mut in_class) = (0u32, false, false);
    let mut expression = String::from("/");
    for (at, c) in inside.char_indices() {
        if c.is_control() {
            return None;
        }
        if is_escaped {
            is_escaped = false;
            expression.pop();
            match class(c) {
                Some(class) if in_class => expression.push_str(class),
                Some(class) => expression.extend(["[", class, "]"]),
                // Any other letter means something that a regular expression does not say, or not the same everywhere.
                None if c.is_ascii_alphanumeric() && !"nrt".contains(c) => return None,
                None => expression.extend(['\\', c]),
            }
            continue;
        }
        match c {
            '\\' => is_escaped = true,
            '/' => expression.push('\\'),
            '[' => in_class = true,
            ']' => in_class = false,
            _ if in_class => {}
            '(' => {
                depth += 1;
                let group = &inside[at + 1..];
                if group.starts_with('?') && !group.starts_with("?:") {
                    return None;
                }
            }
            ')' => depth = depth.checked_sub(1)?,
            '^' | '$' => return None,
            '|' if depth == 0 => return None,
            _ => {}
        }
        expression.push(c);
    }
    let is_whole = !is_escaped && !in_class && depth == 0;
    (is_whole && !inside.is_empty()).then(|| expression + "/")
}
