//! The response object and its items.

use serde_json::{Value, json};

use super::events::ResponseEvents;
use crate::answer::{Answer, Block, Call, Head};
use crate::ids;
use crate::sse::Voice;
use crate::turn::{End, Outcome, TokenLogprob, Usage};
use crate::wire::Reply;
use crate::wire::chat::token_logprob;

/// How this answer is said.
pub struct ResponseReply {
    /// What the request said, given back with every response.
    pub base: Value,
}

impl Reply for ResponseReply {
    fn whole(self: Box<Self>, head: &Head, answer: &Answer, outcome: &Outcome) -> Value {
        // All text comes in one item unless there is something between, so that its tokens are the answer's.
        let mut tokens = Some(&answer.logprobs);
        let n_blocks = answer.blocks.len();
        let items = answer.blocks.iter().enumerate().map(|(i, block)| {
            let logprobs = match block {
                Block::Text(_) => tokens.take().map_or(&[][..], Vec::as_slice),
                _ => &[],
            };
            let progress = match i + 1 == n_blocks {
                true => Progress::of_last(block, &outcome.end),
                false => Progress::Completed,
            };
            item(&ids::new(), block, logprobs, progress)
        });
        let items: Vec<Value> = items.collect();
        self.ended(head, items, outcome)
    }

    fn voice(self: Box<Self>, head: Head) -> Box<dyn Voice> {
        Box::new(ResponseEvents::new(*self, head))
    }
}

impl ResponseReply {
    /// The response while it is made.
    pub fn begun(&self, head: &Head) -> Value {
        let mut response = json!({
            "id": format!("resp_{}", head.id),
            "object": "response",
            "created_at": head.created,
            "status": "in_progress",
            "background": false,
            "error": null,
            "incomplete_details": null,
            "model": head.model,
            "output": [],
            "usage": null,
        });
        if let (Some(response), Some(base)) = (response.as_object_mut(), self.base.as_object()) {
            response.extend(base.clone());
        }
        response
    }

    /// The response that is whole, or was cut off.
    pub fn ended(&self, head: &Head, items: Vec<Value>, outcome: &Outcome) -> Value {
        let mut response = self.begun(head);
        response["output"] = items.into();
        response["usage"] = usage(&outcome.usage);
        if is_whole(&outcome.end) {
            response["status"] = "completed".into();
        } else {
            response["status"] = "incomplete".into();
            response["incomplete_details"] = json!({ "reason": "max_output_tokens" });
        }
        response
    }
}

/// Whether the model came to its own end.
pub fn is_whole(end: &End) -> bool {
    !matches!(end, End::Length | End::ContextFull)
}

/// How far an item has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It begins.
    Begun,
    /// It is whole.
    Completed,
    /// The answer ended in the middle of it.
    Incomplete,
}

impl Progress {
    /// Of the last item of an answer that ended so. A call comes whole or not at all.
    pub fn of_last(block: &Block, end: &End) -> Progress {
        match block {
            Block::Text(_) | Block::Thinking(_) if !is_whole(end) => Progress::Incomplete,
            _ => Progress::Completed,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Progress::Begun => "in_progress",
            Progress::Completed => "completed",
            Progress::Incomplete => "incomplete",
        }
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": { "cached_tokens": usage.cached },
        "output_tokens": usage.new,
        "output_tokens_details": { "reasoning_tokens": usage.reasoning },
        "total_tokens": usage.prompt + usage.new,
    })
}

/// A part of an answer as an item; one that begins is empty.
pub fn item(id: &str, block: &Block, logprobs: &[TokenLogprob], progress: Progress) -> Value {
    let (status, is_done) = (progress.word(), progress != Progress::Begun);
    match block {
        Block::Thinking(text) => {
            let content = if is_done {
                vec![reasoning_part(text)]
            } else {
                Vec::new()
            };
            json!({ "id": item_id(id, block), "type": "reasoning", "summary": [], "content": content, "encrypted_content": null, "status": status })
        }
        Block::Text(text) => {
            let content = if is_done {
                vec![text_part(text, logprobs)]
            } else {
                Vec::new()
            };
            json!({ "id": item_id(id, block), "type": "message", "status": status, "role": "assistant", "content": content })
        }
        Block::Call(call) => {
            let arguments = if is_done {
                call.arguments_text()
            } else {
                String::new()
            };
            json!({
                "id": item_id(id, block),
                "type": "function_call",
                "status": status,
                "arguments": arguments,
                "call_id": call_id(call),
                "name": call.name,
            })
        }
    }
}

fn call_id(call: &Call) -> String {
    format!("call_{}", call.id)
}

/// The id of an item.
pub fn item_id(id: &str, block: &Block) -> String {
    let prefix = match block {
        Block::Thinking(_) => "rs",
        Block::Text(_) => "msg",
        Block::Call(_) => "fc",
    };
    format!("{prefix}_{id}")
}

/// The part of a message.
pub fn text_part(text: &str, logprobs: &[TokenLogprob]) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": self::logprobs(logprobs) })
}

/// The part of a thought.
pub fn reasoning_part(text: &str) -> Value {
    json!({ "type": "reasoning_text", "text": text })
}

/// Log probabilities.
pub fn logprobs(tokens: &[TokenLogprob]) -> Value {
    tokens.iter().map(token_logprob).collect()
}
