//! Token ids as JSON: an array of them, or an array of such arrays; errors say which one, and what would be right.

use std::fmt;

use ouzel::Model;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

use crate::exit::usage;
use crate::messages::{self, List};

/// What `[2, 105]` holds.
pub fn one(name: &str, bytes: &[u8]) -> anyhow::Result<Vec<u32>> {
    let ids: List<Id> = messages::parse(name, bytes, "an array of token ids such as [2, 105]")?;
    Ok(plain(ids))
}

/// What `[[2, 105], [2]]` holds.
pub fn many(name: &str, bytes: &[u8]) -> anyhow::Result<Vec<Vec<u32>>> {
    let expected = "an array of arrays of token ids such as [[2, 105], [2]]";
    let sequences: List<List<Id>> = messages::parse(name, bytes, expected)?;
    Ok(sequences.0.into_iter().map(plain).collect())
}

fn plain(ids: List<Id>) -> Vec<u32> {
    ids.0.into_iter().map(|id| id.0).collect()
}

/// Refuses an id that the model does not know; `place` says where the ids are from, as in ` of sequence 3`.
pub fn check(ids: &[u32], model: &Model, place: &str) -> anyhow::Result<()> {
    let n = model.config().vocab_size;
    match ids.iter().enumerate().find(|(_, id)| **id as usize >= n) {
        Some((at, id)) => Err(usage(format!(
            "token id {id} at place {at}{place} (counted from 0) is not in the vocabulary; give ids from 0 to {}",
            n - 1
        ))),
        None => Ok(()),
    }
}

struct Id(u32);

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        deserializer.deserialize_u64(IdVisitor)
    }
}

struct IdVisitor;

impl Visitor<'_> for IdVisitor {
    type Value = Id;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a token id, a whole number from 0 to {}", u32::MAX)
    }

    fn visit_u64<E: Error>(self, id: u64) -> Result<Id, E> {
        u32::try_from(id)
            .map(Id)
            .map_err(|_| E::invalid_value(Unexpected::Unsigned(id), &self))
    }
}
