//! `/v1/chat/completions`: the main door.

mod reply;

use ouzel_tokenizer::{ChatMessage as Message, Conversation, Tool, ToolCall, ToolContent};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::checks::{self, only};
use super::openai::{
    Choice, Function, MAX_TOP_LOGPROBS, Sampling, StreamOptions, demand_of_format, demand_of_tools,
    logit_bias, max_new, one_demand, thinks,
};
use super::text_or::TextOr;
use super::{Asked, Defaults, Ignored};
use crate::body;
use crate::error::Refusal;
use crate::turn::{Ask, Fields, Settings, Turn};

pub use reply::{ChatReply, finish_reason, token_logprob, usage};

/// The request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChatRequest {
    /// The model; what `/v1/models` lists. Left out: the one that is served.
    pub model: Option<String>,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// Whether the answer comes as server-sent events.
    pub stream: Option<bool>,
    /// For streams.
    pub stream_options: Option<StreamOptions>,
    /// The most new tokens; the older name.
    pub max_tokens: Option<u32>,
    /// The most new tokens, thinking included.
    pub max_completion_tokens: Option<u32>,
    /// 0 to 2; 0 always takes the most likely token.
    pub temperature: Option<f32>,
    /// Above 0, to 1.
    pub top_p: Option<f32>,
    /// Keep this many of the most likely tokens; 0 keeps all.
    pub top_k: Option<u32>,
    /// Keep tokens at least this many times as likely as the most likely one.
    pub min_p: Option<f32>,
    /// The same seed gives the same answer.
    pub seed: Option<i64>,
    /// Texts that end the answer, at most 16.
    pub stop: Option<TextOr<String>>,
    /// -2 to 2.
    pub presence_penalty: Option<f32>,
    /// -2 to 2.
    pub frequency_penalty: Option<f32>,
    /// Above 0, to 10; 1 does nothing.
    pub repetition_penalty: Option<f32>,
    /// Token ids and what is added to their logits, -100 to 100.
    pub logit_bias: Option<Map<String, Value>>,
    /// Whether log probabilities are wanted.
    pub logprobs: Option<bool>,
    /// How many alternatives to name beside each token, at most 20.
    pub top_logprobs: Option<u8>,
    /// 1.
    pub n: Option<u32>,
    /// What the model may call.
    pub tools: Option<Vec<ChatTool>>,
    /// `none`, `auto`, `required`, or an object that names a function.
    pub tool_choice: Option<Value>,
    /// Whether an answer may hold more than one call.
    pub parallel_tool_calls: Option<bool>,
    /// `text`, `json_object` or `json_schema`.
    pub response_format: Option<Value>,
    /// `none` and `minimal`: no thinking; `low`, `medium`, `high`: thinking.
    pub reasoning_effort: Option<String>,
    /// Only `enable_thinking`.
    pub chat_template_kwargs: Option<TemplateKwargs>,
    /// Only `text`.
    pub modalities: Option<Vec<String>>,
    /// Accepted.
    pub user: Option<Ignored>,
    /// Accepted.
    pub metadata: Option<Ignored>,
    /// Accepted; nothing is stored.
    pub store: Option<Ignored>,
    /// Accepted.
    pub service_tier: Option<Ignored>,
    /// Accepted.
    pub safety_identifier: Option<Ignored>,
    /// Accepted; prefixes are found without it.
    pub prompt_cache_key: Option<Ignored>,
    /// Accepted; prefixes are kept within the server's budget.
    pub prompt_cache_retention: Option<Ignored>,
}

/// `chat_template_kwargs`
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TemplateKwargs {
    /// Whether the model thinks first.
    pub enable_thinking: Option<bool>,
}

/// A message of any role.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a message, an object with role and content"
)]
pub struct ChatMessage {
    /// `system`, `developer`, `user`, `assistant` or `tool`.
    pub role: String,
    /// A text, or parts of the type `text`.
    pub content: Option<TextOr<Part>>,
    /// Of a tool result: the tool. Otherwise accepted.
    pub name: Option<String>,
    /// Of an assistant: what it called.
    pub tool_calls: Option<Vec<ChatToolCall>>,
    /// Of a tool result: which call it answers.
    pub tool_call_id: Option<String>,
    /// Of an assistant: what it thought.
    pub reasoning_content: Option<String>,
    /// The same by another name.
    pub reasoning: Option<String>,
    /// Accepted.
    pub refusal: Option<Ignored>,
    /// Accepted.
    pub annotations: Option<Ignored>,
    /// Accepted where it is null.
    pub audio: Option<Value>,
    /// Accepted where it is null.
    pub function_call: Option<Value>,
    /// Accepted.
    pub provider_specific_fields: Option<Ignored>,
    /// Accepted.
    pub reasoning_details: Option<Ignored>,
    /// Accepted.
    pub cache_control: Option<Ignored>,
}

