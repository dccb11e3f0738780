//! Answers of messages: one object, or Anthropic's events in their order.

use serde_json::{Value, json};

use crate::answer::{Answer, Block, Call, Head};
use crate::error::Refusal;
use crate::sse::{Events, Voice};
use crate::turn::{End, Outcome, Piece, Usage};
use crate::wire::{Reply, Shape};

/// Clients send thoughts back with the signature that they got; here it signs nothing.
const SIGNATURE: &str = "unsigned";

/// How this answer is said.
pub struct MessageReply;

impl Reply for MessageReply {
    fn whole(self: Box<Self>, head: &Head, answer: &Answer, outcome: &Outcome) -> Value {
        let content: Vec<Value> = answer.blocks.iter().map(block).collect();
        let (reason, sequence) = stop(&outcome.end, answer.calls().next().is_some());
        let mut message = message(head);
        message["content"] = content.into();
        message["stop_reason"] = reason.into();
        message["stop_sequence"] = sequence.into();
        message["usage"] = usage(&outcome.usage);
        message
    }

    fn voice(self: Box<Self>, head: Head) -> Box<dyn Voice> {
        Box::new(Blocks {
            head,
            index: 0,
            open: None,
            has_pinged: false,
            has_calls: false,
        })
    }
}

fn message(head: &Head) -> Value {
    json!({
        "id": format!("msg_{}", head.id),
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage(&Usage { prompt: head.prompt_tokens, ..Usage::default() }),
    })
}

fn block(block: &Block) -> Value {
    match block {
        Block::Thinking(text) => {
            json!({ "type": "thinking", "thinking": text, "signature": SIGNATURE })
        }
        Block::Text(text) => json!({ "type": "text", "text": text }),
        Block::Call(call) => {
            json!({ "type": "tool_use", "id": call_id(call), "name": call.name, "input": call.arguments })
        }
    }
}

fn call_id(call: &Call) -> String {
    format!("toolu_{}", call.id)
}

/// The reason and, where it is one, the text that ended the answer.
fn stop(end: &End, has_calls: bool) -> (&'static str, Option<&str>) {
    match end {
        End::StopText(text) => ("stop_sequence", Some(text)),
        End::Length => ("max_tokens", None),
        End::ContextFull => ("model_context_window_exceeded", None),
        _ if has_calls => ("tool_use", None),
        _ => ("end_turn", None),
    }
}

/// Here, tokens from the cache are not among the input tokens.
fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.new,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
}

struct Blocks {
    head: Head,
    /// Of the block that is open, or of the next one.
    index: usize,
    open: Option<Kind>,
    has_pinged: bool,
    has_calls: bool,
}

impl Blocks {
    fn start(&mut self, content: Value, out: &mut Events) {
        event(
            "content_block_start",
            json!({ "index": self.index, "content_block": content }),
            out,
        );
        if !self.has_pinged {
            self.has_pinged = true;
            self.heartbeat(out);
        }
    }

    fn delta(&self, delta: Value, out: &mut Events) {
        event(
            "content_block_delta",
            json!({ "index": self.index, "delta": delta }),
            out,
        );
    }

    fn stop(&mut self, out: &mut Events) {
        event("content_block_stop", json!({ "index": self.index }), out);
        self.index += 1;
    }

    /// Sees to it that a block of this kind is open.
    fn enter(&mut self, kind: Kind, out: &mut Events) {
        if self.open == Some(kind) {
            return;
        }
        self.leave(out);
        self.open = Some(kind);
        let content = match kind {
            Kind::Thinking => json!({ "type": "thinking", "thinking": "", "signature": "" }),
            Kind::Text => json!({ "type": "text", "text": "" }),
        };
        self.start(content, out);
    }

    fn leave(&mut self, out: &mut Events) {
        let Some(kind) = self.open.take() else {
            return;
        };
        if kind == Kind::Thinking {
            self.delta(
                json!({ "type": "signature_delta", "signature": SIGNATURE }),
                out,
            );
        }
        self.stop(out);
    }
}

/// Every event repeats its name as its type.
fn event(name: &str, mut value: Value, out: &mut Events) {
    let mut whole = json!({ "type": name });
    if let (Some(whole), Some(value)) = (whole.as_object_mut(), value.as_object_mut()) {
        whole.append(value);
    }
    out.event(name, &whole);
}

impl Voice for Blocks {
    fn open(&mut self, out: &mut Events) {
        event(
            "message_start",
            json!({ "message": message(&self.head) }),
            out,
        );
    }

    fn piece(&mut self, piece: Piece, out: &mut Events) {
        match piece {
            Piece::Prompt { .. } | Piece::Token(_) => {}
            Piece::Thinking(text) => {
                self.enter(Kind::Thinking, out);
                self.delta(json!({ "type": "thinking_delta", "thinking": text }), out);
            }
            Piece::Text(text) => {
                self.enter(Kind::Text, out);
                self.delta(json!({ "type": "text_delta", "text": text }), out);
            }
            Piece::Call { name, arguments } => {
                self.leave(out);
                self.has_calls = true;
                let call = Call::new(name, arguments);
                self.start(json!({ "type": "tool_use", "id": call_id(&call), "name": call.name, "input": {} }), out);
                self.delta(
                    json!({ "type": "input_json_delta", "partial_json": call.arguments_text() }),
                    out,
                );
                self.stop(out);
            }
        }
    }

    fn close(&mut self, outcome: &Outcome, out: &mut Events) {
        self.leave(out);
        let (reason, sequence) = stop(&outcome.end, self.has_calls);
        let delta = json!({ "stop_reason": reason, "stop_sequence": sequence });
        event(
            "message_delta",
            json!({ "delta": delta, "usage": usage(&outcome.usage) }),
            out,
        );
        event("message_stop", json!({}), out);
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Events) {
        out.event("error", &Shape::Anthropic.body(refusal));
    }

    fn heartbeat(&mut self, out: &mut Events) {
        event("ping", json!({}), out);
    }
}
