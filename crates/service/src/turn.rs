//! A turn as a loaded model is asked for it and as it answers: the words that whoever owns the model and whoever asks it share.
//!
//! All of them travel between two processes, exactly: `exact` says how what JSON could not carry does.

use std::time::Duration;

use ouzel::SamplerOptions;
use ouzel_tokenizer::grammar::Demand;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::exact::{self, DemandText, SamplerText};
use crate::experts::Experts;

/// A turn that the model can begin at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Generate {
    /// Its number, by which it can be cancelled.
    pub turn: u64,
    /// The prompt.
    pub ids: Vec<u32>,
    /// How the answer is made.
    pub settings: Settings,
    /// The names of the tools that the prompt offers.
    pub tool_names: Vec<String>,
    /// What the answer must look like.
    #[serde(with = "DemandText")]
    pub demand: Option<Demand>,
}

/// How an answer is made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The most new tokens; what the context leaves where nothing is said.
    pub max_new: Option<u32>,
    /// How each token is chosen.
    #[serde(with = "SamplerText")]
    pub sampler: SamplerOptions,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Added to the logits of these ids.
    #[serde(with = "exact::pairs")]
    pub logit_bias: Vec<(u32, f32)>,
    /// How many alternatives to name beside each token's log probability; `None` where nobody wants to know.
    pub logprobs: Option<u8>,
    /// Whether an answer may hold more than one call.
    pub parallel_calls: bool,
}

/// What happens while an answer is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// What it took until now; before the pieces that came of it.
    Spent(Spent),
    /// How the experts lie, and what became of them since this was last said; twice a second at most, and at the end.
    Experts(Experts),
    /// A piece of it.
    Piece(Piece),
    /// Its end. The engine may go on for a moment, to keep what it computed; nobody waits for that but the next turn.
    Done(Outcome),
}

/// A piece of an answer, in the order in which the model makes it.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// So much of the prompt is computed.
    Prompt {
        /// Tokens done.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// A token, ahead of the text it gives; only where log probabilities are asked for.
    Token(TokenLogprob),
    /// What the model thinks.
    Thinking(String),
    /// What it answers.
    Text(String),
    /// A tool that it calls.
    Call {
        /// The tool's name.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
}

impl Piece {
    /// The bytes of it that wait in memory for a reader.
    pub fn weight_bytes(&self) -> usize {
        // What an entry of a channel costs beside its text.
        const OVERHEAD: usize = 64;
        OVERHEAD
            + match self {
                Piece::Prompt { .. } => 0,
                Piece::Token(token) => OVERHEAD * (1 + token.top.len()),
                Piece::Thinking(text) | Piece::Text(text) => text.len(),
                Piece::Call { name, arguments } => {
                    name.len()
                        + arguments
                            .iter()
                            .map(|(k, v)| k.len() + size_of_json(v))
                            .sum::<usize>()
                }
            }
    }
}

fn size_of_json(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(size_of_json).sum(),
            Value::Object(map) => map.iter().map(|(k, v)| k.len() + size_of_json(v)).sum(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

/// A token and how likely it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Its text.
    pub token: String,
    /// Natural logarithm of its probability.
    #[serde(with = "exact::number")]
    pub logprob: f32,
    /// The likeliest tokens in its place.
    #[serde(with = "exact::pairs")]
    pub top: Vec<(String, f32)>,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// What it took in tokens.
    pub usage: Usage,
    /// What it took of the machine.
    pub cost: Cost,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The model was done.
    Stop,
    /// The answer came to this text.
    StopText(String),
    /// The most new tokens, or the time limit.
    Length,
    /// The context is full.
    ContextFull,
    /// Nobody wants it any more.
    Cancelled,
}

/// Tokens of one answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of the prompt.
    pub prompt: usize,
    /// Of those, held from before.
    pub cached: usize,
    /// Written by the model.
    pub new: usize,
    /// Of those, thinking.
    pub reasoning: usize,
}

/// What one answer took of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Time for the prompt.
    #[serde(rename = "prefill_ns", with = "exact::nanoseconds")]
    pub prefill: Duration,
    /// Time for the new tokens.
    #[serde(rename = "decode_ns", with = "exact::nanoseconds")]
    pub decode: Duration,
    /// Chosen experts found in memory.
    pub hits: u64,
    /// Chosen experts read.
    pub misses: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// The most bytes that the process with the model ever had resident.
    pub peak_memory: Option<u64>,
}

/// What an answer took until now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// In tokens.
    pub usage: Usage,
    /// Of the machine.
    pub cost: Cost,
}
