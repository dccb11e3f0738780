//! The wire: each API's types, how its requests become turns, and how answers become its responses and events.
//!
//! Nothing outside of this module knows a wire format. Requests are typed, and a field that is not in the type is refused by name; what is
//! accepted and has no effect is in the type as [`Ignored`], so that the description at `/openapi.json` says so.

pub mod chat;
pub mod completions;
pub mod messages;
pub mod models;
pub mod openapi;
pub mod page;
pub mod responses;
pub mod setup;
pub mod tokens;

mod checks;
mod envelope;
mod openai;
mod text_or;

pub use envelope::{Shape, json_response};

use ouzel::SamplerOptions;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserialize, Deserializer, IgnoredAny};
use serde_json::Value;

use crate::answer::{Answer, Head};
use crate::sse::Voice;
use crate::turn::{Outcome, Turn};

/// What is meant where a request says nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// How tokens are chosen.
    pub sampler: SamplerOptions,
}

/// A request that a door understood.
pub struct Asked {
    /// The model by its name in the request.
    pub model: Option<String>,
    /// What is asked of it.
    pub turn: Turn,
    /// What could be left out of the request so that the rest can be served.
    pub warnings: Vec<String>,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// How the answer is said.
    pub reply: Box<dyn Reply>,
}

/// How one answer is said in one API.
pub trait Reply: Send {
    /// All at once.
    fn whole(self: Box<Self>, head: &Head, answer: &Answer, outcome: &Outcome) -> Value;
    /// Event by event.
    fn voice(self: Box<Self>, head: Head) -> Box<dyn Voice>;
}

/// A field that is accepted and has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ignored;

impl<'de> Deserialize<'de> for Ignored {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Ignored, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Ignored)
    }
}

impl JsonSchema for Ignored {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ignored".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({ "description": "Accepted; has no effect." })
    }
}
