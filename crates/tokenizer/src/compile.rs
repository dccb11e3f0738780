//! tokenizer.json to compiled image, in one streaming pass.
//!
//! Only the small parts of the file become JSON values; the vocabulary and the merges, 31 of the real file's 32 MB, go straight into
//! the arrays that the image is made of. Everything that would change ids and is not implemented is refused by name: a tokenizer that
//! compiles gives the ids of the reference library.

mod vocabulary;

use crate::error::TokenizerError;
use crate::image::{
    self, CUT_AT_NEWLINES, CUT_AT_WORDS, EMPTY_SLOT, HEADER_BYTES, MAGIC, SPECIAL_BIT, VERSION,
};
use crate::tokenizer::{GUARD, SPACE};
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufReader, Read};
use vocabulary::{Vocabulary, VocabularySeed};

/// Largest tokenizer.json read: eight times the real one. It bounds every count below, so none of them overflows.
const MAX_JSON_BYTES: u64 = 256 << 20;
/// Most tokens that may span a cut before a word; with more of them the cut saves nothing. The real tokenizer has one.
const MAX_SPANS: usize = 64;
/// Longest excerpt of a refused value in an error.
const EXCERPT_CHARS: usize = 120;

/// Compiles a tokenizer.json to the image that `Tokenizer::from_image` reads.
pub(crate) fn compile(json: impl Read) -> Result<Vec<u8>, TokenizerError> {
    let mut limited = json.take(MAX_JSON_BYTES);
    let mut builder = Builder::default();
    let mut json =
        serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, &mut limited));
    let parsed = json
        .deserialize_map(DocumentVisitor(&mut builder))
        .and_then(|()| json.end());
    drop(json);
    if let Some(refusal) = builder.refusal {
        return Err(refusal);
    }
    match parsed {
        Ok(()) => builder.finish(),
        Err(_) if limited.limit() == 0 => Err(TokenizerError::TooLarge {
            limit: MAX_JSON_BYTES,
        }),
        Err(error) if error.is_io() => Err(TokenizerError::Io(error.into())),
        Err(error) => Err(TokenizerError::Json(error.to_string())),
    }
}

/// One entry of `added_tokens`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddedToken {
    id: u32,
    content: String,
    single_word: bool,
    lstrip: bool,
    rstrip: bool,
    normalized: bool,
    special: bool,
}

struct Merge {
    left: u32,
    right: u32,
    rank: u32,
    result: u32,
}

/// What has been read so far. Visitors can only return serde's errors, so a refusal waits here for `compile`.
#[derive(Default)]
struct Builder {
    refusal: Option<TokenizerError>,
    added: Vec<AddedToken>,
    has_decoder: bool,
    has_normalizer: bool,
    has_model_type: bool,
    has_byte_fallback: bool,
    vocabulary: Option<Vocabulary>,
    merges: Option<Vec<Merge>>,
}

impl Builder {
    fn refuse<E: serde::de::Error>(&mut self, refusal: TokenizerError) -> E {
        self.refusal = Some(refusal);
        E::custom("refused")
    }

    /// Refuses a value unless it is one of those that are implemented.
    fn expect<E: serde::de::Error>(
        &mut self,
        feature: &str,
        value: &Value,
        allowed: &[Value],
    ) -> Result<(), E> {
        if allowed.contains(value) {
            return Ok(());
        }
        Err(self.refuse(unsupported(feature, value)))
    }
}

fn unsupported(feature: &str, value: &Value) -> TokenizerError {
    let text = value.to_string();
    let mut excerpt: String = text.chars().take(EXCERPT_CHARS).collect();
    if excerpt.len() < text.len() {
        excerpt.push('…');
    }
    TokenizerError::UnsupportedFeature {
        feature: feature.to_owned(),
        value: excerpt,
    }
}

fn inconsistent(what: String) -> TokenizerError {
    TokenizerError::Inconsistent(what)
}

struct DocumentVisitor<'b>(&'b mut Builder);

