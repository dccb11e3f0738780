//! A whole answer, put together from its pieces, for doors that send it at once and for events that repeat it at the end.

use serde_json::{Map, Value};

use crate::error::Refusal;
use crate::ids;
use crate::ticket::{Event, Ticket};
use crate::turn::{End, Outcome, Piece, TokenLogprob};

/// What every answer says of itself.
#[derive(Clone, Debug)]
pub struct Head {
    /// The answer's id without the prefix that each API has.
    pub id: String,
    /// Seconds since 1970.
    pub created: u64,
    /// The name of the model.
    pub model: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// What the model thinks.
    Thinking(String),
    /// What it says.
    Text(String),
    /// What it calls.
    Call(Call),
}

/// A tool call with the id that this server gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The id without the prefix that each API has.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
}

impl Call {
    /// A new call.
    pub fn new(name: String, arguments: Map<String, Value>) -> Call {
        Call {
            id: ids::new(),
            name,
            arguments,
        }
    }

    /// The arguments as the text that OpenAI's APIs want.
    pub fn arguments_text(&self) -> String {
        Value::Object(self.arguments.clone()).to_string()
    }
}

/// An answer so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// Its parts in order; neighbours of one kind are one part.
    pub blocks: Vec<Block>,
    /// Log probabilities of the tokens that its text came from.
    pub logprobs: Vec<TokenLogprob>,
    held: HeldLogprobs,
}

impl Answer {
    /// Takes the next piece.
    pub fn push(&mut self, piece: Piece) {
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Token(token) => self.held.push(token),
            Piece::Thinking(text) => {
                self.held.drop_all();
                match self.blocks.last_mut() {
                    Some(Block::Thinking(all)) => all.push_str(&text),
                    _ => self.blocks.push(Block::Thinking(text)),
                }
            }
            Piece::Text(text) => {
                self.logprobs.append(&mut self.held.take());
                match self.blocks.last_mut() {
                    Some(Block::Text(all)) => all.push_str(&text),
                    _ => self.blocks.push(Block::Text(text)),
                }
            }
            Piece::Call { name, arguments } => {
                self.held.drop_all();
                self.blocks.push(Block::Call(Call::new(name, arguments)));
            }
        }
    }

    /// All of its text.
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            Block::Text(text) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// All of its thinking.
    pub fn thinking(&self) -> String {
        let thoughts = self.blocks.iter().filter_map(|block| match block {
            Block::Thinking(text) => Some(text.as_str()),
            _ => None,
        });
        thoughts.collect()
    }

    /// Its calls.
    pub fn calls(&self) -> impl Iterator<Item = &Call> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call(call) => Some(call),
            _ => None,
        })
    }
}

/// Log probabilities of tokens whose text did not come yet. Those of thoughts and calls belong to no text and are dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeldLogprobs(Vec<TokenLogprob>);

impl HeldLogprobs {
    /// A token whose text may follow.
    pub fn push(&mut self, token: TokenLogprob) {
        self.0.push(token);
    }

    /// The tokens of the text that came now.
    pub fn take(&mut self) -> Vec<TokenLogprob> {
        std::mem::take(&mut self.0)
    }

    /// What came was no text.
    pub fn drop_all(&mut self) {
        self.0.clear();
    }
}

/// Waits for all of an answer.
///
/// # Errors
/// Why there is none.
pub async fn collect(mut ticket: Ticket) -> Result<(Answer, Outcome), Refusal> {
    let mut answer = Answer::default();
    loop {
        match ticket.next().await {
            Event::Piece(piece) => answer.push(piece),
            Event::Ended(Ok(outcome)) if outcome.end == End::Cancelled => {
                return Err(Refusal::Draining);
            }
            Event::Ended(result) => return Ok((answer, result?)),
        }
    }
}
