//! Reads a document whose bulk is one array, an item at a time.
//!
//! The layout of a real model has 8.5 MB, and 14 MB as a tree; the tree of one layer is a thirtieth of that. What is spared here
//! is spared for good, because memory that small values have taken seldom goes back to the system.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{Field, Json, Key, check_limit, json_error};
use crate::FormatError;

/// Reads `bytes` like [`super::parse`], but hands each item of the root's array `name` to `each` and keeps what it returns; in the
/// tree, null stands for the array. `None` in the array's place says that the root has no such field.
pub(crate) fn parse_each<'a, T>(
    what: &'static str,
    limit: u64,
    bytes: &'a [u8],
    name: &'static str,
    each: impl FnMut(Field<'_, 'a>) -> Result<T, FormatError>,
) -> Result<(Json<'a>, Option<Vec<T>>), FormatError> {
    check_limit(what, limit, bytes)?;
    let mut stream = Stream {
        what,
        name,
        each,
        items: None,
        refusal: None,
    };
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let read = deserializer.deserialize_any(Root(&mut stream));
    let read = read.and_then(|json| deserializer.end().map(|()| json));
    match (read, stream.refusal) {
        (_, Some(refusal)) => Err(refusal),
        (Err(error), None) => Err(json_error(what, &error)),
        (Ok(json), None) => {
            json.refuse_duplicates(what, "")?;
            Ok((json, stream.items))
        }
    }
}

struct Stream<T, F> {
    what: &'static str,
    name: &'static str,
    each: F,
    items: Option<Vec<T>>,
    /// Why `each` refused an item: serde's own errors are texts.
    refusal: Option<FormatError>,
}

impl<T, F> Stream<T, F> {
    fn accept<'de>(&mut self, i: usize, value: &Json<'de>) -> Result<T, FormatError>
    where
        F: FnMut(Field<'_, 'de>) -> Result<T, FormatError>,
    {
        let path = format!("{}[{i}]", self.name);
        value.refuse_duplicates(self.what, &path)?;
        (self.each)(Field {
            what: self.what,
            path,
            value,
        })
    }
}

/// The document's object.
struct Root<'s, T, F>(&'s mut Stream<T, F>);

impl<'de, T, F> Visitor<'de> for Root<'_, T, F>
where
    F: FnMut(Field<'_, 'de>) -> Result<T, FormatError>,
{
    type Value = Json<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Json<'de>, A::Error> {
        let mut fields = Vec::new();
        while let Some(Key(key)) = access.next_key()? {
            let value = if key == self.0.name {
                access.next_value_seed(Items(self.0))?;
                Json::Null
            } else {
                access.next_value()?
            };
            fields.push((key, value));
        }
        Ok(Json::Object(fields))
    }
}

/// The array in it.
struct Items<'s, T, F>(&'s mut Stream<T, F>);

impl<'de, T, F> DeserializeSeed<'de> for Items<'_, T, F>
where
    F: FnMut(Field<'_, 'de>) -> Result<T, FormatError>,
{
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, T, F> Visitor<'de> for Items<'_, T, F>
where
    F: FnMut(Field<'_, 'de>) -> Result<T, FormatError>,
{
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the array {}", self.0.name)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<(), A::Error> {
        let mut items = Vec::new();
        while let Some(value) = access.next_element::<Json<'de>>()? {
            match self.0.accept(items.len(), &value) {
                Ok(item) => items.push(item),
                Err(refusal) => {
                    self.0.refusal = Some(refusal);
                    return Err(A::Error::custom("refused"));
                }
            }
        }
        self.0.items = Some(items);
        Ok(())
    }
}
