//! One turn of the model, as the engine is asked for it and as it answers: the words between the doors and the worker.
//!
//! A door turns a request of its API into a [`Turn`] and pieces of the answer into its own events. Nothing here knows a wire format, and
//! nothing that a request could say wrong gets this far.

use std::time::Duration;

use ouzel::SamplerOptions;
use ouzel_tokenizer::Conversation;
use serde_json::{Map, Value};

/// What the model shall answer, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// What is asked.
    pub ask: Ask,
    /// How the answer is made.
    pub settings: Settings,
    /// What the answer must look like.
    pub demand: Option<Demand>,
    /// What its parts are called where it came from.
    pub fields: Fields,
}

/// Names of a request's fields, for refusals of what only the model can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fields {
    /// What holds the prompt.
    pub prompt: &'static str,
    /// What holds the format of the answer.
    pub format: &'static str,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// The next turn of a conversation.
    Conversation(Conversation),
    /// How a text goes on.
    Text(String),
    /// How a sequence of token ids goes on.
    Ids(Vec<u32>),
}

/// How an answer is made.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The most new tokens; what the context leaves where nothing is said.
    pub max_new: Option<u32>,
    /// How each token is chosen.
    pub sampler: SamplerOptions,
    /// Texts that end the answer.
    pub stop: Vec<String>,
    /// Added to the logits of these ids.
    pub logit_bias: Vec<(u32, f32)>,
    /// How many alternatives to name beside each token's log probability; `None` where nobody wants to know.
    pub logprobs: Option<u8>,
    /// Whether an answer may hold more than one call.
    pub parallel_calls: bool,
}

/// What the answer must look like, by force of sampling.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// A JSON object.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema(Value),
    /// JSON that a schema describes, or calls of the conversation's tools.
    JsonOrTools(Value),
    /// Calls of the conversation's tools only as their schemas say.
    Tools {
        /// Whether there must be one.
        at_least_one: bool,
        /// The only tool that may be called.
        only: Option<String>,
    },
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
#[derive(Clone, Debug, PartialEq)]
pub struct TokenLogprob {
    /// Its text.
    pub token: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest tokens in its place.
    pub top: Vec<(String, f32)>,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub end: End,
    /// What it took in tokens.
    pub usage: Usage,
    /// What it took of the machine.
    pub cost: Cost,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Time for the prompt.
    pub prefill: Duration,
    /// Time for the new tokens.
    pub decode: Duration,
    /// Chosen experts found in memory.
    pub hits: u64,
    /// Chosen experts read.
    pub misses: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// The most bytes that the process ever had resident.
    pub peak_memory: Option<u64>,
}
