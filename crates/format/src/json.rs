//! JSON as this room needs it: a tree that refuses duplicate keys, and a writer with Apple's layout.
//!
//! `serde_json` reads the grammar; the tree on top exists because its own map silently keeps the last of two equal keys, which would
//! let a file be listed twice with different hashes. Fields are looked up through [`Object`], whose errors name the whole path.
//! A field of value `null` counts as absent. Fields that nobody asks for are ignored: minor versions may add some.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::FormatError;

mod stream;
mod write;
pub(crate) use stream::parse_each;
pub(crate) use write::{Encode, Writer, encode};

/// The longest document read, but for the layout. The largest of a real model is its safetensors index, with 0.2 MB.
pub(crate) const MAX_JSON_BYTES: u64 = 8 << 20;

/// A JSON value; texts borrow from the document where they hold no escape.
#[derive(Debug)]
pub(crate) enum Json<'a> {
    Null,
    Bool(bool),
    Unsigned(u64),
    Negative(i64),
    Float(f64),
    Text(Cow<'a, str>),
    Array(Vec<Json<'a>>),
    Object(Vec<(Cow<'a, str>, Json<'a>)>),
}

/// Reads `bytes`, which are to be one JSON object of at most `limit` bytes, and refuses duplicate keys at any depth.
pub(crate) fn parse<'a>(
    what: &'static str,
    limit: u64,
    bytes: &'a [u8],
) -> Result<Json<'a>, FormatError> {
    check_limit(what, limit, bytes)?;
    let json: Json<'a> = serde_json::from_slice(bytes).map_err(|error| json_error(what, &error))?;
    json.refuse_duplicates(what, "")?;
    Ok(json)
}

fn check_limit(what: &'static str, limit: u64, bytes: &[u8]) -> Result<(), FormatError> {
    let actual = bytes.len() as u64;
    if actual > limit {
        Err(FormatError::TooLarge {
            what,
            limit,
            actual,
        })
    } else {
        Ok(())
    }
}

fn json_error(what: &'static str, error: &serde_json::Error) -> FormatError {
    FormatError::Json {
        what,
        line: error.line(),
        column: error.column(),
        message: strip_position(&error.to_string()),
    }
}

/// `serde_json` ends its messages with the position, which the error already carries.
fn strip_position(message: &str) -> String {
    message
        .split(" at line ")
        .next()
        .unwrap_or(message)
        .to_owned()
}

