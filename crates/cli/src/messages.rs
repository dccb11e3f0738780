//! Messages files: a conversation as JSON, and whatever else a chat template takes.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use ouzel::{Message, RenderInput, Role};
use ouzel_server::in_words;
use serde::de::{DeserializeOwned, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::exit::usage;
use crate::output::{input_name, read_input};

/// Some editors begin a UTF-8 file with it.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const MESSAGES: &str = r#"an array of messages such as [{"role": "user", "content": "Hello!"}]"#;

/// The conversation in a file; `-` is standard input.
pub fn read(path: &Path) -> anyhow::Result<Vec<Message>> {
    let (name, bytes) = (input_name(path), read_input(path)?);
    let List(messages) = parse::<List<Message>>(&name, &bytes, MESSAGES)?;
    let refuse = |why: &str| Err(usage(format!("{name}: {why}")));
    match messages.last() {
        None => refuse("there are no messages; give at least one"),
        Some(last) if last.role == Role::Assistant => {
            refuse("the last message is the model's own; end with one of the role user")
        }
        Some(last) if last.role == Role::System => {
            refuse("the last message asks nothing; end with one of the role user")
        }
        Some(last) if last.content.trim().is_empty() => {
            refuse("the last message is empty; give at least one word")
        }
        Some(_) => Ok(messages),
    }
}

/// A file for the template: an array of messages, or an object with everything that the template takes.
pub fn read_input_of_template(path: &Path) -> anyhow::Result<RenderInput> {
    let (name, bytes) = (input_name(path), read_input(path)?);
    let value: Value = parse(&name, &bytes, MESSAGES)?;
    if value.is_array() {
        // Parsed once more for the errors, which then name line and column.
        let List(messages) = parse::<List<Message>>(&name, &bytes, MESSAGES)?;
        return Ok(RenderInput {
            messages: serde_json::to_value(messages)?,
            add_generation_prompt: true,
            ..RenderInput::default()
        });
    }
    let conversation: Conversation = parse(&name, &bytes, MESSAGES)?;
    Ok(RenderInput {
        messages: Value::Array(conversation.messages.0),
        tools: conversation.tools.map(|tools| Value::Array(tools.0)),
        add_generation_prompt: conversation.add_generation_prompt,
        kwargs: conversation.kwargs,
    })
}

/// The long form of a messages file; messages may have tool calls and whatever else the template knows.
#[derive(Deserialize)]
#[serde(
    deny_unknown_fields,
    expecting = "an array of messages, or an object with messages"
)]
struct Conversation {
    messages: List<Value>,
    tools: Option<List<Value>>,
    #[serde(default = "yes")]
    add_generation_prompt: bool,
    #[serde(default)]
    kwargs: Map<String, Value>,
}

fn yes() -> bool {
    true
}

/// JSON of a named input, with or without a byte order mark; errors say where, and what would be right.
pub fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8], expected: &str) -> anyhow::Result<T> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    serde_json::from_slice(bytes).map_err(|error| {
        usage(format!(
            "{name}: {}; give {expected}",
            in_words(&error.to_string())
        ))
    })
}

/// As `Vec`, but calls itself what JSON calls it.
pub struct List<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<List<T>, D::Error> {
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ListVisitor<T> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<List<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(List(list))
    }
}
