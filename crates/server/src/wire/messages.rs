//! `/v1/messages` and `/v1/messages/count_tokens`: what Anthropic's clients speak.

mod reply;

use ouzel::SamplerOptions;
use ouzel_tokenizer::{ChatMessage, Conversation, Tool, ToolCall, ToolContent};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::checks::{self, number, positive};
use super::openai::{Choice, demand_of_format, demand_of_tools, max_new, one_demand, thinks};
use super::text_or::TextOr;
use super::{Asked, Defaults, Ignored};
use crate::body;
use crate::error::Refusal;
use crate::turn::{Ask, Fields, Settings, Turn};
use reply::MessageReply;

/// How a system text begins that says who pays, and differs in every request: it is no instruction, and kept in the prompt it would
/// make each prompt a new one from its first line on.
const BILLING: &str = "x-anthropic-billing-header:";
/// Between blocks of text, which are paragraphs of one message.
const PARAGRAPH: &str = "\n\n";

/// The request.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessagesRequest {
    /// The model; what `/v1/models` lists. Left out: the one that is served.
    pub model: Option<String>,
    /// The conversation.
    pub messages: Vec<MessageParam>,
    /// The most new tokens. Needed, except to count.
    pub max_tokens: Option<u32>,
    /// Instructions: a text, or blocks of the type `text`.
    pub system: Option<TextOr<Block>>,
    /// Whether the answer comes as server-sent events.
    pub stream: Option<bool>,
    /// Texts that end the answer, at most 16.
    pub stop_sequences: Option<Vec<String>>,
    /// 0 to 1.
    pub temperature: Option<f32>,
    /// Above 0, to 1.
    pub top_p: Option<f32>,
    /// Keep this many of the most likely tokens.
    pub top_k: Option<u32>,
    /// `enabled`, `adaptive` or `disabled`; a budget is accepted and not enforced.
    pub thinking: Option<Thinking>,
    /// What the model may call.
    pub tools: Option<Vec<ToolParam>>,
    /// `auto`, `any`, `tool` or `none`.
    pub tool_choice: Option<ToolChoice>,
    /// The format of the answer.
    pub output_config: Option<OutputConfig>,
    /// Accepted.
    pub metadata: Option<Ignored>,
    /// Accepted.
    pub service_tier: Option<Ignored>,
    /// Accepted; prefixes are found without it.
    pub cache_control: Option<Ignored>,
    /// Accepted; a long conversation is shortened by its client.
    pub context_management: Option<Ignored>,
    /// Only null.
    pub container: Option<Value>,
    /// Only empty.
    pub mcp_servers: Option<Vec<Value>>,
}

/// A message.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a message, an object with role and content"
)]
pub struct MessageParam {
    /// `user`, `assistant` or `system`.
    pub role: String,
    /// A text, or blocks.
    pub content: TextOr<Block>,
}

/// A block of any type.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct Block {
    /// `text`, `thinking`, `redacted_thinking`, `tool_use`, `tool_result`; others are refused.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of a text.
    pub text: Option<String>,
    /// Of a thought.
    pub thinking: Option<String>,
    /// Of a call: its id.
    pub id: Option<String>,
    /// Of a call: the tool.
    pub name: Option<String>,
    /// Of a call: its arguments.
    pub input: Option<Value>,
    /// Of a result: which call it answers.
    pub tool_use_id: Option<String>,
    /// Of a result: a text, or blocks of the type `text`.
    pub content: Option<TextOr<Block>>,
    /// Of a result: whether the tool failed.
    pub is_error: Option<bool>,
    /// Accepted; prefixes are found without it.
    pub cache_control: Option<Ignored>,
}

/// `thinking`
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Thinking {
    /// `enabled`, `adaptive` or `disabled`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Accepted; not enforced.
    pub budget_tokens: Option<u32>,
}

/// A tool.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ToolParam {
    /// `custom`, which is also meant where nothing is said; others are refused.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Its name.
    pub name: String,
    /// What it is for.
    pub description: Option<String>,
    /// The JSON schema of its arguments.
    pub input_schema: Option<Value>,
    /// Whether arguments must follow the schema to the letter.
    pub strict: Option<bool>,
}

