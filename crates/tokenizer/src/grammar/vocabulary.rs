//! A model's tokens as llguidance takes them: bytes, in a trie.

use super::GrammarError;
use crate::call;
use crate::tokenizer::Tokenizer;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use std::sync::Arc;

/// Longer tokens are never allowed under a grammar: llguidance's nodes count at most 1,024 levels. Gemma's longest has 93 bytes.
const MAX_TOKEN_BYTES: usize = 512;
/// Nodes of a trie that llguidance can count; there are never more than bytes. Gemma's tokens have 1.8 million bytes.
const MAX_BYTES: usize = 1 << 22;
/// llguidance keeps the trie of the environment and two more for its one slice, all of the same size; to build them takes one more, which
/// an allocator may not give back. Gemma's 262,144 tokens: 30.0 MB kept, 40 MB with that, and 41 MB more resident memory measured.
const N_TRIES: usize = 3 + 1;
/// Bytes of a node, of a token's place, and of its rank in the trie's order.
const NODE_BYTES: usize = 8;
const TOKEN_BYTES: usize = 8 + 4;

/// Control tokens that a constraint must know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    pub n_tokens: usize,
    pub channel_opens: u32,
    pub channel_closes: u32,
    pub call_opens: u32,
    pub call_closes: u32,
    pub quote: u32,
    pub turn_opens: u32,
    pub turn_closes: u32,
    /// What ends the model's turn so that a tool may answer.
    pub response_opens: Option<u32>,
    /// What ends a tool's answer, behind which the model may think again.
    pub response_closes: Option<u32>,
    /// What ends a text.
    pub eos: Option<u32>,
}

/// What is known of a vocabulary before its trie is built.
#[derive(Debug)]
pub(super) struct Vocabulary {
    ids: Ids,
    trie_bytes: usize,
}

impl Vocabulary {
    pub fn of(tokenizer: &Tokenizer) -> Result<Vocabulary, GrammarError> {
        let id = |name: &str| {
            tokenizer
                .id_of(name)
                .ok_or_else(|| GrammarError::Vocabulary(format!("there is no {name}")))
        };
        let ids = Ids {
            n_tokens: tokenizer.vocab_size(),
            channel_opens: id("<|channel>")?,
            channel_closes: id("<channel|>")?,
            call_opens: id(call::OPENS)?,
            call_closes: id(call::CLOSES)?,
            quote: id(call::QUOTE)?,
            turn_opens: id("<|turn>")?,
            turn_closes: id("<turn|>")?,
            response_opens: tokenizer.id_of("<|tool_response>"),
            response_closes: tokenizer.id_of("<tool_response|>"),
            eos: tokenizer.id_of("<eos>"),
        };
        let (n_bytes, n_nodes) = sizes(tokenizer);
        if n_bytes > MAX_BYTES {
            return Err(GrammarError::Vocabulary(format!(
                "its tokens have {n_bytes} bytes, more than {MAX_BYTES}"
            )));
        }
        let trie = n_bytes + NODE_BYTES * n_nodes + TOKEN_BYTES * ids.n_tokens;
        Ok(Vocabulary {
            ids,
            trie_bytes: N_TRIES * trie,
        })
    }

    pub fn ids(&self) -> Ids {
        self.ids
    }

    pub fn trie_bytes(&self) -> usize {
        self.trie_bytes
    }

    pub fn environment(&self, tokenizer: &Tokenizer) -> TokEnv {
        let words: Vec<Vec<u8>> = (0..self.ids.n_tokens as u32)
            .map(|id| word(tokenizer, id))
            .collect();
        let info = TokRxInfo::new(words.len() as u32, self.ids.turn_closes);
        Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)))
    }
}

/// The marks of a vocabulary that has single bytes and them only.
pub(super) const BYTES_ALONE: Ids = Ids {
    n_tokens: 256 + MARKS.len(),
    channel_opens: 256,
    channel_closes: 257,
    call_opens: 258,
    call_closes: 259,
    quote: 260,
    turn_opens: 261,
    turn_closes: 262,
    response_opens: None,
    response_closes: None,
    eos: None,
};
/// In the order of their ids.
const MARKS: [&str; 7] = [
    "<|channel>",
    "<channel|>",
    call::OPENS,
    call::CLOSES,
    call::QUOTE,
    "<|turn>",
    "<turn|>",
];

/// That vocabulary.
pub(super) fn bytes_alone() -> TokEnv {
    let mark = |name: &&str| [&[TokTrie::SPECIAL_TOKEN_MARKER], name.as_bytes()].concat();
    let bytes = (0..=u8::MAX).map(|byte| vec![byte]);
    let words: Vec<Vec<u8>> = bytes.chain(MARKS.iter().map(mark)).collect();
    let info = TokRxInfo::new(words.len() as u32, BYTES_ALONE.turn_closes);
    Arc::new(ApproximateTokEnv::new(TokTrie::from(&info, &words)))
}

/// A token's bytes in the trie; empty for one that no grammar may use.
fn word(tokenizer: &Tokenizer, id: u32) -> Vec<u8> {
    let mut bytes = tokenizer.token_bytes(id).unwrap_or_default();
    if tokenizer.is_special(id) {
        bytes.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
    } else if bytes.len() == 1 && bytes[0].is_ascii() && tokenizer.is_byte(id) {
        // The same byte as a token of its own, which is the one the model writes.
        let text = (bytes[0] as char).to_string();
        if tokenizer.id_of(&text).is_some() || bytes[0] == b' ' {
            bytes.clear();
        }
    }
    if bytes.len() > MAX_TOKEN_BYTES {
        bytes.clear();
    }
    bytes
}

/// Bytes of all words, and nodes of their trie: one for each byte that a word does not share with the one before it in order.
fn sizes(tokenizer: &Tokenizer) -> (usize, usize) {
    let mut words: Vec<Vec<u8>> = (0..tokenizer.vocab_size() as u32)
        .map(|id| word(tokenizer, id))
        .collect();
    words.sort_unstable();
    let (mut n_bytes, mut n_nodes) = (0, 1);
    let mut before: &[u8] = &[];
    for word in &words {
        let shared = before.iter().zip(word).take_while(|(a, b)| a == b).count();
        n_bytes += word.len();
        n_nodes += word.len() - shared;
        before = word;
    }
    (n_bytes, n_nodes)
}
