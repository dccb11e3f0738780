//! A response as events, each with its number, in the order that OpenAI's clients accept.

use serde_json::{Value, json};

use super::object::{
    Progress, ResponseReply, is_whole, item, item_id, logprobs, reasoning_part, text_part,
};
use crate::answer::{Block, Call, Head, HeldLogprobs};
use crate::error::Refusal;
use crate::ids;
use crate::sse::{Events, Voice};
use crate::turn::{Outcome, Piece, TokenLogprob};

/// The events of one response.
pub struct ResponseEvents {
    reply: ResponseReply,
    head: Head,
    sequence: u64,
    /// Items that are done.
    done: Vec<Value>,
    open: Option<Open>,
    held: HeldLogprobs,
}

/// The item that is being said.
struct Open {
    id: String,
    block: Block,
    tokens: Vec<TokenLogprob>,
}

impl Open {
    fn new(block: Block) -> Open {
        Open {
            id: ids::new(),
            block,
            tokens: Vec::new(),
        }
    }

    fn item_id(&self) -> String {
        item_id(&self.id, &self.block)
    }
}

impl ResponseEvents {
    /// Nothing said yet.
    pub fn new(reply: ResponseReply, head: Head) -> ResponseEvents {
        ResponseEvents {
            reply,
            head,
            sequence: 0,
            done: Vec::new(),
            open: None,
            held: HeldLogprobs::default(),
        }
    }

    fn say(&mut self, name: &str, fields: Value, out: &mut Events) {
        let mut event = json!({ "type": name, "sequence_number": self.sequence });
        self.sequence += 1;
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        out.event(name, &event);
    }

    /// An event about the part of the item that is open.
    fn say_of_part(&mut self, name: &str, fields: Value, out: &mut Events) {
        let Some(open) = &self.open else {
            return;
        };
        let mut all = json!({ "item_id": open.item_id(), "output_index": self.done.len(), "content_index": 0 });
        if let (Some(all), Value::Object(fields)) = (all.as_object_mut(), fields) {
            all.extend(fields);
        }
        self.say(name, all, out);
    }

    fn begin(&mut self, open: Open, out: &mut Events) {
        let added = item(&open.id, &open.block, &[], Progress::Begun);
        self.open = Some(open);
        self.say(
            "response.output_item.added",
            json!({ "output_index": self.done.len(), "item": added }),
            out,
        );
    }

    /// Sees to it that an item for text, or for thoughts, is open.
    fn enter(&mut self, is_text: bool, out: &mut Events) {
        match &self.open {
            Some(Open {
                block: Block::Text(_),
                ..
            }) if is_text => return,
            Some(Open {
                block: Block::Thinking(_),
                ..
            }) if !is_text => return,
            _ => {}
        }
        self.leave(Progress::Completed, out);
        let (block, part) = if is_text {
            (Block::Text(String::new()), text_part("", &[]))
        } else {
            (Block::Thinking(String::new()), reasoning_part(""))
        };
        self.begin(Open::new(block), out);
        self.say_of_part("response.content_part.added", json!({ "part": part }), out);
    }

    fn leave(&mut self, progress: Progress, out: &mut Events) {
        let Some(open) = &self.open else {
            return;
        };
        let whole = item(&open.id, &open.block, &open.tokens, progress);
        match &open.block {
            Block::Text(text) => {
                let part = text_part(text, &open.tokens);
                let fields = json!({ "text": text, "logprobs": logprobs(&open.tokens) });
                self.say_of_part("response.output_text.done", fields, out);
                self.say_of_part("response.content_part.done", json!({ "part": part }), out);
            }
            Block::Thinking(text) => {
                let (part, fields) = (reasoning_part(text), json!({ "text": text }));
                self.say_of_part("response.reasoning_text.done", fields, out);
                self.say_of_part("response.content_part.done", json!({ "part": part }), out);
            }
            Block::Call(_) => {}
        }
        self.say(
            "response.output_item.done",
            json!({ "output_index": self.done.len(), "item": whole }),
            out,
        );
        self.done.push(whole);
        self.open = None;
    }

    fn call(&mut self, call: Call, out: &mut Events) {
        self.leave(Progress::Completed, out);
        let (arguments, name) = (call.arguments_text(), call.name.clone());
        self.begin(Open::new(Block::Call(call)), out);
        let of_item = json!({ "item_id": self.open.as_ref().map(Open::item_id), "output_index": self.done.len() });
        let with = |field: &str, text: &str| {
            let mut fields = of_item.clone();
            fields[field] = text.into();
            fields
        };
        self.say(
            "response.function_call_arguments.delta",
            with("delta", &arguments),
            out,
        );
        let mut done = with("arguments", &arguments);
        done["name"] = name.into();
        self.say("response.function_call_arguments.done", done, out);
        self.leave(Progress::Completed, out);
    }
}

impl Voice for ResponseEvents {
    fn open(&mut self, out: &mut Events) {
        let response = self.reply.begun(&self.head);
        self.say("response.created", json!({ "response": response }), out);
        self.say("response.in_progress", json!({ "response": response }), out);
    }

    fn piece(&mut self, piece: Piece, out: &mut Events) {
        match piece {
            Piece::Prompt { .. } => {}
            Piece::Token(token) => self.held.push(token),
            Piece::Thinking(text) => {
                self.held.drop_all();
                self.enter(false, out);
                if let Some(Open {
                    block: Block::Thinking(all),
                    ..
                }) = &mut self.open
                {
                    all.push_str(&text);
                }
                self.say_of_part(
                    "response.reasoning_text.delta",
                    json!({ "delta": text }),
                    out,
                );
            }
            Piece::Text(text) => {
                self.enter(true, out);
                let tokens = self.held.take();
                let fields = json!({ "delta": text, "logprobs": logprobs(&tokens) });
                if let Some(Open {
                    block: Block::Text(all),
                    tokens: known,
                    ..
                }) = &mut self.open
                {
                    all.push_str(&text);
                    known.extend(tokens);
                }
                self.say_of_part("response.output_text.delta", fields, out);
            }
            Piece::Call { name, arguments } => {
                self.held.drop_all();
                self.call(Call::new(name, arguments), out);
            }
        }
    }

    fn close(&mut self, outcome: &Outcome, out: &mut Events) {
        if let Some(open) = &self.open {
            self.leave(Progress::of_last(&open.block, &outcome.end), out);
        }
        let name = if is_whole(&outcome.end) {
            "response.completed"
        } else {
            "response.incomplete"
        };
        let response = self.reply.ended(&self.head, self.done.clone(), outcome);
        self.say(name, json!({ "response": response }), out);
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Events) {
        self.leave(Progress::Incomplete, out);
        let mut response = self.reply.begun(&self.head);
        response["status"] = "failed".into();
        response["output"] = self.done.clone().into();
        response["error"] = json!({ "code": refusal.code(), "message": refusal.to_string() });
        self.say("response.failed", json!({ "response": response }), out);
    }
}