/// `tool_choice`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolChoice {
    /// `auto`, `any`, `tool` or `none`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The tool, for `tool`.
    pub name: Option<String>,
    /// Whether an answer may hold one call at most.
    pub disable_parallel_tool_use: Option<bool>,
}

/// `output_config`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OutputConfig {
    /// Accepted as a word; `thinking` says whether the model thinks.
    pub effort: Option<String>,
    /// `json_schema` with a schema.
    pub format: Option<Value>,
}

/// Reads a request for an answer.
///
/// # Errors
/// [`Refusal::Invalid`] with the first field that cannot be honoured.
pub fn parse(bytes: &[u8], defaults: &Defaults) -> Result<Asked, Refusal> {
    let request: MessagesRequest = body::parse(bytes)?;
    if request.max_tokens.is_none() {
        return Err(Refusal::invalid(
            "max_tokens",
            "max_tokens: this field is needed",
        ));
    }
    read(request, defaults)
}

/// Reads a request whose prompt shall be counted.
///
/// # Errors
/// As [`parse`].
pub fn parse_to_count(bytes: &[u8], defaults: &Defaults) -> Result<Asked, Refusal> {
    read(body::parse(bytes)?, defaults)
}

fn read(request: MessagesRequest, defaults: &Defaults) -> Result<Asked, Refusal> {
    check_runs_nothing(&request)?;
    let sampler = sampler(&request, defaults)?;
    let choice = request.tool_choice;
    let one_call = choice
        .as_ref()
        .and_then(|choice| choice.disable_parallel_tool_use)
        .unwrap_or(false);
    let mut tools = tools(request.tools.unwrap_or_default())?;
    let choice = read_choice(choice, &tools)?;
    let of_tools = demand_of_tools(choice, &mut tools);
    let config = request.output_config;
    thinks(
        "output_config.effort",
        config.as_ref().and_then(|config| config.effort.as_deref()),
    )?;
    let format = config.and_then(|config| config.format);
    let of_format = demand_of_format("output_config.format", None, format.as_ref())?;
    let demand = one_demand(of_tools, of_format, !tools.is_empty());
    let settings = Settings {
        max_new: max_new("max_tokens", request.max_tokens)?,
        sampler,
        stop: checks::stops("stop_sequences", request.stop_sequences.map(TextOr::List))?,
        logit_bias: Vec::new(),
        logprobs: None,
        parallel_calls: !one_call,
    };
    let mut messages = system(request.system)?;
    messages.extend(conversation(request.messages)?);
    Ok(Asked {
        model: request.model,
        turn: Turn {
            ask: Ask::Conversation(Conversation {
                messages,
                tools,
                thinking: does_think(request.thinking)?,
            }),
            settings,
            demand,
            fields: Fields {
                prompt: "messages",
                format: "output_config.format",
            },
        },
        warnings: Vec::new(),
        stream: request.stream.unwrap_or(false),
        reply: Box::new(MessageReply),
    })
}

/// This API asks for less of a sampler than others.
fn sampler(request: &MessagesRequest, defaults: &Defaults) -> Result<SamplerOptions, Refusal> {
    let base = &defaults.sampler;
    Ok(SamplerOptions {
        temperature: number(
            "temperature",
            request.temperature,
            0.0..=1.0,
            base.temperature,
        )?,
        top_p: positive("top_p", request.top_p, 1.0, base.top_p)?,
        top_k: request.top_k.unwrap_or(base.top_k),
        ..base.clone()
    })
}

fn check_runs_nothing(request: &MessagesRequest) -> Result<(), Refusal> {
    let has_servers = request.mcp_servers.iter().flatten().next().is_some();
    for (field, is_there) in [
        ("container", request.container.is_some()),
        ("mcp_servers", has_servers),
    ] {
        if is_there {
            return Err(Refusal::invalid(
                field,
                format!("{field}: this server runs no tools; leave it out"),
            ));
        }
    }
    Ok(())
}