impl<'a> Json<'a> {
    /// The value as the object that the document `what` consists of.
    pub(crate) fn root<'j>(&'j self, what: &'static str) -> Result<Object<'j, 'a>, FormatError> {
        Field {
            what,
            path: String::from("(document)"),
            value: self,
        }
        .object()
        .map(|mut object| {
            object.path.clear();
            object
        })
    }

    fn kind(&self) -> String {
        match self {
            Json::Null => "null".into(),
            Json::Bool(value) => value.to_string(),
            Json::Unsigned(value) => value.to_string(),
            Json::Negative(value) => value.to_string(),
            Json::Float(value) => value.to_string(),
            Json::Text(text) => format!("{:?}", text.chars().take(80).collect::<String>()),
            Json::Array(_) => "an array".into(),
            Json::Object(_) => "an object".into(),
        }
    }

    fn refuse_duplicates(&self, what: &'static str, path: &str) -> Result<(), FormatError> {
        match self {
            Json::Array(items) => {
                for item in items {
                    item.refuse_duplicates(what, path)?;
                }
            }
            Json::Object(fields) => {
                let mut keys: Vec<&str> = fields.iter().map(|(key, _)| key.as_ref()).collect();
                keys.sort_unstable();
                if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
                    return Err(FormatError::DuplicateKey {
                        what,
                        key: join(path, pair[0]),
                    });
                }
                for (key, value) in fields {
                    if matches!(value, Json::Array(_) | Json::Object(_)) {
                        value.refuse_duplicates(what, &join(path, key))?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    }
}

/// An object of a document, and where in it.
pub(crate) struct Object<'j, 'a> {
    what: &'static str,
    path: String,
    fields: &'j [(Cow<'a, str>, Json<'a>)],
}

impl<'j, 'a> Object<'j, 'a> {
    /// The path of field `name` from the document's root.
    pub(crate) fn path_of(&self, name: &str) -> String {
        join(&self.path, name)
    }

    /// The field `name`, unless it is absent or null.
    pub(crate) fn get(&self, name: &str) -> Option<Field<'j, 'a>> {
        let (_, value) = self.fields.iter().find(|(key, _)| key == name)?;
        match value {
            Json::Null => None,
            value => Some(Field {
                what: self.what,
                path: self.path_of(name),
                value,
            }),
        }
    }

    /// The field `name`, which has to be there.
    pub(crate) fn need(&self, name: &str) -> Result<Field<'j, 'a>, FormatError> {
        self.get(name).ok_or_else(|| FormatError::MissingField {
            what: self.what,
            field: self.path_of(name),
        })
    }

    /// The field `name` as `read` reads it, unless it is absent or null.
    pub(crate) fn optional<T>(
        &self,
        name: &str,
        read: impl FnOnce(Field<'j, 'a>) -> Result<T, FormatError>,
    ) -> Result<Option<T>, FormatError> {
        self.get(name).map(read).transpose()
    }

    /// Every field in the document's order, nulls included.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'j str, Field<'j, 'a>)> + '_ {
        let fields: &'j [(Cow<'a, str>, Json<'a>)] = self.fields;
        fields.iter().map(|(key, value)| {
            let field = Field {
                what: self.what,
                path: self.path_of(key),
                value,
            };
            (key.as_ref(), field)
        })
    }
}

/// A value of a document, and where in it.
pub(crate) struct Field<'j, 'a> {
    what: &'static str,
    path: String,
    value: &'j Json<'a>,
}

impl<'j, 'a> Field<'j, 'a> {
    /// The path from the document's root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The value in words, for a message.
    pub(crate) fn kind(&self) -> String {
        self.value.kind()
    }

    /// Whether the value is an object.
    pub(crate) fn is_object(&self) -> bool {
        matches!(self.value, Json::Object(_))
    }

    /// Whether the value is an array.
    pub(crate) fn is_array(&self) -> bool {
        matches!(self.value, Json::Array(_))
    }

    fn wrong(&self, expected: &'static str) -> FormatError {
        FormatError::WrongType {
            what: self.what,
            field: self.path.clone(),
            expected,
            actual: self.value.kind(),
        }
    }

    pub(crate) fn object(&self) -> Result<Object<'j, 'a>, FormatError> {
        match self.value {
            Json::Object(fields) => Ok(Object {
                what: self.what,
                path: self.path.clone(),
                fields,
            }),
            _ => Err(self.wrong("an object")),
        }
    }

    pub(crate) fn array(
        &self,
    ) -> Result<impl ExactSizeIterator<Item = Field<'j, 'a>> + use<'_, 'j, 'a>, FormatError> {
        match self.value {
            Json::Array(items) => Ok(items.iter().enumerate().map(|(i, value)| Field {
                what: self.what,
                path: format!("{}[{i}]", self.path),
                value,
            })),
            _ => Err(self.wrong("an array")),
        }
    }

    pub(crate) fn text(&self) -> Result<&'j str, FormatError> {
        match self.value {
            Json::Text(text) => Ok(text),
            _ => Err(self.wrong("a text")),
        }
    }

    pub(crate) fn bool(&self) -> Result<bool, FormatError> {
        match self.value {
            Json::Bool(value) => Ok(*value),
            _ => Err(self.wrong("true or false")),
        }
    }

    pub(crate) fn u64(&self) -> Result<u64, FormatError> {
        match self.value {
            Json::Unsigned(value) => Ok(*value),
            _ => Err(self.wrong("a whole number of at least zero")),
        }
    }

    pub(crate) fn u32(&self) -> Result<u32, FormatError> {
        let value = self.u64()?;
        u32::try_from(value).map_err(|_| FormatError::OutOfRange {
            field: self.path.clone(),
            expected: format!("at most {}", u32::MAX),
            actual: value.to_string(),
        })
    }

    /// A size or a count of something that has to exist: a whole number from 1 to 2^32 - 1.
    pub(crate) fn dimension(&self) -> Result<u32, FormatError> {
        match self.value {
            Json::Unsigned(0) | Json::Negative(_) => Err(self.not_positive()),
            _ => self.u32(),
        }
    }

    /// A finite number greater than zero.
    pub(crate) fn positive(&self) -> Result<f64, FormatError> {
        let value = match self.value {
            Json::Unsigned(value) => *value as f64,
            Json::Negative(value) => *value as f64,
            Json::Float(value) => *value,
            _ => return Err(self.wrong("a number")),
        };
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err(self.not_positive())
        }
    }

    fn not_positive(&self) -> FormatError {
        FormatError::NotPositive {
            field: self.path.clone(),
            actual: self.value.kind(),
        }
    }
}

impl<'de> Deserialize<'de> for Json<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json<'de>, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json<'de>, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json<'de>, E> {
        Ok(Json::Unsigned(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json<'de>, E> {
        Ok(u64::try_from(value).map_or(Json::Negative(value), Json::Unsigned))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json<'de>, E> {
        Ok(Json::Float(value))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json<'de>, E> {
        Ok(Json::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        // A layout holds some hundred thousand small arrays and objects: spare room would double the tree.
        items.shrink_to_fit();
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some((Key(key), value)) = access.next_entry()? {
            fields.push((key, value));
        }
        fields.shrink_to_fit();
        Ok(Json::Object(fields))
    }
}

/// A key that borrows from the document; serde's own `Cow` would copy it.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}
