//! The vocabulary while it is compiled: all texts in one string, an index from text to id, and nothing per token on the heap.

use super::{Builder, inconsistent};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use std::fmt;
use xxhash_rust::xxh3::xxh3_64;

/// Token texts by id, and ids by text.
pub(super) struct Vocabulary {
    /// In the order of the file, which need not be the order of ids.
    text: String,
    /// Start and end in `text`, by id.
    extents: Vec<(u32, u32)>,
    /// Open addressing by the hash of the text: id + 1, or 0 where empty. At most half full.
    slots: Vec<u32>,
}

impl Vocabulary {
    /// `None` with the offending text's place in `extents` where two tokens have the same text.
    fn new(text: String, extents: Vec<(u32, u32)>) -> Result<Vocabulary, String> {
        let mut vocabulary = Vocabulary {
            text,
            extents,
            slots: Vec::new(),
        };
        vocabulary.index()?;
        Ok(vocabulary)
    }

    fn index(&mut self) -> Result<(), String> {
        self.slots = vec![0; (2 * self.extents.len()).next_power_of_two()];
        for id in 0..self.extents.len() as u32 {
            match self.find(self.text(id)) {
                Ok(_) => {
                    return Err(format!(
                        "two entries of model.vocab are {:?}",
                        self.text(id)
                    ));
                }
                Err(slot) => self.slots[slot] = id + 1,
            }
        }
        Ok(())
    }

    /// The id with this text, or the empty slot where it would be.
    fn find(&self, text: &str) -> Result<u32, usize> {
        let mask = self.slots.len() - 1;
        let mut slot = xxh3_64(text.as_bytes()) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                id if self.text(id - 1) == text => return Ok(id - 1),
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    pub fn len(&self) -> usize {
        self.extents.len()
    }

    pub fn text(&self, id: u32) -> &str {
        let (start, end) = self.extents[id as usize];
        &self.text[start as usize..end as usize]
    }

    pub fn id_of(&self, text: &str) -> Option<u32> {
        self.find(text).ok()
    }

    /// Adds a token that is not there yet, with the next id.
    pub fn append(&mut self, text: &str) {
        if 2 * (self.extents.len() + 1) > self.slots.len() {
            // Distinct texts cannot collide again.
            let grown = self.index();
            debug_assert!(grown.is_ok());
        }
        let slot = self.find(text).expect_err("only new texts are appended");
        let start = self.text.len() as u32;
        self.text.push_str(text);
        self.extents.push((start, self.text.len() as u32));
        self.slots[slot] = self.extents.len() as u32;
    }

    pub fn text_bytes(&self) -> usize {
        self.text.len()
    }

    /// Where each token ends once the texts stand in id order.
    pub fn ends(&self) -> impl Iterator<Item = u32> {
        self.extents.iter().scan(0, |at, (start, end)| {
            *at += end - start;
            Some(*at)
        })
    }

    pub fn write_text(&self, out: &mut Vec<u8>) {
        for id in 0..self.len() as u32 {
            out.extend_from_slice(self.text(id).as_bytes());
        }
    }

    pub fn by_text(&self) -> Vec<u32> {
        let mut ids: Vec<u32> = (0..self.len() as u32).collect();
        ids.sort_unstable_by_key(|id| self.text(*id));
        ids
    }
}

/// Reads `model.vocab`.
pub(super) struct VocabularySeed<'b>(pub &'b mut Builder);

impl<'de> DeserializeSeed<'de> for VocabularySeed<'_> {
    type Value = Vocabulary;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Vocabulary, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for VocabularySeed<'_> {
    type Value = Vocabulary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from token to id")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocabulary, A::Error> {
        let mut text = String::new();
        let mut entries: Vec<(u32, u32, u32)> = Vec::new();
        loop {
            let start = text.len() as u32;
            let Some(()) = map.next_key_seed(super::AppendSeed(&mut text))? else {
                break;
            };
            entries.push((map.next_value()?, start, text.len() as u32));
        }
        // Ids may come in any order but must be exactly 0..n: then they index arrays and bound memory.
        let mut extents = vec![None; entries.len()];
        for (id, start, end) in entries {
            match extents.get_mut(id as usize) {
                Some(place @ None) => *place = Some((start, end)),
                Some(Some(_)) => {
                    return Err(self.0.refuse(inconsistent(format!(
                        "two entries of model.vocab have id {id}"
                    ))));
                }
                None => {
                    let what = format!("model.vocab has {} entries but id {id}", extents.len());
                    return Err(self.0.refuse(inconsistent(what)));
                }
            }
        }
        // As many distinct ids below n as there are entries leave no gap.
        let extents = extents.into_iter().flatten().collect();
        Vocabulary::new(text, extents).map_err(|what| self.0.refuse(inconsistent(what)))
    }
}