impl<'de> Visitor<'de> for DocumentVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tokenizer.json object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let builder = self.0;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "added_tokens" => builder.added = map.next_value()?,
                "model" => map.next_value_seed(ModelSeed(builder))?,
                "version" => builder.expect("version", &map.next_value()?, &[json!("1.0")])?,
                "truncation" | "padding" => {
                    builder.expect(&key, &map.next_value()?, &[Value::Null])?
                }
                "normalizer" => {
                    builder.expect(
                        &key,
                        &map.next_value()?,
                        &[replace(" ", SPACE.encode_utf8(&mut [0; 4]))],
                    )?;
                    builder.has_normalizer = true;
                }
                // After the normalizer no space is left to split at.
                "pre_tokenizer" => {
                    builder.expect(&key, &map.next_value()?, &[Value::Null, split_at_spaces()])?
                }
                "post_processor" => post_processor(builder, &map.next_value()?)?,
                "decoder" => {
                    let parts = [
                        replace(SPACE.encode_utf8(&mut [0; 4]), " "),
                        json!({"type": "ByteFallback"}),
                        json!({"type": "Fuse"}),
                    ];
                    builder.expect(
                        &key,
                        &map.next_value()?,
                        &[json!({"type": "Sequence", "decoders": parts})],
                    )?;
                    builder.has_decoder = true;
                }
                _ => {
                    let value: Value = map.next_value()?;
                    return Err(builder.refuse(unsupported(&key, &value)));
                }
            }
        }
        Ok(())
    }
}

fn replace(from: &str, to: &str) -> Value {
    json!({"type": "Replace", "pattern": {"String": from}, "content": to})
}

fn split_at_spaces() -> Value {
    json!({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": false})
}

/// Accepts a post-processor that adds nothing to a single text.
fn post_processor<E: serde::de::Error>(builder: &mut Builder, value: &Value) -> Result<(), E> {
    let adds_nothing = value["type"] == "TemplateProcessing"
        && value["single"] == json!([{"Sequence": {"id": "A", "type_id": 0}}]);
    if value.is_null() || adds_nothing {
        Ok(())
    } else {
        Err(builder.refuse(unsupported("post_processor", value)))
    }
}

struct ModelSeed<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for ModelSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ModelSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a BPE model")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let builder = self.0;
        while let Some(key) = map.next_key::<String>()? {
            let feature = format!("model.{key}");
            match key.as_str() {
                "vocab" => builder.vocabulary = Some(map.next_value_seed(VocabularySeed(builder))?),
                "merges" => builder.merges = Some(map.next_value_seed(MergesSeed(builder))?),
                "type" => {
                    builder.expect(&feature, &map.next_value()?, &[json!("BPE")])?;
                    builder.has_model_type = true;
                }
                "dropout" => {
                    builder.expect(&feature, &map.next_value()?, &[Value::Null, json!(0.0)])?
                }
                "continuing_subword_prefix" | "end_of_word_suffix" => {
                    builder.expect(&feature, &map.next_value()?, &[Value::Null, json!("")])?;
                }
                "ignore_merges" => builder.expect(&feature, &map.next_value()?, &[json!(false)])?,
                "byte_fallback" => {
                    builder.expect(&feature, &map.next_value()?, &[json!(true)])?;
                    builder.has_byte_fallback = true;
                }
                // Every byte has a token, so nothing is ever unknown.
                "unk_token" | "fuse_unk" => drop(map.next_value::<IgnoredAny>()?),
                _ => {
                    let value: Value = map.next_value()?;
                    return Err(builder.refuse(unsupported(&feature, &value)));
                }
            }
        }
        Ok(())
    }
}

struct MergesSeed<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for MergesSeed<'_> {
    type Value = Vec<Merge>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Vec<Merge>, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for MergesSeed<'_> {
    type Value = Vec<Merge>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of merges")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Merge>, A::Error> {
        let builder = self.0;
        let Some(vocabulary) = builder.vocabulary.take() else {
            return Err(builder.refuse(inconsistent(
                "model.merges stands before model.vocab".to_owned(),
            )));
        };
        let mut merges: Vec<Merge> = Vec::new();
        let mut text = String::new();
        loop {
            text.clear();
            let Some([left, right]) = list.next_element_seed(PairSeed {
                text: &mut text,
                vocabulary: &vocabulary,
            })?
            else {
                break;
            };
            match (left, right, vocabulary.id_of(&text)) {
                (Some(left), Some(right), Some(result)) => {
                    merges.push(Merge {
                        left,
                        right,
                        rank: merges.len() as u32,
                        result,
                    });
                }
                _ => {
                    let what = format!(
                        "merge {} of model.merges ({text:?}) names a token outside the vocabulary",
                        merges.len()
                    );
                    return Err(builder.refuse(inconsistent(what)));
                }
            }
        }
        builder.vocabulary = Some(vocabulary);
        Ok(merges)
    }
}

/// Reads `[left, right]`, looks both up and leaves their concatenation in `text`.
struct PairSeed<'a> {
    text: &'a mut String,
    vocabulary: &'a Vocabulary,
}

