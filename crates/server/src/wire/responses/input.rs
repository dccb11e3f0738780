//! Items of a request's input as messages of a conversation.
//!
//! Thoughts, text and calls of one turn of the model come as items of their own; they become one message again.

use ouzel_tokenizer::{ChatMessage, ToolCall, ToolContent};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::error::Refusal;
use crate::wire::chat::{Part, text_of};
use crate::wire::checks;
use crate::wire::text_or::TextOr;

/// An item of any type.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Item {
    /// `message`, which is also meant where nothing is said; `function_call`, `function_call_output`, `reasoning`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Of a message: `system`, `developer`, `user` or `assistant`.
    pub role: Option<String>,
    /// Of a message or a thought: a text, or parts of it.
    pub content: Option<TextOr<Part>>,
    /// Of a call or its result: the call's id.
    pub call_id: Option<String>,
    /// Of a call: the function.
    pub name: Option<String>,
    /// Of a call: the text of a JSON object.
    pub arguments: Option<String>,
    /// Of a result: a text, or parts of it.
    pub output: Option<TextOr<Part>>,
    /// Of a thought: its summary, where there is no content.
    pub summary: Option<Vec<Part>>,
}

/// The conversation; instructions come first.
pub fn messages(
    instructions: Option<String>,
    input: TextOr<Item>,
) -> Result<Vec<ChatMessage>, Refusal> {
    let mut said = Said::default();
    said.messages.extend(instructions.map(ChatMessage::System));
    let items = match input {
        TextOr::Text(text) => {
            said.messages.push(ChatMessage::User(text));
            return Ok(said.messages);
        }
        TextOr::List(items) => items,
    };
    if items.is_empty() {
        return Err(Refusal::invalid(
            "input",
            "input is empty; give at least one item",
        ));
    }
    for (i, item) in items.into_iter().enumerate() {
        said.push(&format!("input[{i}]"), item)?;
    }
    if matches!(said.messages.last(), Some(ChatMessage::Assistant { .. })) {
        return Err(Refusal::invalid(
            "input",
            "input: the last item is the assistant's own, and this server does not continue it; end with a message of the user or a result",
        ));
    }
    Ok(said.messages)
}

#[derive(Default)]
struct Said {
    messages: Vec<ChatMessage>,
    /// A thought that waits for what came of it.
    thought: Option<String>,
}

impl Said {
    fn push(&mut self, at: &str, item: Item) -> Result<(), Refusal> {
        match item.kind.as_deref() {
            None | Some("message") => self.message(at, item),
            Some("function_call") => self.call(at, item),
            Some("function_call_output") => self.result(at, item),
            Some("reasoning") => {
                let parts = item.content.or(item.summary.map(TextOr::List));
                let text = parts.map(|parts| text_of(at, parts)).transpose()?;
                self.thought = text.filter(|text| !text.is_empty());
                Ok(())
            }
            Some(other) => {
                let param = format!("{at}.type");
                Err(Refusal::invalid(
                    &param,
                    format!(
                        "{param} is {other:?}; this server reads message, function_call, function_call_output and reasoning"
                    ),
                ))
            }
        }
    }

    fn message(&mut self, at: &str, item: Item) -> Result<(), Refusal> {
        let content = item.content.ok_or_else(|| needed(at, "content"))?;
        let text = text_of(&format!("{at}.content"), content)?;
        let thinking = self.thought.take();
        match item.role.as_deref() {
            Some("system" | "developer") => self.messages.push(ChatMessage::System(text)),
            Some("user") => self.messages.push(ChatMessage::User(text)),
            Some("assistant") => self.messages.push(ChatMessage::Assistant {
                content: Some(text),
                thinking,
                tool_calls: Vec::new(),
            }),
            other => {
                let param = format!("{at}.role");
                let other = other.unwrap_or("missing");
                return Err(Refusal::invalid(
                    &param,
                    format!(
                        "{param} is {other}; the roles are system, developer, user and assistant"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// A call belongs to the message of the turn that made it.
    fn call(&mut self, at: &str, item: Item) -> Result<(), Refusal> {
        let call = ToolCall {
            id: item.call_id.ok_or_else(|| needed(at, "call_id"))?,
            name: item.name.ok_or_else(|| needed(at, "name"))?,
            arguments: checks::arguments(
                &format!("{at}.arguments"),
                &item.arguments.unwrap_or_default(),
            )?,
        };
        let thought = self.thought.take();
        if thought.is_none()
            && let Some(ChatMessage::Assistant { tool_calls, .. }) = self.messages.last_mut()
        {
            tool_calls.push(call);
            return Ok(());
        }
        self.messages.push(ChatMessage::Assistant {
            content: None,
            thinking: thought,
            tool_calls: vec![call],
        });
        Ok(())
    }

    fn result(&mut self, at: &str, item: Item) -> Result<(), Refusal> {
        let text = item
            .output
            .map(|output| text_of(&format!("{at}.output"), output))
            .transpose()?;
        self.messages.push(ChatMessage::ToolResult {
            call_id: item.call_id.ok_or_else(|| needed(at, "call_id"))?,
            name: None,
            content: ToolContent::Text(text.unwrap_or_default()),
        });
        Ok(())
    }
}

fn needed(at: &str, field: &str) -> Refusal {
    let param = format!("{at}.{field}");
    Refusal::invalid(&param, format!("{param}: this field is needed"))
}
