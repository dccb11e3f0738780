//! The grammar of tool calls, in the notation that Gemma writes and `call` reads.
//!
//! ```text
//! start   call, or several; or JSON, where it may stand instead
//! call    <|tool_call> "call:" NAME "{" arguments "}" <tool_call|>
//! ```
//!
//! A schema becomes rules; what they produce fulfils it. They may produce less than the schema allows: an object's properties come in
//! the order in which the template shows them, and an object that names its properties gets no others. What cannot be enforced is
//! refused by name: keywords of `keywords::UNSUPPORTED`, `patternProperties`, `prefixItems`, `additionalItems`, `minProperties`,
//! `maxProperties`, an `allOf` of several, and a `pattern` that is not anchored at both ends. `format` is an annotation here, and `oneOf`
//! is `anyOf`.

mod object;
mod scalar;

use super::keywords::{MAX_DEPTH, UNSUPPORTED, leads_nowhere, unsupported};
use super::vocabulary::Ids;
use super::{GrammarError, Unheld, literal};
use crate::conversation::{Tool, escaped, pointed};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fmt::Write;

/// What references point into before there is a schema.
static NO_SCHEMA: Value = Value::Null;

/// Rules of one grammar, references and all.
const MAX_RULES: usize = 20_000;

/// Keywords that the rules cannot express, beyond those that nothing expresses.
const NOT_IN_CALLS: [&str; 5] = [
    "patternProperties",
    "prefixItems",
    "additionalItems",
    "minProperties",
    "maxProperties",
];

/// Keywords that say nothing about which values there are.
const ANNOTATIONS: [&str; 18] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "definitions",
    "deprecated",
    "description",
    "example",
    "examples",
    "format",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];

/// Whether a call of a tool with this name can be read again, as a call of this tool.
pub(super) fn is_callable(name: &str) -> bool {
    let is_in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    !name.is_empty()
        && name.len() <= 64
        && name.chars().all(is_in_name)
        && name.chars().any(|c| c.is_ascii_alphanumeric())
}

/// The grammar, in Lark's notation as llguidance extends it, and the tools that it does not hold to their schemas; `instead` is a schema whose JSON may
/// come in the place of calls.
pub(super) fn grammar(
    tools: &[&Tool],
    ids: Ids,
    several: bool,
    instead: Option<&Value>,
) -> Result<(String, Vec<Unheld>), GrammarError> {
    let mut writer = Writer::new(&NO_SCHEMA, ids);
    let (mut calls, mut unheld) = (Vec::new(), Vec::new());
    for tool in tools {
        let arguments = match &tool.parameters {
            None => "\"{\" \"}\"".to_owned(),
            Some(schema) => arguments(&mut writer, tool, schema, &mut unheld)?,
        };
        let name = literal::text(&tool.name);
        calls.push(writer.rule(&format!("{name} {arguments}"))?);
    }
    let calls = writer.rule(&calls.join(" | "))?;
    let call = format!(
        "<[{}]> \"call:\" {calls} <[{}]>",
        ids.call_opens, ids.call_closes
    );
    let call = writer.rule(&call)?;
    let mut start = if several { format!("{call}+") } else { call };
    if let Some(schema) = instead {
        let json = writer.rule(&format!("%json {schema}"))?;
        start = format!("{json} | {start}");
    }
    Ok((format!("start: {start}\n{}", writer.rules), unheld))
}

/// The arguments of one tool. Where a schema cannot be enforced and need not be, any object will do.
fn arguments<'a>(
    writer: &mut Writer<'a>,
    tool: &Tool,
    schema: &'a Value,
    unheld: &mut Vec<Unheld>,
) -> Result<String, GrammarError> {
    writer.root = schema;
    writer.references.clear();
    let written = writer.rules.len();
    let arguments = match schema {
        Value::Object(map) => writer.arguments(map),
        _ => Err(GrammarError::Schema(
            "the parameters are no schema".to_owned(),
        )),
    };
    match arguments {
        Ok(arguments) => Ok(arguments),
        Err(GrammarError::Unsupported { keyword, path }) if tool.strict => {
            let path = format!("/{}{path}", escaped(&tool.name));
            Err(GrammarError::Unsupported { keyword, path })
        }
        Err(error) if tool.strict => Err(error),
        Err(why) => {
            unheld.push(Unheld {
                tool: tool.name.clone(),
                why,
            });
            writer.rules.truncate(written);
            // What was cut away must not be referred to.
            writer.any = None;
            writer.any_object()
        }
    }
}

/// Writes rules.
struct Writer<'a> {
    /// The schema that references point into.
    root: &'a Value,
    /// The mark around strings.
    quote: String,
    rules: String,
    n_rules: usize,
    /// The rules of schemas that are referred to.
    references: HashMap<&'a str, String>,
    /// The rules of any value and of any object.
    any: Option<(String, String)>,
}

