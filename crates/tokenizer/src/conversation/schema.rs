//! Tool declarations as the template can show them.
//!
//! The template knows a schema of one type a value: descriptions, enumerations of texts, nullable, items, properties, required. What a
//! client brings is any JSON schema, or anything at all. It is unfolded into that shape: references are followed until they repeat,
//! alternatives are merged, and what has no place goes into the description, where the model reads it too. Limits on depth, nodes and
//! text bound what a schema that refers to itself, or unfolds without end, can cost.

mod merge;
mod shown;

use super::{Tool, Warning};
use serde_json::{Map, Value, json};
use shown::Shown;

/// Levels that are shown. Tools of real agents have at most seven; the template's macros recurse once a level.
const MAX_DEPTH: usize = 16;
/// Schemas that are shown in all tools together: 100 KB of 40 tools hold about 2,000, and the template's fuel is enough for 40,000.
const MAX_NODES: usize = 8_192;
/// Bytes of names and descriptions in all tools together. References repeat a text as often as they repeat.
const MAX_TEXT_BYTES: usize = 4 << 20;
/// What a text counts beyond its bytes: the template's fuel is enough for some 80,000 entries of lists, this leaves it 32,000.
const TEXT_OVERHEAD: usize = 128;
/// Types of one value that are named, and characters of a property's name in a warning's path.
const MAX_KINDS: usize = 8;
const MAX_STEP_CHARS: usize = 64;
/// Warnings a tool; one that has more is not understood better for it.
const MAX_WARNINGS: usize = 16;

/// The list of declarations. Never fails: what cannot be shown is left out, with a warning.
pub(super) fn declarations(
    tools: &[Tool],
    guard: &dyn Fn(&str) -> String,
    warnings: &mut Vec<Warning>,
) -> Value {
    let (mut nodes, mut text_bytes) = (MAX_NODES, MAX_TEXT_BYTES);
    let declarations = tools.iter().map(|tool| {
        let description = guard(tool.description.as_deref().unwrap_or(""));
        let mut function = json!({"name": guard(&tool.name), "description": description});
        if let Some(root) = &tool.parameters {
            let mut unfolding = Unfolding {
                root,
                guard,
                open: Vec::new(),
                nodes,
                text_bytes,
                warnings: Vec::new(),
            };
            function["parameters"] = unfolding.parameters();
            (nodes, text_bytes) = (unfolding.nodes, unfolding.text_bytes);
            warnings.extend(unfolding.warnings.into_iter().map(|(path, what)| {
                let tool = tool.name.clone();
                Warning::Schema { tool, path, what }
            }));
        }
        json!({"type": "function", "function": function})
    });
    declarations.collect()
}

/// One tool's schema on its way.
struct Unfolding<'a> {
    root: &'a Value,
    guard: &'a dyn Fn(&str) -> String,
    /// The references that are being followed.
    open: Vec<&'a str>,
    nodes: usize,
    text_bytes: usize,
    warnings: Vec<(String, &'static str)>,
}

/// Keywords whose meaning the template has no place for, and which a description does not tell either.
const NOT_SHOWN: [&str; 12] = [
    "not",
    "if",
    "patternProperties",
    "propertyNames",
    "dependentSchemas",
    "dependentRequired",
    "dependencies",
    "contains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "$dynamicRef",
    "$recursiveRef",
];

impl<'a> Unfolding<'a> {
    fn parameters(&mut self) -> Value {
        let mut shown = self.show(self.root, "", 0);
        if shown.kind != "object" {
            let is_any = shown.kind == shown::ANY;
            if !is_any {
                self.warn("", "the arguments are no object");
            }
            shown = Shown::of("object");
        }
        shown.to_json()
    }

    fn warn(&mut self, path: &str, what: &'static str) {
        if self.warnings.len() < MAX_WARNINGS {
            self.warnings.push((path.to_owned(), what));
        }
    }