/// A part of a message.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Part {
    /// `text`; others are refused.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    pub text: Option<String>,
    /// The text of a `refusal`.
    pub refusal: Option<String>,
}

/// A call that the model made earlier.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ChatToolCall {
    /// Its id.
    pub id: Option<String>,
    /// `function`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// What was called.
    pub function: CalledFunction,
}

/// What was called.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct CalledFunction {
    /// The function.
    pub name: String,
    /// Its arguments: the text of a JSON object, or the object.
    pub arguments: Option<Value>,
}

/// A tool.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ChatTool {
    /// `function`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The function.
    pub function: Option<Function>,
}

/// Reads a request.
///
/// # Errors
/// [`Refusal::Invalid`] with the first field that cannot be honoured.
pub fn parse(bytes: &[u8], defaults: &Defaults) -> Result<Asked, Refusal> {
    let request: ChatRequest = body::parse(bytes)?;
    only("n", request.n, &[1])?;
    if let Some(other) = request.modalities.iter().flatten().find(|m| *m != "text") {
        return Err(Refusal::invalid(
            "modalities",
            format!("modalities has {other:?}; this server honours text"),
        ));
    }
    let logprobs = logprobs(request.logprobs, request.top_logprobs)?;
    let sampling = Sampling {
        temperature: request.temperature,
        top_p: request.top_p,
        top_k: request.top_k,
        min_p: request.min_p,
        presence_penalty: request.presence_penalty,
        frequency_penalty: request.frequency_penalty,
        repetition_penalty: request.repetition_penalty,
        seed: request.seed,
    };
    let effort = thinks("reasoning_effort", request.reasoning_effort.as_deref())?;
    let kwargs = request.chat_template_kwargs.unwrap_or_default();
    let mut tools = tools(request.tools.unwrap_or_default())?;
    let choice = Choice::parse(request.tool_choice.as_ref(), &tools)?;
    let of_tools = demand_of_tools(choice, &mut tools);
    let of_format = demand_of_format(
        "response_format",
        Some("json_schema"),
        request.response_format.as_ref(),
    )?;
    let demand = one_demand(of_tools, of_format, !tools.is_empty());
    let settings = Settings {
        max_new: max_new("max_completion_tokens", request.max_completion_tokens)?
            .or(max_new("max_tokens", request.max_tokens)?),
        sampler: sampling.check(defaults)?,
        stop: checks::stops("stop", request.stop)?,
        logit_bias: logit_bias(request.logit_bias)?,
        logprobs,
        parallel_calls: request.parallel_tool_calls.unwrap_or(true),
    };
    let conversation = Conversation {
        messages: messages(request.messages)?,
        tools,
        thinking: kwargs.enable_thinking.or(effort).unwrap_or(false),
    };
    let stream = request.stream.unwrap_or(false);
    let include_usage = request
        .stream_options
        .unwrap_or_default()
        .include_usage
        .unwrap_or(false);
    Ok(Asked {
        model: request.model,
        turn: Turn {
            ask: Ask::Conversation(conversation),
            settings,
            demand,
            fields: Fields {
                prompt: "messages",
                format: "response_format",
            },
        },
        warnings: Vec::new(),
        stream,
        reply: Box::new(ChatReply {
            include_usage,
            wants_logprobs: logprobs.is_some(),
        }),
    })
}

/// How many alternatives are wanted, where log probabilities are.
fn logprobs(wanted: Option<bool>, top: Option<u8>) -> Result<Option<u8>, Refusal> {
    let top = checks::number("top_logprobs", top, 0..=MAX_TOP_LOGPROBS, 0)?;
    match wanted {
        Some(true) => Ok(Some(top)),
        _ if top > 0 => Err(Refusal::invalid(
            "top_logprobs",
            "top_logprobs needs logprobs to be true",
        )),
        _ => Ok(None),
    }
}

fn tools(tools: Vec<ChatTool>) -> Result<Vec<Tool>, Refusal> {
    let tool = |(i, tool): (usize, ChatTool)| match (tool.kind.as_str(), tool.function) {
        ("function", Some(function)) => function.into_tool(&format!("tools[{i}].function")),
        ("function", None) => {
            let param = format!("tools[{i}].function");
            Err(Refusal::invalid(
                &param,
                format!("{param}: this field is needed"),
            ))
        }
        (other, _) => {
            let param = format!("tools[{i}].type");
            Err(Refusal::invalid(
                &param,
                format!("{param} is {other:?}; this server honours function"),
            ))
        }
    };
    tools.into_iter().enumerate().map(tool).collect()
}

