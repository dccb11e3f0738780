//! Keywords of JSON schema that llguidance does not enforce, found before it is asked.

use super::GrammarError;
use crate::conversation::{escaped, pointed};
use serde_json::Value;

/// Keywords that narrow a value and cannot be enforced.
pub(super) const UNSUPPORTED: [&str; 18] = [
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "propertyNames",
    "uniqueItems",
    "$dynamicRef",
    "$recursiveRef",
    "contentSchema",
    "extends",
];

/// Formats that llguidance knows.
const FORMATS: [&str; 10] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "uuid",
    "uri",
];

/// Keywords whose value is a schema, a list of schemas, or a map of schemas.
const SCHEMAS: [&str; 11] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "anyOf",
    "oneOf",
    "allOf",
    "prefixItems",
    "properties",
    "patternProperties",
    "$defs",
    "definitions",
];

/// Levels of a schema.
pub(super) const MAX_DEPTH: usize = 64;

/// Refuses the first keyword that cannot be enforced.
pub(super) fn check(schema: &Value) -> Result<(), GrammarError> {
    check_at(schema, schema, "", 0)
}

pub(super) fn unsupported(keyword: &str, path: &str) -> GrammarError {
    GrammarError::Unsupported {
        keyword: keyword.to_owned(),
        path: path.to_owned(),
    }
}

/// What is wrong with a reference that cannot be followed.
pub(super) fn leads_nowhere(reference: &Value, path: &str) -> GrammarError {
    let is_inside = reference.as_str().is_some_and(|name| name.starts_with('#'));
    if !is_inside {
        return unsupported("$ref", path);
    }
    GrammarError::Schema(format!("the $ref {reference} at {path:?} leads nowhere"))
}

fn check_at(root: &Value, schema: &Value, path: &str, depth: usize) -> Result<(), GrammarError> {
    if depth > MAX_DEPTH {
        let deep = format!("it is deeper than {MAX_DEPTH} levels at {path:?}");
        return Err(GrammarError::Schema(deep));
    }
    let Value::Object(map) = schema else {
        return Ok(());
    };
    for (keyword, value) in map {
        let is_off = keyword == "uniqueItems" && value == &Value::Bool(false);
        if UNSUPPORTED.contains(&keyword.as_str()) && !is_off {
            return Err(unsupported(keyword, path));
        }
        let is_format = |value: &Value| value.as_str().is_some_and(|name| FORMATS.contains(&name));
        if keyword == "format" && !is_format(value) {
            return Err(unsupported(keyword, path));
        }
        let leads = |value: &Value| {
            value
                .as_str()
                .and_then(|name| pointed(root, name))
                .is_some()
        };
        if keyword == "$ref" && !leads(value) {
            return Err(leads_nowhere(value, path));
        }
        if !SCHEMAS.contains(&keyword.as_str()) {
            continue;
        }
        let below = format!("{path}/{keyword}");
        let is_map = ["properties", "patternProperties", "$defs", "definitions"];
        match value {
            Value::Array(list) => {
                for (i, one) in list.iter().enumerate() {
                    check_at(root, one, &format!("{below}/{i}"), depth + 1)?;
                }
            }
            Value::Object(entries) if is_map.contains(&keyword.as_str()) => {
                for (name, one) in entries {
                    check_at(root, one, &format!("{below}/{}", escaped(name)), depth + 1)?;
                }
            }
            one => check_at(root, one, &below, depth + 1)?,
        }
    }
    Ok(())
}
