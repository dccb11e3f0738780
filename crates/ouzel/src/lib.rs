//! Run Gemma 4 mixture-of-experts models in a memory budget you name.
//!
//! ```no_run
//! use ouzel::{Cancel, Event, GenerateOptions, Message, Model, Options};
//!
//! # fn main() -> Result<(), ouzel::Error> {
//! let options = Options { memory: Some(2 << 30), ..Options::default() };
//! let model = Model::open("gemma.gturbo", &options)?;
//! let mut session = model.session(&options)?;
//! let mut messages = vec![Message::user("What is a fieldfare?")];
//! let mut answer = String::new();
//! for event in session.chat(&messages, &GenerateOptions::default(), &Cancel::new())? {
//!     match event? {
//!         Event::Answer(text) => answer += &text,
//!         Event::Done(stats) => eprintln!("{} new tokens", stats.new_tokens),
//!         _ => {}
//!     }
//! }
//! messages.push(Message::assistant(answer));
//! # Ok(())
//! # }
//! ```
//!
//! [`Model::open`] reads what is small, [`Model::plan_budget`] says how a session would spend its memory, [`Model::session`] spends
//! it. [`Session::chat`], [`Session::complete`] and [`Session::generate`] give an iterator of [`Event`]s that a [`Cancel`] handle
//! stops from anywhere. Hand in the whole conversation each turn: a session computes only what it does not hold yet.
//!
//! This crate joins engine, tokenizer, format and storage. It prints nothing, reads no environment variable, and knows no network.

mod cache;
mod cancel;
mod constraint;
mod error;
pub mod fuzz;
mod generation;
mod message;
mod model;
mod options;
mod prefix;
mod score;
mod session;
mod stats;
mod text;
mod token_sequence;

pub use cancel::Cancel;
pub use constraint::TokenConstraint;
pub use error::{Error, TextError};
pub use generation::{Event, Generation};
pub use message::{Message, Role, UnknownRole};
pub use model::{Model, Prompt};
pub use options::{GenerateOptions, Options, PrefixOptions};
pub use ouzel_engine::{
    Budget, BudgetLine, Config, EngineError, Experts, IoMode, Isa, MAX_LOGPROBS, Precision,
    ReadMode, SamplerOptions,
};
pub use ouzel_tokenizer::{
    ChatMessage, Conversation, RenderInput, Tool, ToolCall, ToolContent, Warning,
};
pub use prefix::PrefixStats;
pub use score::Score;
pub use session::Session;
pub use stats::{SoFar, Stats, StopReason, resident_memory, resident_memory_of};
pub use token_sequence::{N_TOPICS, token_sequence, topic_of};