fn messages(messages: Vec<ChatMessage>) -> Result<Vec<Message>, Refusal> {
    match messages.last() {
        None => {
            return Err(Refusal::invalid(
                "messages",
                "messages is empty; give at least one",
            ));
        }
        Some(last) if last.role == "assistant" => {
            return Err(Refusal::invalid(
                format!("messages[{}].role", messages.len() - 1),
                "the last message is the assistant's own, and this server does not continue it; end with the role user or tool",
            ));
        }
        Some(_) => {}
    }
    let message =
        |(i, message): (usize, ChatMessage)| read_message(&format!("messages[{i}]"), message);
    messages.into_iter().enumerate().map(message).collect()
}

fn read_message(at: &str, message: ChatMessage) -> Result<Message, Refusal> {
    for (field, value) in [
        ("audio", &message.audio),
        ("function_call", &message.function_call),
    ] {
        if value.is_some() {
            let param = format!("{at}.{field}");
            return Err(Refusal::invalid(
                &param,
                format!("{param}: this server cannot honour it; leave it out"),
            ));
        }
    }
    let content = message
        .content
        .map(|content| text_of(&format!("{at}.content"), content))
        .transpose()?;
    let needed = |content: Option<String>| {
        let param = format!("{at}.content");
        content.ok_or_else(|| Refusal::invalid(&param, format!("{param}: this field is needed")))
    };
    match message.role.as_str() {
        "system" | "developer" => Ok(Message::System(needed(content)?)),
        "user" => Ok(Message::User(needed(content)?)),
        "assistant" => {
            let calls = message
                .tool_calls
                .unwrap_or_default()
                .into_iter()
                .enumerate();
            let calls = calls.map(|(i, call)| read_call(&format!("{at}.tool_calls[{i}]"), call));
            Ok(Message::Assistant {
                content,
                thinking: message.reasoning_content.or(message.reasoning),
                tool_calls: calls.collect::<Result<_, _>>()?,
            })
        }
        "tool" => {
            let param = format!("{at}.tool_call_id");
            let id = message.tool_call_id.ok_or_else(|| {
                Refusal::invalid(&param, format!("{param}: this field is needed"))
            })?;
            Ok(Message::ToolResult {
                call_id: id,
                name: message.name,
                content: ToolContent::Text(content.unwrap_or_default()),
            })
        }
        other => {
            let param = format!("{at}.role");
            Err(Refusal::invalid(
                &param,
                format!(
                    "{param} is {other:?}; the roles are system, developer, user, assistant and tool"
                ),
            ))
        }
    }
}

fn read_call(at: &str, call: ChatToolCall) -> Result<ToolCall, Refusal> {
    if let Some(kind) = call.kind.filter(|kind| kind != "function") {
        let param = format!("{at}.type");
        return Err(Refusal::invalid(
            &param,
            format!("{param} is {kind:?}; this server honours function"),
        ));
    }
    let param = format!("{at}.function.arguments");
    let arguments = match call.function.arguments {
        None | Some(Value::Null) => Map::new(),
        Some(Value::Object(map)) => map,
        Some(Value::String(text)) => checks::arguments(&param, &text)?,
        Some(_) => {
            return Err(Refusal::invalid(
                &param,
                format!("{param}: expected the text of a JSON object"),
            ));
        }
    };
    Ok(ToolCall {
        id: call.id.unwrap_or_default(),
        name: call.function.name,
        arguments,
    })
}

/// The text of a content, whose parts follow each other without anything between them.
pub fn text_of(at: &str, content: TextOr<Part>) -> Result<String, Refusal> {
    let parts = match content {
        TextOr::Text(text) => return Ok(text),
        TextOr::List(parts) => parts,
    };
    let part = |(i, part): (usize, Part)| match (part.kind.as_str(), part.text, part.refusal) {
        (
            "text" | "input_text" | "output_text" | "summary_text" | "reasoning_text",
            Some(text),
            _,
        )
        | ("refusal", _, Some(text)) => Ok(text),
        ("text" | "input_text" | "output_text" | "summary_text" | "reasoning_text", None, _) => {
            let param = format!("{at}[{i}].text");
            Err(Refusal::invalid(
                &param,
                format!("{param}: this field is needed"),
            ))
        }
        ("image_url" | "input_image" | "image", ..) => {
            let param = format!("{at}[{i}]");
            Err(Refusal::invalid(
                &param,
                format!("{param} is an image, and this server reads text only"),
            ))
        }
        (other, ..) => {
            let param = format!("{at}[{i}].type");
            Err(Refusal::invalid(
                &param,
                format!("{param} is {other:?}; this server reads parts of the type text"),
            ))
        }
    };
    parts.into_iter().enumerate().map(part).collect()
}
