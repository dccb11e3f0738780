//! `/v1/responses`: what the Codex CLI and OpenAI's newer clients speak. Stateless: every request brings its whole conversation.

mod events;
mod input;
mod object;

use ouzel_tokenizer::{Conversation, Tool};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::checks::{self, only};
use super::openai::{
    Choice, Function, MAX_TOP_LOGPROBS, Sampling, demand_of_format, demand_of_tools, max_new,
    one_demand, thinks,
};
use super::text_or::TextOr;
use super::{Asked, Defaults, Ignored};
use crate::body;
use crate::error::Refusal;
use crate::turn::{Ask, Fields, Settings, Turn};
use input::Item;
use object::ResponseReply;

/// The entry of `include` that asks for log probabilities.
const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";
/// The entry of `include` that a server without secrets honours with nothing.
const INCLUDE_REASONING: &str = "reasoning.encrypted_content";

/// The request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResponsesRequest {
    /// The model; what `/v1/models` lists. Left out: the one that is served.
    pub model: Option<String>,
    /// A text, or items: messages, calls, results of calls, thoughts.
    pub input: TextOr<Item>,
    /// A system text before everything else.
    pub instructions: Option<String>,
    /// Whether the answer comes as server-sent events.
    pub stream: Option<bool>,
    /// Accepted; events are never padded.
    pub stream_options: Option<Ignored>,
    /// The most new tokens, thinking included.
    pub max_output_tokens: Option<u32>,
    /// 0 to 2.
    pub temperature: Option<f32>,
    /// Above 0, to 1.
    pub top_p: Option<f32>,
    /// How many alternatives to name beside each token, at most 20; `include` asks for them.
    pub top_logprobs: Option<u8>,
    /// What the model may call. Tools that a server would run are left out, with a warning.
    pub tools: Option<Vec<Value>>,
    /// `none`, `auto`, `required`, or an object that names a function.
    pub tool_choice: Option<Value>,
    /// Whether an answer may hold more than one call.
    pub parallel_tool_calls: Option<bool>,
    /// The format of the text.
    pub text: Option<TextConfig>,
    /// Whether the model thinks.
    pub reasoning: Option<Reasoning>,
    /// `message.output_text.logprobs`, `reasoning.encrypted_content`.
    pub include: Option<Vec<String>>,
    /// Given back with the response.
    pub metadata: Option<Value>,
    /// Only `disabled`.
    pub truncation: Option<String>,
    /// Only false.
    pub background: Option<bool>,
    /// Only null: nothing is stored.
    pub previous_response_id: Option<Value>,
    /// Only null: nothing is stored.
    pub conversation: Option<Value>,
    /// Only null: nothing is stored.
    pub prompt: Option<Value>,
    /// Only null: this server runs no tools.
    pub max_tool_calls: Option<Value>,
    /// Accepted; nothing is stored.
    pub store: Option<Ignored>,
    /// Accepted.
    pub user: Option<Ignored>,
    /// Accepted.
    pub service_tier: Option<Ignored>,
    /// Accepted.
    pub safety_identifier: Option<Ignored>,
    /// Accepted; prefixes are found without it.
    pub prompt_cache_key: Option<Ignored>,
    /// Accepted; prefixes are kept within the server's budget.
    pub prompt_cache_retention: Option<Ignored>,
    /// Accepted.
    pub client_metadata: Option<Ignored>,
}

/// `text`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TextConfig {
    /// `text`, `json_object` or `json_schema`.
    pub format: Option<Value>,
    /// Accepted: how long an answer gets is for the instructions to say.
    pub verbosity: Option<Ignored>,
}

/// `reasoning`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reasoning {
    /// `none` and `minimal`: no thinking; `low`, `medium`, `high`: thinking.
    pub effort: Option<String>,
    /// Accepted; thoughts come as they are.
    pub summary: Option<Ignored>,
    /// The older name.
    pub generate_summary: Option<Ignored>,
    /// Accepted.
    pub context: Option<Ignored>,
}