fn does_think(thinking: Option<Thinking>) -> Result<bool, Refusal> {
    match thinking.as_ref().map(|thinking| thinking.kind.as_str()) {
        None | Some("disabled") => Ok(false),
        Some("enabled" | "adaptive") => Ok(true),
        Some(other) => Err(Refusal::invalid(
            "thinking.type",
            format!(
                "thinking.type is {other:?}; this server honours enabled, adaptive and disabled"
            ),
        )),
    }
}

fn tools(tools: Vec<ToolParam>) -> Result<Vec<Tool>, Refusal> {
    let tool = |(i, tool): (usize, ToolParam)| {
        if let Some(kind) = tool.kind.filter(|kind| kind != "custom") {
            let param = format!("tools[{i}].type");
            return Err(Refusal::invalid(
                &param,
                format!(
                    "{param} is {kind:?}, a tool that a server runs, and this one runs none; it honours custom"
                ),
            ));
        }
        Ok(Tool {
            name: tool.name,
            description: tool.description,
            parameters: tool.input_schema,
            strict: tool.strict.unwrap_or(false),
        })
    };
    tools.into_iter().enumerate().map(tool).collect()
}

/// The same choices as OpenAI's under other names.
fn read_choice(choice: Option<ToolChoice>, tools: &[Tool]) -> Result<Choice, Refusal> {
    let Some(choice) = choice else {
        return Ok(Choice::Auto);
    };
    let value = match (choice.kind.as_str(), choice.name) {
        ("auto", _) => json!("auto"),
        ("none", _) => json!("none"),
        ("any", _) => json!("required"),
        ("tool", Some(name)) => json!({ "type": "function", "name": name }),
        ("tool", None) => {
            return Err(Refusal::invalid(
                "tool_choice.name",
                "tool_choice.name: this field is needed",
            ));
        }
        (other, _) => {
            return Err(Refusal::invalid(
                "tool_choice.type",
                format!(
                    "tool_choice.type is {other:?}; this server honours auto, any, tool and none"
                ),
            ));
        }
    };
    Choice::parse(Some(&value), tools)
}

fn system(system: Option<TextOr<Block>>) -> Result<Vec<ChatMessage>, Refusal> {
    let texts = match system {
        None => return Ok(Vec::new()),
        Some(TextOr::Text(text)) => vec![text],
        Some(TextOr::List(blocks)) => {
            let text = |(i, block)| text_of(&format!("system[{i}]"), block);
            blocks
                .into_iter()
                .enumerate()
                .map(text)
                .collect::<Result<_, _>>()?
        }
    };
    let texts: Vec<&str> = texts
        .iter()
        .map(|text| without_billing(text))
        .filter(|text| !text.is_empty())
        .collect();
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![ChatMessage::System(texts.join(PARAGRAPH))])
}

/// The text without a first line that says who pays.
fn without_billing(text: &str) -> &str {
    if !text.starts_with(BILLING) {
        return text;
    }
    text.split_once('\n').map_or("", |(_, rest)| rest)
}

fn text_of(at: &str, block: Block) -> Result<String, Refusal> {
    match (block.kind.as_str(), block.text) {
        ("text", Some(text)) => Ok(text),
        ("text", None) => Err(Refusal::invalid(
            format!("{at}.text"),
            format!("{at}.text: this field is needed"),
        )),
        ("image" | "document", _) => Err(Refusal::invalid(
            at,
            format!(
                "{at} is of the type {}, and this server reads text only",
                block.kind
            ),
        )),
        (other, _) => Err(Refusal::invalid(
            format!("{at}.type"),
            format!("{at}.type is {other:?}, which this server does not read here"),
        )),
    }
}

