//! `generation_config.json`, of which only the special ids count: sampling defaults are the program's own.

use crate::FormatError;
use crate::json::{self, Object};

const WHAT: &str = "generation_config.json";

/// The decoded ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GenerationConfig {
    /// Ids that end an answer, without repetition; empty where the file names none.
    pub eos_token_ids: Vec<u32>,
    /// The id that starts a prompt.
    pub bos_token_id: Option<u32>,
    /// The id that fills.
    pub pad_token_id: Option<u32>,
}

impl GenerationConfig {
    /// Decodes the file.
    ///
    /// # Errors
    /// A [`FormatError`] that names the field.
    pub fn parse(bytes: &[u8]) -> Result<GenerationConfig, FormatError> {
        let json = json::parse(WHAT, json::MAX_JSON_BYTES, bytes)?;
        let root = json.root(WHAT)?;
        Ok(GenerationConfig {
            eos_token_ids: eos_token_ids(&root)?.unwrap_or_default(),
            bos_token_id: root.optional("bos_token_id", |id| id.u32())?,
            pad_token_id: root.optional("pad_token_id", |id| id.u32())?,
        })
    }
}

/// The `eos_token_id` of an object: one id or an array of ids, repetitions dropped.
pub(crate) fn eos_token_ids(object: &Object<'_, '_>) -> Result<Option<Vec<u32>>, FormatError> {
    object.optional("eos_token_id", |field| {
        if !field.is_array() {
            return Ok(vec![field.u32()?]);
        }
        let mut ids = Vec::new();
        for id in field.array()? {
            let id = id.u32()?;
            // Quadratic in a list that has three entries; the limit keeps a hostile one harmless.
            if ids.len() == MAX_EOS_IDS {
                return Err(FormatError::OutOfRange {
                    field: field.path().to_owned(),
                    expected: format!("at most {MAX_EOS_IDS} ids"),
                    actual: "more".into(),
                });
            }
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(ids)
    })
}

/// The most different ids that may end an answer.
const MAX_EOS_IDS: usize = 64;