/// Reads a request.
///
/// # Errors
/// [`Refusal::Invalid`] with the first field that cannot be honoured.
pub fn parse(bytes: &[u8], defaults: &Defaults) -> Result<Asked, Refusal> {
    let request: ResponsesRequest = body::parse(bytes)?;
    check_stateless(&request)?;
    let logprobs = logprobs(request.include.as_deref(), request.top_logprobs)?;
    let sampler = Sampling {
        temperature: request.temperature,
        top_p: request.top_p,
        ..Sampling::default()
    }
    .check(defaults)?;
    let (mut tools, warnings) = tools(request.tools.as_deref().unwrap_or_default())?;
    let choice = Choice::parse(request.tool_choice.as_ref(), &tools)?;
    let of_tools = demand_of_tools(choice, &mut tools);
    let format = request.text.and_then(|text| text.format);
    let of_format = demand_of_format("text.format", None, format.as_ref())?;
    let demand = one_demand(of_tools, of_format, !tools.is_empty());
    let parallel_calls = request.parallel_tool_calls.unwrap_or(true);
    let effort = request.reasoning.and_then(|reasoning| reasoning.effort);
    let reply = ResponseReply {
        base: json!({
            "instructions": request.instructions,
            "max_output_tokens": request.max_output_tokens,
            "max_tool_calls": null,
            "metadata": request.metadata.unwrap_or_else(|| json!({})),
            "parallel_tool_calls": parallel_calls,
            "previous_response_id": null,
            "reasoning": { "effort": effort, "summary": null },
            "store": false,
            "temperature": decimal(sampler.temperature),
            "text": { "format": format.unwrap_or_else(|| json!({ "type": "text" })) },
            "tool_choice": request.tool_choice.unwrap_or_else(|| json!("auto")),
            "tools": request.tools.unwrap_or_default(),
            "top_p": decimal(sampler.top_p),
            "top_logprobs": logprobs.unwrap_or(0),
            "truncation": "disabled",
        }),
    };
    let thinking = thinks("reasoning.effort", effort.as_deref())?.unwrap_or(false);
    let messages = input::messages(request.instructions, request.input)?;
    Ok(Asked {
        model: request.model,
        turn: Turn {
            ask: Ask::Conversation(Conversation {
                messages,
                tools,
                thinking,
            }),
            settings: Settings {
                max_new: max_new("max_output_tokens", request.max_output_tokens)?,
                sampler,
                stop: Vec::new(),
                logit_bias: Vec::new(),
                logprobs,
                parallel_calls,
            },
            demand,
            fields: Fields {
                prompt: "input",
                format: "text.format",
            },
        },
        warnings,
        stream: request.stream.unwrap_or(false),
        reply: Box::new(reply),
    })
}

/// A number as it was written: 0.95, which is not an f32, and not the f32 beside it.
fn decimal(number: f32) -> Option<f64> {
    number.to_string().parse().ok()
}

fn check_stateless(request: &ResponsesRequest) -> Result<(), Refusal> {
    for (field, is_there) in [
        (
            "previous_response_id",
            request.previous_response_id.is_some(),
        ),
        ("conversation", request.conversation.is_some()),
        ("prompt", request.prompt.is_some()),
    ] {
        if is_there {
            return Err(Refusal::invalid(
                field,
                format!(
                    "{field}: this server stores nothing; send the whole conversation as input"
                ),
            ));
        }
    }
    if request.max_tool_calls.is_some() {
        return Err(Refusal::invalid(
            "max_tool_calls",
            "max_tool_calls: this server runs no tools; leave it out",
        ));
    }
    only("background", request.background, &[false])?;
    only("truncation", request.truncation.as_deref(), &["disabled"])
}

/// How many alternatives are wanted, where log probabilities are.
fn logprobs(include: Option<&[String]>, top: Option<u8>) -> Result<Option<u8>, Refusal> {
    let include = include.unwrap_or_default();
    let known = |entry: &&String| [INCLUDE_LOGPROBS, INCLUDE_REASONING].contains(&entry.as_str());
    if let Some(other) = include.iter().find(|entry| !known(entry)) {
        return Err(Refusal::invalid(
            "include",
            format!(
                "include has {other:?}; this server honours {INCLUDE_LOGPROBS} and {INCLUDE_REASONING}"
            ),
        ));
    }
    let top = checks::number("top_logprobs", top, 0..=MAX_TOP_LOGPROBS, 0)?;
    if include.iter().any(|entry| entry == INCLUDE_LOGPROBS) {
        return Ok(Some(top));
    }
    if top > 0 {
        return Err(Refusal::invalid(
            "top_logprobs",
            format!("top_logprobs needs {INCLUDE_LOGPROBS} in include"),
        ));
    }
    Ok(None)
}

/// Functions are flat here. What a server would run itself is never called: Codex offers such tools beside its own, whatever the model.
fn tools(values: &[Value]) -> Result<(Vec<Tool>, Vec<String>), Refusal> {
    let (mut tools, mut warnings) = (Vec::new(), Vec::new());
    for (i, value) in values.iter().enumerate() {
        let at = format!("tools[{i}]");
        let mut fields = match value {
            Value::Object(fields) => fields.clone(),
            _ => return Err(Refusal::invalid(&at, format!("{at}: expected an object"))),
        };
        let kind = fields.remove("type");
        match kind.as_ref().and_then(Value::as_str) {
            Some("function") => {
                let function: Function = body::parse_part(&at, Value::Object(fields))?;
                tools.push(function.into_tool(&at)?);
            }
            Some(kind) => warnings.push(format!("{at} is of the type {kind}, which this server does not run; the model does not see it")),
            None => return Err(Refusal::invalid(format!("{at}.type"), format!("{at}.type: this field is needed"))),
        }
    }
    Ok((tools, warnings))
}
