//! What OpenAI's doors share: tools, the choice among them, the format of an answer, sampling.

use ouzel::SamplerOptions;
use ouzel_tokenizer::Tool;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::checks::{number, positive};
use super::{Defaults, Ignored};
use crate::error::Refusal;
use crate::turn::Demand;

/// The largest `top_logprobs`.
pub const MAX_TOP_LOGPROBS: u8 = 20;

/// A function as chat completions wrap it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a function, an object with a name")]
pub struct Function {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The JSON schema of its arguments.
    pub parameters: Option<Value>,
    /// Whether arguments must follow the schema to the letter.
    pub strict: Option<bool>,
}

impl Function {
    /// As the domain says it.
    pub fn into_tool(self, param: &str) -> Result<Tool, Refusal> {
        if self.name.is_empty() {
            return Err(Refusal::invalid(
                format!("{param}.name"),
                format!("{param}.name is empty"),
            ));
        }
        Ok(Tool {
            name: self.name,
            description: self.description,
            parameters: self.parameters.filter(|schema| !schema.is_null()),
            strict: self.strict.unwrap_or(false),
        })
    }
}

/// Which tools may be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// None.
    None,
    /// As the model likes.
    Auto,
    /// At least one.
    Required,
    /// This one.
    Named(String),
}

impl Choice {
    /// Reads `none`, `auto`, `required`, or an object that names a function, in either API's form.
    pub fn parse(value: Option<&Value>, tools: &[Tool]) -> Result<Choice, Refusal> {
        const PARAM: &str = "tool_choice";
        let choice = match value {
            None | Some(Value::Null) => return Ok(Choice::Auto),
            Some(Value::String(word)) => match word.as_str() {
                "none" => Choice::None,
                "auto" => Choice::Auto,
                "required" => Choice::Required,
                other => {
                    return Err(Refusal::invalid(
                        PARAM,
                        format!(
                            "{PARAM} is {other:?}; this server honours none, auto, required, or an object that names a function"
                        ),
                    ));
                }
            },
            Some(object) => {
                let name = object["function"]["name"]
                    .as_str()
                    .or(object["name"].as_str());
                match (object["type"].as_str(), name) {
                    (Some("function"), Some(name)) => Choice::Named(name.to_owned()),
                    _ => {
                        return Err(Refusal::invalid(
                            PARAM,
                            format!(
                                "{PARAM}: this server honours objects with the type function and a name"
                            ),
                        ));
                    }
                }
            }
        };
        match &choice {
            Choice::Named(name) if !tools.iter().any(|tool| tool.name == *name) => {
                Err(Refusal::invalid(
                    PARAM,
                    format!("{PARAM} names {name:?}, which is not in tools"),
                ))
            }
            Choice::Required if tools.is_empty() => Err(Refusal::invalid(
                PARAM,
                format!("{PARAM} is required, and tools has none"),
            )),
            _ => Ok(choice),
        }
    }
}

/// The tools that the model sees and what its calls must look like.
pub fn demand_of_tools(choice: Choice, tools: &mut Vec<Tool>) -> Option<Demand> {
    if choice == Choice::None {
        // What the model does not see it cannot call.
        tools.clear();
    }
    let is_strict = tools.iter().any(|tool| tool.strict);
    match choice {
        Choice::None => None,
        Choice::Auto => is_strict.then_some(Demand::Tools {
            at_least_one: false,
            only: None,
        }),
        Choice::Required => Some(Demand::Tools {
            at_least_one: true,
            only: None,
        }),
        Choice::Named(name) => Some(Demand::Tools {
            at_least_one: true,
            only: Some(name),
        }),
    }
}

/// What the text of an answer must be; `wrapper` is the field in which the API has the schema, if not beside the type.
pub fn demand_of_format(
    param: &str,
    wrapper: Option<&str>,
    format: Option<&Value>,
) -> Result<Option<Demand>, Refusal> {
    let Some(format) = format.filter(|format| !format.is_null()) else {
        return Ok(None);
    };
    match format["type"].as_str() {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Demand::JsonObject)),
        Some("json_schema") => {
            // Either way of either API is understood; what is missing is asked for in the API's own.
            let wrapped = &format["json_schema"];
            let (inside, param) = match wrapper {
                _ if wrapped.is_object() => (wrapped, format!("{param}.json_schema.schema")),
                Some(wrapper) if format.get("schema").is_none() => {
                    (wrapped, format!("{param}.{wrapper}"))
                }
                _ => (format, format!("{param}.schema")),
            };
            match &inside["schema"] {
                schema @ Value::Object(_) => Ok(Some(Demand::JsonSchema(schema.clone()))),
                _ => Err(Refusal::invalid(
                    &param,
                    format!("{param}: a JSON schema is needed here"),
                )),
            }
        }
        other => Err(Refusal::invalid(
            format!("{param}.type"),
            format!(
                "{param}.type is {}; this server honours text, json_object and json_schema",
                other.unwrap_or("missing")
            ),
        )),
    }
}

