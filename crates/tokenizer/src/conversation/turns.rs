//! The messages as the template takes them: turns in the model's own shape.
//!
//! A model turn is a run of assistant messages and tool results. It becomes steps: a step is some calls with their results, each call with
//! the text that was written before it, or the answer that ends the turn. Results are handed over beside their calls and in the order of
//! the calls, so no template has to look for them. A result that answers nothing gets a call without arguments, because a prompt
//! in which a result comes from nowhere is like nothing the model has seen.

use super::marks;
use super::{ChatMessage, ToolCall, ToolContent, Warning, guarded};
use serde_json::{Value, json};
use std::collections::HashMap;

/// What the model is told of a call whose result the client did not send.
const NO_RESULT: &str = "(no result)";
/// The name of a tool that nobody named.
const UNKNOWN: &str = "unknown";
/// Between texts that were messages of their own.
const APART: &str = "\n\n";

/// The list of messages; warnings name what was missing.
pub(super) fn messages(
    messages: &[ChatMessage],
    guard: &dyn Fn(&str) -> String,
    warnings: &mut Vec<Warning>,
) -> Value {
    let is_user = |message: &ChatMessage| matches!(message, ChatMessage::User(_));
    let mut writer = Writer {
        guard,
        warnings,
        written: Vec::new(),
        names: HashMap::new(),
        turn: Vec::new(),
        system: None,
        thinks: false,
    };
    let last_user = messages.iter().rposition(is_user);
    for (at, message) in messages.iter().enumerate() {
        writer.thinks = last_user.is_none_or(|last| at > last);
        writer.take(message);
    }
    writer.end_system();
    writer.end_turn(false);
    Value::Array(writer.written)
}

/// Calls with their results, or the answer that ends a turn.
#[derive(Default)]
struct Step<'a> {
    thinking: String,
    calls: Vec<Call<'a>>,
    answer: String,
}

struct Call<'a> {
    /// What the model wrote before it.
    before: String,
    call: Option<&'a ToolCall>,
    name: String,
    results: Vec<&'a ToolContent>,
}

struct Writer<'a, 'w> {
    guard: &'w dyn Fn(&str) -> String,
    warnings: &'w mut Vec<Warning>,
    written: Vec<Value>,
    /// Names of all calls so far, by id.
    names: HashMap<&'a str, &'a str>,
    /// The model turn that is not written yet.
    turn: Vec<Step<'a>>,
    /// System texts that follow each other; they are one.
    system: Option<String>,
    /// Whether thoughts are still shown.
    thinks: bool,
}

