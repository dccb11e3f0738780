//! Objects: their properties in the template's order, those that are not required present or not.

use super::Writer;
use crate::conversation::escaped;
use crate::grammar::GrammarError;
use crate::grammar::keywords::unsupported;
use crate::grammar::literal;
use serde_json::{Map, Value};
use std::collections::HashSet;

/// The keywords of an object's schema that are enforced.
pub(super) const KEYWORDS: [&str; 5] = [
    "type",
    "nullable",
    "properties",
    "required",
    "additionalProperties",
];

/// A key that no schema names, and its colon.
pub(super) const FREE_KEY: &str = "/[A-Za-z_][A-Za-z0-9_\\-]{0,63}:/";

static ANY: Value = Value::Bool(true);

impl<'a> Writer<'a> {
    pub(super) fn object(
        &mut self,
        map: &'a Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        let further = map.get("additionalProperties");
        let required: HashSet<&str> = map
            .get("required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        let properties = properties(map, further, &required, path)?;
        if properties.is_empty() {
            return self.free(further, path, depth);
        }
        let mut pairs = Vec::with_capacity(properties.len());
        for (name, schema) in properties {
            let below = format!("{path}/properties/{}", escaped(name));
            let value = self.value(schema, &below, depth + 1)?;
            let pair = self.rule(&format!("{} {value}", literal::key(name, &self.quote)))?;
            pairs.push((pair, required.contains(name)));
        }
        let inside = self.sequence(&pairs)?;
        self.rule(&format!("\"{{\" {inside} \"}}\""))
    }

    /// An object without properties of its own: of any entries, of entries of one schema, or of none.
    fn free(
        &mut self,
        further: Option<&'a Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        match further {
            Some(Value::Bool(false)) => Ok("\"{\" \"}\"".to_owned()),
            None | Some(Value::Bool(true)) => self.any_object(),
            Some(schema) => {
                let below = format!("{path}/additionalProperties");
                let value = self.value(schema, &below, depth + 1)?;
                let pair = self.rule(&format!("{FREE_KEY} {value}"))?;
                let pairs = self.list(&pair)?;
                self.rule(&format!("\"{{\" {pairs} \"}}\""))
            }
        }
    }

    /// Pairs in order, with commas between those that are there. From the last pair to the first, two rules each: what may follow
    /// where something precedes, and where nothing does.
    fn sequence(&mut self, pairs: &[(String, bool)]) -> Result<String, GrammarError> {
        let empty = "\"\"";
        let (mut behind, mut first) = (empty.to_owned(), empty.to_owned());
        for (pair, is_required) in pairs.iter().rev() {
            let with = format!("\",\" {pair} {behind}");
            let alone = format!("{pair} {behind}");
            let (next_behind, next_first) = if *is_required {
                (with, alone)
            } else {
                (format!("{with} | {behind}"), format!("{alone} | {first}"))
            };
            (behind, first) = (self.rule(&next_behind)?, self.rule(&next_first)?);
        }
        Ok(first)
    }
}

/// The properties in the order in which the template shows them. One that is required and not described may be anything.
fn properties<'a>(
    map: &'a Map<String, Value>,
    further: Option<&'a Value>,
    required: &HashSet<&'a str>,
    path: &str,
) -> Result<Vec<(&'a str, &'a Value)>, GrammarError> {
    let described = match map.get("properties") {
        Some(Value::Object(described)) => Some(described),
        Some(_) => return Err(unsupported("properties", path)),
        None => None,
    };
    let mut properties: Vec<(&str, &Value)> = described
        .into_iter()
        .flatten()
        .map(|(name, schema)| (name.as_str(), schema))
        .collect();
    for name in required {
        if described.is_some_and(|described| described.contains_key(*name)) {
            continue;
        }
        match further {
            Some(Value::Bool(false)) => return Err(unsupported("required", path)),
            Some(schema @ Value::Object(_)) => properties.push((*name, schema)),
            _ => properties.push((*name, &ANY)),
        }
    }
    properties.sort_by_cached_key(|(name, _)| (name.to_lowercase(), (*name).to_owned()));
    Ok(properties)
}