impl<'a> Writer<'a> {
    fn new(root: &'a Value, ids: Ids) -> Writer<'a> {
        Writer {
            root,
            quote: format!("<[{}]>", ids.quote),
            rules: String::new(),
            n_rules: 0,
            references: HashMap::new(),
            any: None,
        }
    }

    /// A rule's name for an expression.
    fn rule(&mut self, expression: &str) -> Result<String, GrammarError> {
        let name = self.name()?;
        self.define(&name, expression);
        Ok(name)
    }

    fn name(&mut self) -> Result<String, GrammarError> {
        if self.n_rules == MAX_RULES {
            let large = format!("it needs more than {MAX_RULES} rules");
            return Err(GrammarError::Schema(large));
        }
        self.n_rules += 1;
        Ok(format!("r{}", self.n_rules))
    }

    fn define(&mut self, name: &str, expression: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.rules, "{name}: {expression}");
    }

    /// The root of a tool's schema, which must be an object's.
    fn arguments(&mut self, map: &'a Map<String, Value>) -> Result<String, GrammarError> {
        let is_open = ["$ref", "anyOf", "oneOf", "allOf"]
            .iter()
            .any(|keyword| map.contains_key(*keyword));
        match map.get("type").and_then(Value::as_str) {
            Some("object") | None if !is_open => {
                refuse(map, "", &object::KEYWORDS)?;
                self.object(map, "", 0)
            }
            None => self.map(map, "", 0),
            Some("object") => self.map(map, "", 0),
            Some(_) => Err(unsupported("type", "")),
        }
    }