impl<'de> DeserializeSeed<'de> for PairSeed<'_> {
    type Value = [Option<u32>; 2];

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for PairSeed<'_> {
    type Value = [Option<u32>; 2];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a merge as a list of two strings")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut sides = [None; 2];
        for (i, side) in sides.iter_mut().enumerate() {
            let start = self.text.len();
            list.next_element_seed(AppendSeed(self.text))?
                .ok_or_else(|| A::Error::invalid_length(i, &"two strings"))?;
            *side = self.vocabulary.id_of(&self.text[start..]);
        }
        match list.next_element::<IgnoredAny>()? {
            None => Ok(sides),
            Some(_) => Err(A::Error::invalid_length(3, &"two strings")),
        }
    }
}

/// Appends a string to another without a copy of its own.
struct AppendSeed<'a>(&'a mut String);

impl<'de> DeserializeSeed<'de> for AppendSeed<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for AppendSeed<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, text: &str) -> Result<(), E> {
        self.0.push_str(text);
        Ok(())
    }
}

impl Builder {
    fn finish(mut self) -> Result<Vec<u8>, TokenizerError> {
        let needed = [
            (self.has_normalizer, "normalizer"),
            (self.has_decoder, "decoder"),
            (self.has_model_type, "model.type"),
            (self.has_byte_fallback, "model.byte_fallback"),
        ];
        if let Some((_, name)) = needed.iter().find(|(present, _)| !present) {
            return Err(TokenizerError::Missing(name));
        }
        let mut vocabulary = self
            .vocabulary
            .take()
            .ok_or(TokenizerError::Missing("model.vocab"))?;
        let mut merges = self
            .merges
            .take()
            .ok_or(TokenizerError::Missing("model.merges"))?;
        let added = added_ids(&self.added, &mut vocabulary)?;
        let bytes = byte_ids(&vocabulary)?;
        let (flags, spans) = cuts(&vocabulary, &merges, &bytes);
        merges.sort_unstable_by_key(|m| (m.left, m.right));
        if let Some(twice) = merges
            .windows(2)
            .find(|m| (m[0].left, m[0].right) == (m[1].left, m[1].right))
        {
            let ranks = (twice[0].rank, twice[1].rank);
            return Err(inconsistent(format!(
                "merges {} and {} of model.merges are the same",
                ranks.0, ranks.1
            )));
        }
        Ok(write(&vocabulary, &added, &bytes, &merges, flags, &spans))
    }
}

/// Gives each added token its place in the vocabulary; returns `(id, special)` in the order of their text.
fn added_ids(
    added: &[AddedToken],
    vocabulary: &mut Vocabulary,
) -> Result<Vec<(u32, bool)>, TokenizerError> {
    let mut ids = Vec::with_capacity(added.len());
    for token in added {
        let refused = [
            ("lstrip", token.lstrip),
            ("rstrip", token.rstrip),
            ("single_word", token.single_word),
            ("normalized", token.normalized),
        ];
        if let Some((name, _)) = refused.iter().find(|(_, on)| *on) {
            return Err(unsupported(
                &format!("added_tokens.{name}"),
                &json!(token.content),
            ));
        }
        // One character alone cannot be kept apart from the same character typed by a user; see `guard`.
        let short = if token.special { 2 } else { 1 };
        if token.content.chars().count() < short || token.content.contains(GUARD) {
            return Err(unsupported("added_tokens.content", &json!(token.content)));
        }
        match vocabulary.id_of(&token.content) {
            Some(id) if id == token.id => {}
            None if token.id as usize == vocabulary.len() => vocabulary.append(&token.content),
            other => {
                let what = format!(
                    "added token {:?} has id {}, its vocabulary entry {other:?}",
                    token.content, token.id
                );
                return Err(inconsistent(what));
            }
        }
        ids.push((token.id, token.special));
    }
    ids.sort_unstable_by_key(|(id, _)| vocabulary.text(*id));
    match ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        Some(pair) => Err(inconsistent(format!(
            "added token {} is listed twice",
            pair[0].0
        ))),
        None => Ok(ids),
    }
}

fn byte_ids(vocabulary: &Vocabulary) -> Result<Vec<u32>, TokenizerError> {
    let id = |byte| {
        let text = format!("<0x{byte:02X}>");
        vocabulary
            .id_of(&text)
            .ok_or_else(|| inconsistent(format!("byte_fallback without a token {text}")))
    };
    (0..=255u8).map(id).collect()
}

