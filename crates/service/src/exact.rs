//! What JSON would lose, or could not hold, on its way to another process.
//!
//! An f32 travels as the shortest decimal text that gives its bits back, infinities included. JSON that somebody else wrote, schemas and
//! arguments, travels as JSON text in a string: so it may nest as deep as where it came from, and its numbers stay what they are. A path
//! that is not UTF-8 travels as the system's own units.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ouzel::{IoMode, Precision, SamplerOptions};
use ouzel_tokenizer::Tool;
use ouzel_tokenizer::grammar::Demand;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// An f32 as text.
pub mod number {
    use super::*;

    pub fn serialize<S: Serializer>(value: &f32, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f32, D::Error> {
        parse(&String::deserialize(from)?)
    }

    pub fn parse<E: Error>(text: &str) -> Result<f32, E> {
        let value = text.parse();
        value.map_err(|_| E::custom(format!("{text:?} is no number")))
    }
}

/// Pairs of something and an f32.
pub mod pairs {
    use super::*;

    pub fn serialize<T: Serialize, S: Serializer>(
        pairs: &[(T, f32)],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(pairs.iter().map(|(what, value)| (what, value.to_string())))
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<(T, f32)>, D::Error> {
        let pairs: Vec<(T, String)> = Vec::deserialize(from)?;
        let pairs = pairs.into_iter();
        pairs
            .map(|(what, text)| Ok((what, number::parse(&text)?)))
            .collect()
    }
}

/// A time in whole nanoseconds.
pub mod nanoseconds {
    use super::*;
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        // Beyond 584 years the rest is lost.
        to.serialize_u64(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        Ok(Duration::from_nanos(u64::deserialize(from)?))
    }
}

/// JSON as text.
pub mod json {
    use super::*;
    use serde::de::DeserializeOwned;

    pub fn serialize<T: Serialize, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(value).map_err(serde::ser::Error::custom)?;
        to.serialize_str(&text)
    }

    pub fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        serde_json::from_str(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// A path.
pub mod path {
    use super::*;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Spelled {
        Text(String),
        Units(OsString),
    }

    pub fn serialize<S: Serializer>(path: &Path, to: S) -> Result<S::Ok, S::Error> {
        let spelled = match path.to_str() {
            Some(text) => Spelled::Text(text.to_owned()),
            None => Spelled::Units(path.as_os_str().to_owned()),
        };
        spelled.serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
        Ok(match Spelled::deserialize(from)? {
            Spelled::Text(text) => text.into(),
            Spelled::Units(units) => units.into(),
        })
    }
}

/// A path, or none.
pub mod optional_path {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Given(#[serde(with = "path")] PathBuf);

    pub fn serialize<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
        path.clone().map(Given).serialize(to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
        Ok(Option::deserialize(from)?.map(|Given(path)| path))
    }
}

/// How tokens are chosen.
#[derive(Serialize, Deserialize)]
#[serde(remote = "SamplerOptions")]
pub struct SamplerText {
    #[serde(with = "number")]
    temperature: f32,
    top_k: u32,
    #[serde(with = "number")]
    top_p: f32,
    #[serde(with = "number")]
    min_p: f32,
    #[serde(with = "number")]
    repetition_penalty: f32,
    #[serde(with = "number")]
    presence_penalty: f32,
    #[serde(with = "number")]
    frequency_penalty: f32,
    seed: Option<u64>,
}

/// How weights are read.
#[derive(Serialize, Deserialize)]
#[serde(remote = "IoMode", rename_all = "snake_case")]
pub enum IoModeText {
    Auto,
    Direct,
    Buffered,
}

/// How activations and the KV cache are kept.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Precision", rename_all = "snake_case")]
pub enum PrecisionText {
    Exact,
    Fast,
}

/// What an answer must look like.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DemandText {
    JsonObject,
    JsonSchema {
        #[serde(with = "json")]
        schema: Value,
    },
    JsonOrTools {
        #[serde(with = "json")]
        schema: Value,
        tools: Vec<ToolText>,
        parallel: bool,
    },
    Tools {
        tools: Vec<ToolText>,
        at_least_one: bool,
        only: Option<String>,
        parallel: bool,
    },
}

/// A tool that the model may call.
#[derive(Serialize, Deserialize)]
pub struct ToolText {
    name: String,
    description: Option<String>,
    parameters: Option<JsonText>,
    strict: bool,
}

#[derive(Serialize, Deserialize)]
struct JsonText(#[serde(with = "json")] Value);

impl DemandText {
    pub fn serialize<S: Serializer>(demand: &Option<Demand>, to: S) -> Result<S::Ok, S::Error> {
        let spelled = demand.clone().map(DemandText::from);
        Serialize::serialize(&spelled, to)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Demand>, D::Error> {
        let spelled: Option<DemandText> = Deserialize::deserialize(from)?;
        Ok(spelled.map(Demand::from))
    }
}

impl From<Demand> for DemandText {
    fn from(demand: Demand) -> DemandText {
        let texts = |tools: Vec<Tool>| tools.into_iter().map(ToolText::from).collect();
        match demand {
            Demand::JsonObject => DemandText::JsonObject,
            Demand::JsonSchema(schema) => DemandText::JsonSchema { schema },
            Demand::JsonOrTools {
                schema,
                tools,
                parallel,
            } => DemandText::JsonOrTools {
                schema,
                tools: texts(tools),
                parallel,
            },
            Demand::Tools {
                tools,
                at_least_one,
                only,
                parallel,
            } => DemandText::Tools {
                tools: texts(tools),
                at_least_one,
                only,
                parallel,
            },
        }
    }
}

impl From<DemandText> for Demand {
    fn from(spelled: DemandText) -> Demand {
        let tools = |texts: Vec<ToolText>| texts.into_iter().map(Tool::from).collect();
        match spelled {
            DemandText::JsonObject => Demand::JsonObject,
            DemandText::JsonSchema { schema } => Demand::JsonSchema(schema),
            DemandText::JsonOrTools {
                schema,
                tools: texts,
                parallel,
            } => Demand::JsonOrTools {
                schema,
                tools: tools(texts),
                parallel,
            },
            DemandText::Tools {
                tools: texts,
                at_least_one,
                only,
                parallel,
            } => Demand::Tools {
                tools: tools(texts),
                at_least_one,
                only,
                parallel,
            },
        }
    }
}

impl From<Tool> for ToolText {
    fn from(tool: Tool) -> ToolText {
        ToolText {
            name: tool.name,
            description: tool.description,
            parameters: tool.parameters.map(JsonText),
            strict: tool.strict,
        }
    }
}

impl From<ToolText> for Tool {
    fn from(text: ToolText) -> Tool {
        Tool {
            name: text.name,
            description: text.description,
            parameters: text.parameters.map(|JsonText(value)| value),
            strict: text.strict,
        }
    }
}