    fn show(&mut self, schema: &'a Value, path: &str, depth: usize) -> Shown {
        if self.nodes == 0 || depth > MAX_DEPTH {
            self.warn(path, "too deep or too large to be shown");
            return Shown::any();
        }
        self.nodes -= 1;
        let Value::Object(map) = schema else {
            if !schema.is_boolean() {
                self.warn(path, "a schema that is no object");
            }
            return Shown::any();
        };
        let mut shown = self.own(map, path, depth);
        if let Some(reference) = map.get("$ref") {
            let target = self.follow(reference, path, depth);
            shown.narrow(target);
        }
        for (i, part) in list(map, "allOf").enumerate() {
            let part = self.show(part, &format!("{path}/allOf/{i}"), depth + 1);
            shown.narrow(part);
        }
        for keyword in ["anyOf", "oneOf"] {
            let alternatives: Vec<Shown> = list(map, keyword)
                .enumerate()
                .map(|(i, one)| self.show(one, &format!("{path}/{keyword}/{i}"), depth + 1))
                .collect();
            let (union, is_whole) = merge::union(alternatives);
            if !is_whole {
                self.warn(path, "a choice of several types");
            }
            if let Some(union) = union {
                shown.narrow(union);
            }
        }
        shown
    }

    /// What the schema says itself, without the schemas that it refers to or combines.
    fn own(&mut self, map: &'a Map<String, Value>, path: &str, depth: usize) -> Shown {
        let mut shown = Shown::any();
        self.read_type(&mut shown, map, path);
        shown.description = map
            .get("description")
            .or_else(|| map.get("title"))
            .and_then(Value::as_str)
            .map_or_else(String::new, |text| self.text(text, path));
        self.read_values(&mut shown, map, path);
        if let Some(properties) = map.get("properties") {
            shown.set_kind("object");
            self.read_properties(&mut shown, properties, path, depth);
        }
        if let Some(required) = map.get("required").and_then(Value::as_array) {
            let names = required.iter().filter_map(Value::as_str);
            shown.required = names.map(|name| self.text(name, path)).collect();
            // Names that no longer had room.
            shown.required.retain(|name| !name.is_empty());
        }
        self.read_items(&mut shown, map, path, depth);
        if let Some(further) = map
            .get("additionalProperties")
            .filter(|further| further.is_object())
        {
            shown.set_kind("object");
            let further = self.show(further, &format!("{path}/additionalProperties"), depth + 1);
            shown.note(&format!("further entries: {}", further.in_words()));
        }
        for keyword in NOT_SHOWN
            .iter()
            .filter(|keyword| map.contains_key(**keyword))
        {
            self.warn(path, keyword);
        }
        shown::note_limits(&mut shown, map, self.guard);
        shown
    }

    fn read_type(&mut self, shown: &mut Shown, map: &Map<String, Value>, path: &str) {
        match map.get("type") {
            Some(Value::String(kind)) if kind == "null" => shown.nullable = true,
            Some(Value::String(kind)) => shown.kind = (self.guard)(&kind.to_lowercase()),
            Some(Value::Array(kinds)) => {
                let kinds = kinds.iter().filter_map(Value::as_str).take(MAX_KINDS);
                let (nulls, kinds): (Vec<&str>, Vec<&str>) =
                    kinds.partition(|kind| *kind == "null");
                shown.nullable = !nulls.is_empty();
                if let Some((first, others)) = kinds.split_first() {
                    shown.kind = (self.guard)(&first.to_lowercase());
                    if !others.is_empty() {
                        shown.note(&format!("or: {}", (self.guard)(&others.join(", "))));
                        self.warn(path, "a choice of several types");
                    }
                }
            }
            Some(_) => self.warn(path, "a type that is no text"),
            None => {}
        }
        // OpenAPI 3.0 has a flag where JSON schema has a type.
        shown.nullable |= map.get("nullable") == Some(&Value::Bool(true));
    }

    /// `enum` and `const`: texts have a place of their own, other values are described.
    fn read_values(&mut self, shown: &mut Shown, map: &Map<String, Value>, path: &str) {
        let constant = map.get("const").map(std::slice::from_ref);
        let listed = map.get("enum").and_then(Value::as_array).map(Vec::as_slice);
        let Some(values) = constant.or(listed) else {
            return;
        };
        let (nulls, values): (Vec<&Value>, Vec<&Value>) =
            values.iter().partition(|value| value.is_null());
        shown.nullable |= !nulls.is_empty();
        if values.iter().all(|value| value.is_string()) && !values.is_empty() {
            shown.set_kind("string");
        } else if let Some(first) = values.first() {
            shown.set_kind(shown::kind_of(first));
        }
        if shown.kind == "string" && values.iter().all(|value| value.is_string()) {
            let texts = values.iter().filter_map(|value| value.as_str());
            shown.values = texts.map(|text| self.text(text, path)).collect();
        } else if !values.is_empty() {
            shown.note(&(self.guard)(&shown::listed(&values)));
        }
    }