/// Finds out where text may be cut before merging without changing a single id.
///
/// A cut is safe where no merge can ever produce a token that spans it. Only results of merges matter: a token that no merge
/// produces never arises from more than one character. A merge of byte tokens would hide the characters it joins, so then nothing is cut.
fn cuts(vocabulary: &Vocabulary, merges: &[Merge], bytes: &[u32]) -> (u32, Vec<(u32, u32)>) {
    if merges
        .iter()
        .any(|m| bytes.contains(&m.left) || bytes.contains(&m.right))
    {
        return (0, Vec::new());
    }
    let mut is_result = vec![false; vocabulary.len()];
    for merge in merges {
        is_result[merge.result as usize] = true;
    }
    let mut flags = CUT_AT_NEWLINES | CUT_AT_WORDS;
    let mut spans = Vec::new();
    for id in (0..vocabulary.len() as u32).filter(|id| is_result[*id as usize]) {
        let text = vocabulary.text(id);
        for ((_, before), (at, after)) in text.char_indices().zip(text.char_indices().skip(1)) {
            if crate::tokenizer::is_newline_edge(before, after) {
                flags &= !CUT_AT_NEWLINES;
            }
            if crate::tokenizer::is_word_start(before, after) {
                spans.push((id, at as u32));
            }
        }
    }
    if spans.len() > MAX_SPANS {
        flags &= !CUT_AT_WORDS;
        spans.clear();
    }
    (flags, spans)
}

fn write(
    vocabulary: &Vocabulary,
    added: &[(u32, bool)],
    bytes: &[u32],
    merges: &[Merge],
    flags: u32,
    spans: &[(u32, u32)],
) -> Vec<u8> {
    let chars = char_table(vocabulary);
    let n_tokens = vocabulary.len();
    let counts = [
        n_tokens,
        vocabulary.text_bytes(),
        added.len(),
        chars.len(),
        merges.len(),
        spans.len(),
    ];
    let total = HEADER_BYTES
        + 12 * n_tokens
        + counts[1]
        + 4 * added.len()
        + 4 * 256
        + 8 * chars.len()
        + 12 * merges.len()
        + 8 * spans.len();
    let mut image = Vec::with_capacity(total);
    image.extend_from_slice(&MAGIC);
    put(&mut image, [VERSION, flags]);
    // The largest tokenizer.json bounds every count far below 2^32.
    put(&mut image, counts.map(|n| n as u32));
    image.extend_from_slice(&[0; 4]);
    image.resize(HEADER_BYTES, 0);
    put(&mut image, vocabulary.ends());
    vocabulary.write_text(&mut image);
    put(&mut image, vocabulary.by_text());
    put(
        &mut image,
        added
            .iter()
            .map(|(id, special)| if *special { id | SPECIAL_BIT } else { *id }),
    );
    put(&mut image, bytes.iter().copied());
    put(
        &mut image,
        chars.iter().flat_map(|(scalar, id)| [*scalar, *id]),
    );
    let mut merge = 0;
    put(
        &mut image,
        (0..n_tokens as u32).map(|left| {
            merge += merges[merge..]
                .iter()
                .take_while(|m| m.left == left)
                .count();
            merge as u32
        }),
    );
    put(
        &mut image,
        merges.iter().flat_map(|m| [m.right, m.rank, m.result]),
    );
    put(&mut image, spans.iter().flat_map(|(id, at)| [*id, *at]));
    debug_assert_eq!(image.len(), total);
    image::seal(&mut image);
    image
}

fn put(image: &mut Vec<u8>, words: impl IntoIterator<Item = u32>) {
    for word in words {
        image.extend_from_slice(&word.to_le_bytes());
    }
}

/// The tokens of one scalar value, hashed into twice as many slots.
fn char_table(vocabulary: &Vocabulary) -> Vec<(u32, u32)> {
    let single = |id: u32| {
        let mut chars = vocabulary.text(id).chars();
        chars
            .next()
            .filter(|_| chars.as_str().is_empty())
            .map(|c| (c, id))
    };
    let singles: Vec<(char, u32)> = (0..vocabulary.len() as u32).filter_map(single).collect();
    let mut slots = vec![(EMPTY_SLOT, 0); (2 * singles.len()).next_power_of_two()];
    for (c, id) in singles {
        let mut slot = image::char_slot(c, slots.len());
        while slots[slot].0 != EMPTY_SLOT {
            slot = (slot + 1) % slots.len();
        }
        slots[slot] = (c as u32, id);
    }
    slots
}

#[cfg(test)]
pub(crate) mod tests;
