//! One turn of the model, as the engine is asked for it and as it answers: the words between the doors and the worker.
//!
//! A door turns a request of its API into a [`Turn`] and pieces of the answer into its own events. Nothing here knows a wire format, and
//! nothing that a request could say wrong gets this far. What whoever owns the model needs of it is the decode service's.

use ouzel_tokenizer::Conversation;
use serde_json::Value;

pub use ouzel_service::Experts;
pub use ouzel_service::turn::{
    Cost, End, Outcome, Piece, Settings, Spent, Step, TokenLogprob, Usage,
};

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
