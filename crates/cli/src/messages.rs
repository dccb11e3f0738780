//! Messages files: a conversation as JSON, and whatever else a chat template takes.

use std::path::Path;

use ouzel::{Message, RenderInput};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::exit::usage;
use crate::output::{input_name, read_input};

const MESSAGES: &str = r#"an array of messages such as [{"role": "user", "content": "Hello!"}]"#;

/// The conversation in a file; `-` is standard input.
pub fn read(path: &Path) -> anyhow::Result<Vec<Message>> {
    let (name, bytes) = (input_name(path), read_input(path)?);
    let messages: Vec<Message> = parse(&name, &bytes, MESSAGES)?;
    match messages.last() {
        None => Err(usage(format!(
            "{name}: there are no messages; give at least one"
        ))),
        Some(last) if last.content.trim().is_empty() => Err(usage(format!(
            "{name}: the last message is empty; give at least one word"
        ))),
        Some(_) => Ok(messages),
    }
}

/// A file for the template: an array of messages, or an object with everything that the template takes.
pub fn read_input_of_template(path: &Path) -> anyhow::Result<RenderInput> {
    let (name, bytes) = (input_name(path), read_input(path)?);
    let value: Value = parse(&name, &bytes, MESSAGES)?;
    if value.is_array() {
        // Parsed once more for the errors, which then name line and column.
        let messages: Vec<Message> = parse(&name, &bytes, MESSAGES)?;
        return Ok(RenderInput {
            messages: serde_json::to_value(messages)?,
            add_generation_prompt: true,
            ..RenderInput::default()
        });
    }
    let conversation: Conversation = parse(&name, &bytes, MESSAGES)?;
    Ok(RenderInput {
        messages: Value::Array(conversation.messages),
        tools: conversation.tools.map(Value::Array),
        add_generation_prompt: conversation.add_generation_prompt,
        kwargs: conversation.kwargs,
    })
}

/// The long form of a messages file; messages may have tool calls and whatever else the template knows.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Conversation {
    messages: Vec<Value>,
    tools: Option<Vec<Value>>,
    #[serde(default = "yes")]
    add_generation_prompt: bool,
    #[serde(default)]
    kwargs: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// JSON of a named input; errors say where, and what would be right.
pub fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8], expected: &str) -> anyhow::Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| usage(format!("{name}: {error}; give {expected}")))
}
