//! Answers of chat completions: one object, or chunks in the order that the official SDKs accept.

use serde_json::{Value, json};

use crate::answer::{Answer, Call, Head, HeldLogprobs};
use crate::error::Refusal;
use crate::sse::{Events, Voice};
use crate::turn::{End, Outcome, Piece, TokenLogprob, Usage};
use crate::wire::{Reply, Shape};

/// How this answer is said.
pub struct ChatReply {
    /// Whether a stream ends with a chunk that has the usage.
    pub include_usage: bool,
    /// Whether log probabilities are said.
    pub wants_logprobs: bool,
}

impl Reply for ChatReply {
    fn whole(self: Box<Self>, head: &Head, answer: &Answer, outcome: &Outcome) -> Value {
        let calls: Vec<Value> = answer.calls().map(call).collect();
        let (text, thinking) = (answer.text(), answer.thinking());
        // Beside calls, no text is null; an answer without either is an empty text.
        let content = if text.is_empty() && !calls.is_empty() {
            Value::Null
        } else {
            text.into()
        };
        let mut message = json!({ "role": "assistant", "content": content, "refusal": null });
        if !thinking.is_empty() {
            message["reasoning_content"] = thinking.into();
        }
        let reason = finish_reason(&outcome.end, !calls.is_empty());
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        let logprobs = self.wants_logprobs.then(|| logprobs(&answer.logprobs));
        json!({
            "id": format!("chatcmpl-{}", head.id),
            "object": "chat.completion",
            "created": head.created,
            "model": head.model,
            "system_fingerprint": null,
            "choices": [{
                "index": 0,
                "message": message,
                "logprobs": logprobs,
                "finish_reason": reason,
            }],
            "usage": usage(&outcome.usage),
        })
    }

    fn voice(self: Box<Self>, head: Head) -> Box<dyn Voice> {
        Box::new(Chunks {
            reply: *self,
            head,
            n_calls: 0,
            held: HeldLogprobs::default(),
        })
    }
}

struct Chunks {
    reply: ChatReply,
    head: Head,
    n_calls: usize,
    held: HeldLogprobs,
}

impl Chunks {
    fn chunk(&self, choices: Value, usage: Option<Value>) -> Value {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", self.head.id),
            "object": "chat.completion.chunk",
            "created": self.head.created,
            "model": self.head.model,
            "system_fingerprint": null,
            "choices": choices,
        });
        if self.reply.include_usage {
            chunk["usage"] = usage.unwrap_or(Value::Null);
        }
        chunk
    }

    fn delta(&self, delta: Value, logprobs: Option<Value>, reason: Option<&str>) -> Value {
        self.chunk(
            json!([{ "index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason }]),
            None,
        )
    }
}

impl Voice for Chunks {
    fn open(&mut self, out: &mut Events) {
        out.data(&self.delta(json!({ "role": "assistant", "content": "" }), None, None));
    }

    fn piece(&mut self, piece: Piece, out: &mut Events) {
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Token(token) => self.held.push(token),
            Piece::Thinking(text) => {
                self.held.drop_all();
                out.data(&self.delta(json!({ "reasoning_content": text }), None, None));
            }
            Piece::Text(text) => {
                let tokens = self.held.take();
                let logprobs = self.reply.wants_logprobs.then(|| logprobs(&tokens));
                out.data(&self.delta(json!({ "content": text }), logprobs, None));
            }
            Piece::Call { name, arguments } => {
                self.held.drop_all();
                // All of a call is one delta: clients that add deltas up and clients that want id, type and name in each are both right.
                let mut call = call(&Call::new(name, arguments));
                call["index"] = self.n_calls.into();
                self.n_calls += 1;
                out.data(&self.delta(json!({ "tool_calls": [call] }), None, None));
            }
        }
    }

    fn close(&mut self, outcome: &Outcome, out: &mut Events) {
        let reason = finish_reason(&outcome.end, self.n_calls > 0);
        out.data(&self.delta(json!({}), None, Some(reason)));
        if self.reply.include_usage {
            out.data(&self.chunk(json!([]), Some(usage(&outcome.usage))));
        }
        out.done();
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Events) {
        out.data(&Shape::OpenAi.body(refusal));
        out.done();
    }
}

/// Why an answer ended, in OpenAI's words.
pub fn finish_reason(end: &End, has_calls: bool) -> &'static str {
    match end {
        End::Length | End::ContextFull => "length",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}

/// Tokens, in the words of chat completions and of completions.
pub fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.new,
        "total_tokens": usage.prompt + usage.new,
        "prompt_tokens_details": { "cached_tokens": usage.cached },
        "completion_tokens_details": { "reasoning_tokens": usage.reasoning },
    })
}

fn call(call: &Call) -> Value {
    json!({
        "id": format!("call_{}", call.id),
        "type": "function",
        "function": { "name": call.name, "arguments": call.arguments_text() },
    })
}

fn logprobs(tokens: &[TokenLogprob]) -> Value {
    let content: Vec<Value> = tokens.iter().map(token_logprob).collect();
    json!({ "content": content, "refusal": null })
}

/// One token as chat completions and responses say it.
pub fn token_logprob(token: &TokenLogprob) -> Value {
    let one = |text: &str, logprob: f32| json!({ "token": text, "logprob": logprob, "bytes": text.as_bytes() });
    let mut value = one(&token.token, token.logprob);
    let top = token.top.iter().map(|(text, logprob)| one(text, *logprob));
    value["top_logprobs"] = top.collect();
    value
}