/// One demand of two: a call that must come leaves no room for JSON, one that may come stands in its place.
pub fn one_demand(
    of_tools: Option<Demand>,
    of_format: Option<Demand>,
    has_tools: bool,
) -> Option<Demand> {
    let must_call = matches!(
        of_tools,
        Some(Demand::Tools {
            at_least_one: true,
            ..
        })
    );
    match of_format {
        None => of_tools,
        Some(_) if must_call => of_tools,
        Some(Demand::JsonObject) if has_tools => {
            Some(Demand::JsonOrTools(json!({ "type": "object" })))
        }
        Some(Demand::JsonSchema(schema)) if has_tools => Some(Demand::JsonOrTools(schema)),
        of_format => of_format,
    }
}

/// How a sampler is asked for, in every API.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sampling {
    /// 0 to 2.
    pub temperature: Option<f32>,
    /// Above 0, to 1.
    pub top_p: Option<f32>,
    /// 0 keeps all.
    pub top_k: Option<u32>,
    /// 0 to 1.
    pub min_p: Option<f32>,
    /// -2 to 2.
    pub presence_penalty: Option<f32>,
    /// -2 to 2.
    pub frequency_penalty: Option<f32>,
    /// Above 0, to 10.
    pub repetition_penalty: Option<f32>,
    /// Any.
    pub seed: Option<i64>,
}

impl Sampling {
    /// Checked, with defaults.
    pub fn check(self, defaults: &Defaults) -> Result<SamplerOptions, Refusal> {
        let base = &defaults.sampler;
        Ok(SamplerOptions {
            temperature: number("temperature", self.temperature, 0.0..=2.0, base.temperature)?,
            top_p: positive("top_p", self.top_p, 1.0, base.top_p)?,
            top_k: self.top_k.unwrap_or(base.top_k),
            min_p: number("min_p", self.min_p, 0.0..=1.0, base.min_p)?,
            repetition_penalty: positive(
                "repetition_penalty",
                self.repetition_penalty,
                10.0,
                base.repetition_penalty,
            )?,
            presence_penalty: number(
                "presence_penalty",
                self.presence_penalty,
                -2.0..=2.0,
                base.presence_penalty,
            )?,
            frequency_penalty: number(
                "frequency_penalty",
                self.frequency_penalty,
                -2.0..=2.0,
                base.frequency_penalty,
            )?,
            // A seed is 64 bits, whatever its sign says.
            seed: self.seed.map(|seed| seed as u64).or(base.seed),
        })
    }
}

/// `logit_bias`: ids, as texts, and what is added to their logits.
pub fn logit_bias(map: Option<Map<String, Value>>) -> Result<Vec<(u32, f32)>, Refusal> {
    let entry = |(id, bias): (String, Value)| {
        let param = format!("logit_bias.{id}");
        let id = id.parse().map_err(|_| {
            Refusal::invalid(&param, format!("{param}: the key must be a token id"))
        })?;
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        let bias = bias.ok_or_else(|| {
            Refusal::invalid(
                &param,
                format!("{param}: expected a number from -100 to 100"),
            )
        })?;
        Ok((id, bias as f32))
    };
    map.unwrap_or_default().into_iter().map(entry).collect()
}

/// Whether the model thinks: `none` and `minimal` say no.
pub fn thinks(param: &str, effort: Option<&str>) -> Result<Option<bool>, Refusal> {
    match effort {
        None => Ok(None),
        Some("none" | "minimal") => Ok(Some(false)),
        Some("low" | "medium" | "high" | "xhigh" | "max") => Ok(Some(true)),
        Some(other) => Err(Refusal::invalid(
            param,
            format!(
                "{param} is {other:?}; this server honours none and minimal (no thinking), low, medium and high (thinking)"
            ),
        )),
    }
}

/// The most new tokens; 0 would be no answer.
pub fn max_new(param: &str, value: Option<u32>) -> Result<Option<u32>, Refusal> {
    match value {
        Some(0) => Err(Refusal::invalid(
            param,
            format!("{param} is 0; an answer has at least one token"),
        )),
        value => Ok(value),
    }
}

/// `stream_options`
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StreamOptions {
    /// Whether a last event says how many tokens it took.
    pub include_usage: Option<bool>,
    /// Accepted; events are never padded.
    pub include_obfuscation: Option<Ignored>,
}