    fn read_properties(
        &mut self,
        shown: &mut Shown,
        properties: &'a Value,
        path: &str,
        depth: usize,
    ) {
        let Value::Object(properties) = properties else {
            return self.warn(path, "properties that are no object");
        };
        for (name, property) in properties {
            if self.nodes == 0 || self.text_bytes < name.len() + TEXT_OVERHEAD {
                return self.warn(path, "too many properties to be shown");
            }
            let pointer = format!("{path}/properties/{}", escaped(name));
            let property = self.show(property, &pointer, depth + 1);
            let name = self.text(name, path);
            shown.properties.insert(name, property);
        }
    }

    fn read_items(
        &mut self,
        shown: &mut Shown,
        map: &'a Map<String, Value>,
        path: &str,
        depth: usize,
    ) {
        let tuple = map
            .get("prefixItems")
            .or_else(|| map.get("items").filter(|items| items.is_array()));
        if let Some(tuple) = tuple {
            shown.set_kind("array");
            self.warn(path, "items that differ by place");
            let places = tuple.as_array().map_or(&[][..], Vec::as_slice);
            let places: Vec<Shown> = places
                .iter()
                .enumerate()
                .map(|(i, one)| self.show(one, &format!("{path}/prefixItems/{i}"), depth + 1))
                .collect();
            let words: Vec<String> = places.iter().map(Shown::in_words).collect();
            shown.note(&format!("items in order: {}", words.join(", ")));
        } else if let Some(items) = map.get("items") {
            shown.set_kind("array");
            if items.is_object() {
                let items = self.show(items, &format!("{path}/items"), depth + 1);
                shown.items = Some(Box::new(items));
            }
        }
    }

    /// Follows a reference within the schema; one that is already being followed ends here.
    fn follow(&mut self, reference: &'a Value, path: &str, depth: usize) -> Shown {
        let target = reference.as_str().and_then(|reference| {
            let target = pointed(self.root, reference)?;
            Some((reference, target))
        });
        let Some((reference, target)) = target else {
            self.warn(path, "a reference to something that is not there");
            return Shown::any();
        };
        if self.open.contains(&reference) {
            self.warn(path, "it refers to itself");
            let mut shown = Shown::any();
            if let Some(kind) = target.get("type").and_then(Value::as_str) {
                shown.kind = (self.guard)(&kind.to_lowercase());
            }
            let name = reference.rsplit('/').next().filter(|name| *name != "#");
            shown.note(&(self.guard)(&name.map_or_else(
                || "like the whole".to_owned(),
                |name| format!("another {name}"),
            )));
            return shown;
        }
        self.open.push(reference);
        let shown = self.show(target, path, depth + 1);
        self.open.pop();
        shown
    }

    /// A guarded text, as long as there is room for texts.
    fn text(&mut self, text: &str, path: &str) -> String {
        let bytes = text.len() + TEXT_OVERHEAD;
        if self.text_bytes < bytes {
            self.warn(path, "too much text to be shown");
            return String::new();
        }
        self.text_bytes -= bytes;
        (self.guard)(text)
    }
}

fn list<'a>(map: &'a Map<String, Value>, keyword: &str) -> impl Iterator<Item = &'a Value> {
    map.get(keyword)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

/// The schema that a reference like `#/$defs/Item` names.
pub(crate) fn pointed<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    root.pointer(pointer)
        .or_else(|| root.pointer(&percent_decoded(pointer)?))
}

/// A pointer in a URL fragment may have its odd characters percent-encoded.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).ok()
}

/// A name, shortened, as a JSON pointer writes it.
pub(crate) fn escaped(name: &str) -> String {
    let name: String = name.chars().take(MAX_STEP_CHARS).collect();
    name.replace('~', "~0").replace('/', "~1")
}
