//! `/tokenize` and `/detokenize`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A text to become ids.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenizeRequest {
    /// The text.
    pub content: String,
    /// Whether control tokens in it count as such; true where nothing is said.
    pub parse_special: Option<bool>,
}

/// Ids.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Tokens {
    /// The ids.
    pub tokens: Vec<u32>,
}

/// Ids to become a text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DetokenizeRequest {
    /// The ids.
    pub tokens: Vec<u32>,
}

/// A text.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Content {
    /// The text.
    pub content: String,
}