fn conversation(messages: Vec<MessageParam>) -> Result<Vec<ChatMessage>, Refusal> {
    match messages.last() {
        None => {
            return Err(Refusal::invalid(
                "messages",
                "messages is empty; give at least one",
            ));
        }
        Some(last) if last.role == "assistant" => {
            return Err(Refusal::invalid(
                "messages",
                "messages: the last one is the assistant's own, and this server does not continue it; end with the role user",
            ));
        }
        Some(_) => {}
    }
    let mut said = Vec::new();
    for (i, message) in messages.into_iter().enumerate() {
        let at = format!("messages[{i}]");
        let blocks = match message.content {
            TextOr::Text(text) => vec![Block {
                kind: "text".to_owned(),
                text: Some(text),
                ..Block::default()
            }],
            TextOr::List(blocks) => blocks,
        };
        match message.role.as_str() {
            "user" => user(&at, blocks, &mut said)?,
            "assistant" => said.push(assistant(&at, blocks)?),
            "system" => {
                let text = |(j, block)| text_of(&format!("{at}.content[{j}]"), block);
                let texts: Vec<String> = blocks
                    .into_iter()
                    .enumerate()
                    .map(text)
                    .collect::<Result<_, _>>()?;
                said.push(ChatMessage::System(texts.join(PARAGRAPH)));
            }
            other => {
                let param = format!("{at}.role");
                return Err(Refusal::invalid(
                    &param,
                    format!("{param} is {other:?}; the roles are user, assistant and system"),
                ));
            }
        }
    }
    Ok(said)
}

/// Results of tools are messages of their own; texts that follow each other are one.
fn user(at: &str, blocks: Vec<Block>, said: &mut Vec<ChatMessage>) -> Result<(), Refusal> {
    let mut texts: Vec<String> = Vec::new();
    for (j, block) in blocks.into_iter().enumerate() {
        let at = format!("{at}.content[{j}]");
        if block.kind != "tool_result" {
            texts.push(text_of(&at, block)?);
            continue;
        }
        if !texts.is_empty() {
            said.push(ChatMessage::User(
                std::mem::take(&mut texts).join(PARAGRAPH),
            ));
        }
        said.push(tool_result(&at, block)?);
    }
    if !texts.is_empty() {
        said.push(ChatMessage::User(texts.join(PARAGRAPH)));
    }
    Ok(())
}

fn tool_result(at: &str, block: Block) -> Result<ChatMessage, Refusal> {
    let param = format!("{at}.tool_use_id");
    let call_id = block
        .tool_use_id
        .ok_or_else(|| Refusal::invalid(&param, format!("{param}: this field is needed")))?;
    let text = match block.content {
        None => String::new(),
        Some(TextOr::Text(text)) => text,
        Some(TextOr::List(parts)) => {
            let text = |(k, part)| text_of(&format!("{at}.content[{k}]"), part);
            parts
                .into_iter()
                .enumerate()
                .map(text)
                .collect::<Result<String, _>>()?
        }
    };
    let content = if block.is_error.unwrap_or(false) {
        ToolContent::Json(json!({ "error": text }))
    } else {
        ToolContent::Text(text)
    };
    Ok(ChatMessage::ToolResult {
        call_id,
        name: None,
        content,
    })
}

fn assistant(at: &str, blocks: Vec<Block>) -> Result<ChatMessage, Refusal> {
    let (mut texts, mut thoughts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
    for (j, block) in blocks.into_iter().enumerate() {
        let at = format!("{at}.content[{j}]");
        match block.kind.as_str() {
            "thinking" => thoughts.extend(block.thinking),
            // Nobody but its author can read it.
            "redacted_thinking" => {}
            "tool_use" => calls.push(tool_use(&at, block)?),
            _ => texts.push(text_of(&at, block)?),
        }
    }
    let joined = |texts: Vec<String>| (!texts.is_empty()).then(|| texts.join(PARAGRAPH));
    Ok(ChatMessage::Assistant {
        content: joined(texts),
        thinking: joined(thoughts),
        tool_calls: calls,
    })
}

fn tool_use(at: &str, block: Block) -> Result<ToolCall, Refusal> {
    let needed = |field: &str| {
        let param = format!("{at}.{field}");
        Refusal::invalid(&param, format!("{param}: this field is needed"))
    };
    let arguments = match block.input {
        None | Some(Value::Null) => serde_json::Map::new(),
        Some(Value::Object(map)) => map,
        Some(_) => {
            let param = format!("{at}.input");
            return Err(Refusal::invalid(
                &param,
                format!("{param}: expected an object"),
            ));
        }
    };
    Ok(ToolCall {
        id: block.id.ok_or_else(|| needed("id"))?,
        name: block.name.ok_or_else(|| needed("name"))?,
        arguments,
    })
}