    fn value(
        &mut self,
        schema: &'a Value,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        if depth > MAX_DEPTH {
            let deep = format!("it is deeper than {MAX_DEPTH} levels at {path:?}");
            return Err(GrammarError::Schema(deep));
        }
        match schema {
            Value::Bool(true) => self.any_value(),
            Value::Object(map) => self.map(map, path, depth),
            _ => Err(GrammarError::Schema(format!("no value fits at {path:?}"))),
        }
    }

    fn map(
        &mut self,
        map: &'a Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        if let Some(reference) = map.get("$ref") {
            refuse(map, path, &["$ref"])?;
            return self.reference(reference, path, depth);
        }
        for keyword in ["anyOf", "oneOf", "allOf"] {
            let Some(Value::Array(list)) = map.get(keyword) else {
                continue;
            };
            // What stands beside a choice narrows each of its alternatives, which only a type does without saying anything new.
            let allowed = [keyword, "type", "nullable"];
            refuse(map, path, &allowed)?;
            if list.is_empty() || keyword == "allOf" && list.len() > 1 {
                return Err(unsupported(keyword, path));
            }
            if let Some(kind) = map.get("type") {
                let same = |one: &Value| one.get("type") == Some(kind);
                if !list.iter().all(same) {
                    return Err(unsupported("type", path));
                }
            }
            let mut alternatives = Vec::new();
            for (i, one) in list.iter().enumerate() {
                alternatives.push(self.value(one, &format!("{path}/{keyword}/{i}"), depth + 1)?);
            }
            return self.nullable(map, alternatives);
        }
        let values = map
            .get("const")
            .map(std::slice::from_ref)
            .or_else(|| map.get("enum").and_then(Value::as_array).map(Vec::as_slice));
        if let Some(values) = values {
            refuse(map, path, &["const", "enum", "type", "nullable"])?;
            return self.listed(map, values, path);
        }
        let kinds: Vec<&str> = match map.get("type") {
            Some(Value::String(kind)) => vec![kind],
            Some(Value::Array(kinds)) if !kinds.is_empty() => {
                kinds.iter().filter_map(Value::as_str).collect()
            }
            Some(_) => return Err(unsupported("type", path)),
            None => match scalar::implied(map) {
                Some(kind) => vec![kind],
                None => {
                    refuse(map, path, &["nullable"])?;
                    return self.any_value();
                }
            },
        };
        let allowed: Vec<&str> = kinds
            .iter()
            .flat_map(|kind| scalar::keywords(kind))
            .copied()
            .collect();
        refuse(map, path, &allowed)?;
        let mut alternatives = Vec::new();
        for kind in kinds {
            alternatives.push(match kind {
                "object" => self.object(map, path, depth)?,
                "array" => self.array(map, path, depth)?,
                kind => self.scalar(kind, map, path)?,
            });
        }
        self.nullable(map, alternatives)
    }

    /// One of the alternatives, or null where OpenAPI's flag says so.
    fn nullable(
        &mut self,
        map: &Map<String, Value>,
        mut alternatives: Vec<String>,
    ) -> Result<String, GrammarError> {
        if map.get("nullable") == Some(&Value::Bool(true)) {
            alternatives.push("\"null\"".to_owned());
        }
        match alternatives.as_slice() {
            [one] => Ok(one.clone()),
            all => self.rule(&all.join(" | ")),
        }
    }

    fn listed(
        &mut self,
        map: &Map<String, Value>,
        values: &[Value],
        path: &str,
    ) -> Result<String, GrammarError> {
        let fits: Vec<String> = values
            .iter()
            .filter(|value| {
                map.get("type")
                    .is_none_or(|kind| scalar::is_of(value, kind))
            })
            .map(|value| literal::value(value, &self.quote))
            .collect();
        // A string cannot hold the mark that ends it.
        if fits.is_empty() || values.iter().any(literal::holds_quote) {
            let keyword = ["const", "enum"]
                .into_iter()
                .find(|key| map.contains_key(*key));
            return Err(unsupported(keyword.unwrap_or("enum"), path));
        }
        self.nullable(map, fits)
    }

    fn reference(
        &mut self,
        reference: &'a Value,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        let target = reference
            .as_str()
            .and_then(|name| Some((name, pointed(self.root, name)?)));
        let (name, target) = target.ok_or_else(|| leads_nowhere(reference, path))?;
        if let Some(rule) = self.references.get(name) {
            return Ok(rule.clone());
        }
        // Before its body, so that a schema may refer to itself.
        let rule = self.name()?;
        self.references.insert(name, rule.clone());
        let below = name.strip_prefix('#').unwrap_or(name);
        let body = self.value(target, below, depth + 1)?;
        self.define(&rule, &body);
        Ok(rule)
    }

    fn array(
        &mut self,
        map: &'a Map<String, Value>,
        path: &str,
        depth: usize,
    ) -> Result<String, GrammarError> {
        let item = match map.get("items") {
            Some(items) => self.value(items, &format!("{path}/items"), depth + 1)?,
            None => self.any_value()?,
        };
        let least = scalar::count(map, "minItems", path)?.unwrap_or(0);
        let most = scalar::count(map, "maxItems", path)?;
        if most.is_some_and(|most| most < least) {
            return Err(unsupported("maxItems", path));
        }
        if most == Some(0) {
            return Ok("\"[\" \"]\"".to_owned());
        }
        let item = self.rule(&item)?;
        let more = self.rule(&format!("\",\" {item}"))?;
        let (low, high) = (least.max(1) - 1, most.map(|most| most - 1));
        let more = match high {
            None if low == 0 => format!("{more}*"),
            None => format!("{more}{{{low},}}"),
            Some(0) => String::new(),
            Some(high) => format!("{more}{{{low},{high}}}"),
        };
        let items = self.rule(&format!("{item} {more}"))?;
        let items = if least == 0 {
            format!("{items}?")
        } else {
            items
        };
        self.rule(&format!("\"[\" {items} \"]\""))
    }

    fn any_value(&mut self) -> Result<String, GrammarError> {
        Ok(self.any()?.0)
    }

    fn any_object(&mut self) -> Result<String, GrammarError> {
        Ok(self.any()?.1)
    }

    /// The rules of any value and of any object.
    fn any(&mut self) -> Result<(String, String), GrammarError> {
        if let Some(any) = &self.any {
            return Ok(any.clone());
        }
        let (value, object) = (self.name()?, self.name()?);
        let text = self.string_of("/(.|\\n)+/");
        let pair = self.rule(&format!("{} {value}", object::FREE_KEY))?;
        let (pairs, items) = (self.list(&pair)?, self.list(&value)?);
        self.define(&object, &format!("\"{{\" {pairs} \"}}\""));
        let number = scalar::NUMBER;
        let any = format!(
            "{text} | {number} | \"true\" | \"false\" | \"null\" | {object} | \"[\" {items} \"]\""
        );
        self.define(&value, &any);
        Ok(self.any.insert((value, object)).clone())
    }

    /// None or more of something, with commas.
    fn list(&mut self, item: &str) -> Result<String, GrammarError> {
        let more = self.rule(&format!("\",\" {item}"))?;
        let list = self.rule(&format!("{item} {more}*"))?;
        Ok(format!("{list}?"))
    }

    /// A string of what an expression produces, or of nothing.
    fn string_of(&self, inside: &str) -> String {
        format!("{quote} {inside}? {quote}", quote = self.quote)
    }
}

/// Refuses what is neither among these keywords nor an annotation, if it is a keyword at all.
fn refuse(map: &Map<String, Value>, path: &str, allowed: &[&str]) -> Result<(), GrammarError> {
    for (keyword, value) in map {
        let keyword = keyword.as_str();
        if allowed.contains(&keyword) || ANNOTATIONS.contains(&keyword) {
            continue;
        }
        let is_off = keyword == "uniqueItems" && value == &Value::Bool(false);
        let is_known = UNSUPPORTED.contains(&keyword)
            || NOT_IN_CALLS.contains(&keyword)
            || scalar::is_keyword(keyword);
        if is_known && !is_off {
            return Err(unsupported(keyword, path));
        }
    }
    Ok(())
}
