//! What a chat API brings, as types, and its way to the chat template's input.
//!
//! A template shows a conversation only if it has the shape the model was trained on: one system text first, a model turn that goes on
//! across its tool calls and their results, thoughts of the present turn only. Clients send less tidy ones. `render_input` tidies them
//! without losing anything that was said, and says in a `Warning` what it had to change. Nothing here fails: a turn must not be lost
//! because of a schema that cannot be shown.
//!
//! Two things the model's template cannot do are left to marks that `ChatTemplate::render` takes out again, see `marks`.

pub(crate) mod marks;
mod schema;
mod turns;
mod warning;

use crate::template::RenderInput;
use serde_json::{Map, Value, json};

pub(crate) use schema::{escaped, pointed};
pub use warning::Warning;

/// A conversation that asks for the model's next turn.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Conversation {
    /// What was said, oldest first.
    pub messages: Vec<ChatMessage>,
    /// The tools that the model may call.
    pub tools: Vec<Tool>,
    /// Whether the model is to think before it answers.
    pub thinking: bool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub enum ChatMessage {
    /// Instructions, of a system or a developer. They may repeat, and come in the middle.
    System(String),
    /// What the user says.
    User(String),
    /// What the model said, thought and called.
    Assistant {
        /// Its answer, if there was one.
        content: Option<String>,
        /// What it thought before. It is shown while its turn lasts, never again after a user's next message.
        thinking: Option<String>,
        /// The tools it called, in order, after the answer.
        tool_calls: Vec<ToolCall>,
    },
    /// What a tool gave back.
    ToolResult {
        /// The id of the call that it answers.
        call_id: String,
        /// The tool's name; needed only where no call has the id.
        name: Option<String>,
        /// The result.
        content: ToolContent,
    },
}

/// The result of a tool.
#[derive(Debug, Clone, PartialEq)]
pub enum ToolContent {
    /// A text. Text that happens to be JSON stays text.
    Text(String),
    /// A JSON value. An object's entries are shown one by one.
    Json(Value),
}

impl ToolContent {
    /// A result that came in parts of text, which the model's template joins without anything between.
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = &'a str>) -> ToolContent {
        ToolContent::Text(parts.into_iter().collect())
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// What a result names; unique within the conversation, the last one counts where it is not.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments; null ones are kept.
    pub arguments: Map<String, Value>,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// A JSON schema of its arguments.
    pub parameters: Option<Value>,
    /// Whether every call must fulfil the schema; see `grammar`.
    pub strict: bool,
}

impl Conversation {
    /// The template's input. `guard` is applied to every text that is not the template's, so that none becomes a control token:
    /// `guard_control_text` with the model's tokenizer.
    pub fn render_input(&self, guard: impl Fn(&str) -> String) -> (RenderInput, Vec<Warning>) {
        let guard = |text: &str| guard(&marks::strip(text));
        let mut warnings = Vec::new();
        let messages = turns::messages(&self.messages, &guard, &mut warnings);
        let tools = schema::declarations(&self.tools, &guard, &mut warnings);
        let input = RenderInput {
            messages,
            tools: (!self.tools.is_empty()).then_some(tools),
            add_generation_prompt: true,
            kwargs: [("enable_thinking".to_owned(), json!(self.thinking))]
                .into_iter()
                .collect(),
        };
        (input, warnings)
    }
}

/// Applies the guard to every string of a value, keys included.
fn guarded(value: &Value, guard: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::String(guard(text)),
        Value::Array(items) => items.iter().map(|item| guarded(item, guard)).collect(),
        Value::Object(map) => Value::Object(
            map.iter()
                .map(|(key, item)| (guard(key), guarded(item, guard)))
                .collect(),
        ),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