impl<'a> Writer<'a, '_> {
    fn take(&mut self, message: &'a ChatMessage) {
        if !matches!(message, ChatMessage::System(_)) {
            self.end_system();
        }
        match message {
            ChatMessage::System(text) => {
                self.end_turn(true);
                append(self.system.get_or_insert_default(), text);
            }
            ChatMessage::User(text) => {
                self.end_turn(true);
                let content = (self.guard)(text);
                self.written
                    .push(json!({"role": "user", "content": content}));
            }
            ChatMessage::Assistant {
                content,
                thinking,
                tool_calls,
            } => {
                let thinking = thinking.as_deref().filter(|_| self.thinks);
                self.take_answer(
                    content.as_deref().unwrap_or(""),
                    thinking.unwrap_or(""),
                    tool_calls,
                );
            }
            ChatMessage::ToolResult {
                call_id,
                name,
                content,
            } => self.take_result(call_id, name.as_deref(), content),
        }
    }

    fn take_answer(&mut self, content: &str, thinking: &str, calls: &'a [ToolCall]) {
        // What follows results, or an answer behind calls, begins a step; neighbouring messages without either are one.
        let goes_on = self.turn.last().is_some_and(|step| {
            let answered = step.calls.iter().any(|call| !call.results.is_empty());
            !answered && (step.calls.is_empty() || !calls.is_empty())
        });
        if !goes_on {
            self.turn.push(Step::default());
        }
        let Some(step) = self.turn.last_mut() else {
            return;
        };
        append(&mut step.thinking, thinking.trim());
        append(&mut step.answer, without_thoughts(content).trim());
        for call in calls {
            self.names.insert(&call.id, &call.name);
            step.calls.push(Call {
                before: std::mem::take(&mut step.answer),
                call: Some(call),
                name: call.name.clone(),
                results: Vec::new(),
            });
        }
    }

    fn take_result(&mut self, call_id: &str, name: Option<&str>, content: &'a ToolContent) {
        let calls = self.turn.iter_mut().rev().flat_map(|step| &mut step.calls);
        let has_id = |call: &Call<'_>| call.call.is_some_and(|call| call.id == call_id);
        // Ids that are used twice in one turn: each call gets one result before any gets a second.
        let mut answered = None;
        for call in calls.filter(|call| has_id(call)) {
            if call.results.is_empty() {
                call.results.push(content);
                return;
            }
            answered = Some(call);
        }
        if let Some(call) = answered {
            call.results.push(content);
            return;
        }
        self.warnings.push(Warning::NoCall {
            call_id: call_id.to_owned(),
        });
        let known = self.names.get(call_id).copied();
        let name = known.or(name).unwrap_or(UNKNOWN).to_owned();
        if self.turn.is_empty() {
            self.turn.push(Step::default());
        }
        if let Some(step) = self.turn.last_mut() {
            step.calls.push(Call {
                before: std::mem::take(&mut step.answer),
                call: None,
                name,
                results: vec![content],
            });
        }
    }

    fn end_system(&mut self) {
        if let Some(text) = self.system.take() {
            let content = (self.guard)(&text);
            self.written
                .push(json!({"role": "system", "content": content}));
        }
    }

    /// Writes the model's turn. One that somebody else follows must be closed.
    fn end_turn(&mut self, is_followed: bool) {
        let steps = std::mem::take(&mut self.turn);
        let n_steps = steps.len();
        for (i, step) in steps.into_iter().enumerate() {
            let closes = is_followed && i + 1 == n_steps;
            let message = self.message(&step, closes);
            self.written.push(message);
        }
    }

    fn message(&mut self, step: &Step<'_>, closes: bool) -> Value {
        let guard = self.guard;
        let mut message = json!({"role": "assistant", "content": guard(&step.answer)});
        if !step.thinking.is_empty() {
            message["reasoning_content"] = Value::String(guard(&step.thinking));
        }
        if step.calls.is_empty() {
            return message;
        }
        let mut responses = Vec::new();
        for call in &step.calls {
            let name = guard(&call.name);
            let response = |content: Value| json!({"name": name, "response": content});
            responses.extend(call.results.iter().map(|result| {
                response(match result {
                    ToolContent::Text(text) => Value::String(guard(text)),
                    ToolContent::Json(value) => marks::spelled(guarded(value, guard)),
                })
            }));
            if let (true, Some(call)) = (call.results.is_empty(), call.call) {
                let call_id = call.id.clone();
                self.warnings.push(Warning::NoResult { call_id });
                responses.push(response(json!(NO_RESULT)));
            }
        }
        message["tool_calls"] = step.calls.iter().map(|call| written(call, guard)).collect();
        message["tool_responses"] = Value::Array(responses);
        if step.answer.is_empty() {
            // The template looks at whether a text is there, not at what it says.
            let nothing = if closes {
                marks::NOTHING.to_string()
            } else {
                String::new()
            };
            message["content"] = Value::String(nothing);
        }
        message
    }
}

fn written(call: &Call<'_>, guard: &dyn Fn(&str) -> String) -> Value {
    let name = marks::named(&guard(&call.before), &guard(&call.name));
    let (id, arguments) = call.call.map_or((Value::Null, json!({})), |call| {
        let arguments = Value::Object(call.arguments.clone());
        (json!(call.id), marks::spelled(guarded(&arguments, guard)))
    });
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn append(text: &mut String, more: &str) {
    if !text.is_empty() && !more.is_empty() {
        text.push_str(APART);
    }
    text.push_str(more);
}

/// Takes whole thoughts out of an answer: another program may have left them there. What only looks like half of one stays.
fn without_thoughts(content: &str) -> String {
    const OPENS: &str = "<|channel>";
    const CLOSES: &str = "<channel|>";
    let (mut text, mut rest) = (String::new(), content);
    while let Some((before, thought)) = rest.split_once(OPENS) {
        let Some((_, after)) = thought.split_once(CLOSES) else {
            break;
        };
        text.push_str(before);
        rest = after;
    }
    text + rest
}
