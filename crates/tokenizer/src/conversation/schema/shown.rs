//! A schema in the one shape that the template shows.

use serde_json::{Map, Value, json};
use std::fmt::{self, Write};

/// The type of what may be anything. No type of JSON schema, but the template prints what stands there, and the model reads it.
pub(super) const ANY: &str = "any";

/// Bytes of one note; a list of a thousand numbers helps nobody.
const MAX_NOTE_BYTES: usize = 512;
/// Values that one note lists.
const MAX_LISTED: usize = 64;

/// Keywords that narrow a value and are told in its description, with the words that tell them.
const LIMITS: [(&str, &str); 13] = [
    ("default", "default"),
    ("format", "format"),
    ("pattern", "pattern"),
    ("minimum", "at least"),
    ("maximum", "at most"),
    ("exclusiveMinimum", "more than"),
    ("exclusiveMaximum", "less than"),
    ("multipleOf", "a multiple of"),
    ("minLength", "least length"),
    ("maxLength", "greatest length"),
    ("minItems", "least number of items"),
    ("maxItems", "greatest number of items"),
    ("uniqueItems", "items are unique"),
];

/// One value, of one type.
#[derive(Debug, Clone, Default)]
pub(super) struct Shown {
    /// The type in lower case.
    pub kind: String,
    pub description: String,
    /// What has no place of its own; it goes behind the description.
    pub notes: Vec<String>,
    pub nullable: bool,
    /// The texts that are allowed, if not all are.
    pub values: Vec<String>,
    pub items: Option<Box<Shown>>,
    pub properties: indexed::Properties,
    pub required: Vec<String>,
}

/// Properties in the order in which they came; a name that comes again replaces the first.
pub(super) mod indexed {
    use super::Shown;

    #[derive(Debug, Clone, Default)]
    pub struct Properties(Vec<(String, Shown)>);

    impl Properties {
        pub fn insert(&mut self, name: String, shown: Shown) {
            self.0.push((name, shown));
        }

        pub fn iter(&self) -> impl Iterator<Item = &(String, Shown)> {
            self.0.iter()
        }

        pub fn is_empty(&self) -> bool {
            self.0.is_empty()
        }

        pub fn into_entries(self) -> impl Iterator<Item = (String, Shown)> {
            self.0.into_iter()
        }

        pub fn append(&mut self, other: Properties) {
            self.0.extend(other.0);
        }
    }
}

impl Shown {
    pub fn any() -> Shown {
        Shown::of(ANY)
    }

    pub fn of(kind: &str) -> Shown {
        Shown {
            kind: kind.to_owned(),
            ..Shown::default()
        }
    }

    /// Sets the type where none is known.
    pub fn set_kind(&mut self, kind: &str) {
        if self.kind == ANY {
            kind.clone_into(&mut self.kind);
        }
    }

    pub fn note(&mut self, note: &str) {
        self.notes.push(note.to_owned());
    }

    /// The value as part of another's description.
    pub fn in_words(&self) -> String {
        match &self.items {
            Some(items) => format!("{} of {}", self.kind, items.kind),
            None => self.kind.clone(),
        }
    }

    /// Description and notes as one text.
    fn text(&self) -> String {
        if self.notes.is_empty() {
            return self.description.clone();
        }
        let notes = self.notes.join("; ");
        if self.description.is_empty() {
            notes
        } else {
            format!("{} ({notes})", self.description)
        }
    }

    pub fn to_json(&self) -> Value {
        let mut map = Map::new();
        map.insert("type".to_owned(), json!(self.kind));
        let description = self.text();
        if !description.is_empty() {
            map.insert("description".to_owned(), json!(description));
        }
        if self.nullable {
            map.insert("nullable".to_owned(), json!(true));
        }
        if !self.values.is_empty() && self.kind == "string" {
            map.insert("enum".to_owned(), json!(self.values));
        }
        if let Some(items) = self.items.as_ref().filter(|_| self.kind == "array") {
            map.insert("items".to_owned(), items.to_json());
        }
        if self.kind == "object" {
            let properties = self.properties.iter();
            // Always there: without them the template takes the object's other keywords for properties.
            let properties: Map<String, Value> = properties
                .map(|(name, property)| (name.clone(), property.to_json()))
                .collect();
            // A name that is required and nowhere described says nothing about itself, but it is asked for.
            if !self.required.is_empty() {
                map.insert("required".to_owned(), json!(self.required));
            }
            map.insert("properties".to_owned(), Value::Object(properties));
        }
        Value::Object(map)
    }
}

/// The JSON schema type of a value.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A text that takes only so many bytes, so that a long value is never written out.
struct Short(String);

impl Short {
    fn of(words: &str, value: impl fmt::Display) -> String {
        let mut short = Short(words.to_owned());
        if write!(short, " {value}").is_err() {
            short.0.push_str("...");
        }
        short.0
    }
}

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = MAX_NOTE_BYTES.saturating_sub(self.0.len());
        if text.len() <= free {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=free).rev().find(|end| text.is_char_boundary(*end));
        self.0.push_str(&text[..end.unwrap_or(0)]);
        Err(fmt::Error)
    }
}

/// Values that are allowed, in words.
pub(super) fn listed(values: &[&Value]) -> String {
    let shown = values.len().min(MAX_LISTED);
    let values: Vec<String> = values[..shown]
        .iter()
        .map(|value| Short::of("", value).trim_start().to_owned())
        .collect();
    Short::of("one of:", values.join(", "))
}

/// Describes what narrows the value.
pub(super) fn note_limits(
    shown: &mut Shown,
    map: &Map<String, Value>,
    guard: &dyn Fn(&str) -> String,
) {
    for (keyword, words) in LIMITS {
        let Some(value) = map.get(keyword) else {
            continue;
        };
        let note = match value {
            Value::Bool(true) if keyword == "uniqueItems" => words.to_owned(),
            Value::Null | Value::Bool(false) if keyword != "default" => continue,
            Value::String(text) => Short::of(words, text),
            value => Short::of(words, value),
        };
        shown.note(&guard(&note));
    }
}
