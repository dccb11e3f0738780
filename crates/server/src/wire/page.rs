//! What the page and the server say to each other, under `/app/`. The page's twin of this file is `app/src/wire.ts`.

use ouzel::SamplerOptions;
use ouzel_chats::{Chat, Message, Role};
use serde::{Deserialize, Serialize};

use super::Defaults;
use super::checks::{number, positive};
use super::setup::Wish;
use crate::engine::Plan;
use crate::error::Refusal;
use crate::metrics;
use crate::turn::{End, Outcome};

/// Letters of a title or a search that are believed.
pub const MAX_LINE_CHARS: usize = 1000;

/// `POST /app/session`: one of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Enter {
    /// What stands behind `#` in the address.
    pub token: Option<String>,
    /// The API key.
    pub key: Option<String>,
}

/// `GET /app/session`: how one gets in.
#[derive(Debug, Serialize)]
pub struct Entrance {
    /// Whether the request came with the cookie.
    pub is_inside: bool,
    /// Whether the API key opens the page.
    pub takes_key: bool,
}

/// `POST /app/turns`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ask {
    /// The conversation; a new one where none is named.
    pub chat: Option<i64>,
    /// The message from which on the conversation is forgotten first.
    pub replaces: Option<i64>,
    /// What the person says; nothing where an answer is made anew.
    pub text: Option<String>,
    /// Where the conversation does not fit, the model does without its oldest turns.
    #[serde(default)]
    pub leaves_out: bool,
}

/// What `POST /app/turns` began.
#[derive(Debug, Serialize)]
pub struct Asked {
    /// The conversation.
    pub chat: i64,
    /// The answer.
    pub answer: i64,
}

/// `POST /app/tokens`, and what `POST /app/pdf` found.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// The text.
    pub text: String,
}

/// What `POST /app/tokens` says.
#[derive(Debug, Serialize)]
pub struct Counted {
    /// Tokens of the text, by itself.
    pub tokens: usize,
}

/// A conversation in the list.
#[derive(Debug, Serialize)]
pub struct ChatLine {
    /// Its number.
    pub id: i64,
    /// What it is called.
    pub title: String,
    /// Milliseconds from 1970 to its first message.
    pub created_ms: i64,
    /// The same to its last change.
    pub updated_ms: i64,
    /// Whether it is being answered.
    pub is_answering: bool,
    /// Where the words of a search stand in it.
    pub excerpt: Option<String>,
}

/// A conversation with its messages.
#[derive(Debug, Serialize)]
pub struct WholeChat {
    /// Its line of the list.
    #[serde(flatten)]
    pub line: ChatLine,
    /// What was said, oldest first.
    pub messages: Vec<PageMessage>,
}

/// Something that was said.
#[derive(Debug, Serialize)]
pub struct PageMessage {
    /// Its number.
    pub id: i64,
    /// `user` or `assistant`.
    pub role: &'static str,
    /// What.
    pub text: String,
    /// What was thought before.
    pub thinking: String,
    /// Milliseconds since 1970.
    pub created_ms: i64,
    /// How an answer ended; none while it is written.
    pub ending: Option<Ending>,
}

/// `POST /app/search`: in the body, so that what is looked for is in no address.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// All of them are looked for.
    pub words: String,
}

/// `PATCH /app/chats/{id}`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rename {
    /// The new title.
    pub title: String,
}

/// How an answer ended; kept with it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ending {
    /// Why.
    pub reason: Reason,
    /// What went wrong, in English.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The same for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent: Option<Spent>,
    /// The oldest messages, so many of them, that the model was not given, because they did not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
    /// A context in which the turn would have fitted, where it did not and there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub larger: Option<Larger>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// A larger context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Larger {
    /// Tokens of it.
    pub context: usize,
    /// The memory with which it would run.
    pub memory_bytes: u64,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The model was done.
    Done,
    /// The most new tokens, or the time limit.
    Length,
    /// The context is full.
    ContextFull,
    /// The person stopped it.
    Stopped,
    /// The program ended before.
    Interrupted,
    /// Something went wrong.
    Failed,
}

/// What is happening to an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Others come first, or the model is loaded.
    #[default]
    Waiting,
    /// The prompt is read.
    Reading,
    /// The model thinks.
    Thinking,
    /// The model writes.
    Writing,
}

/// What an answer takes of the machine.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Spent {
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Of those, held from before.
    pub cached_tokens: usize,
    /// Written by the model.
    pub new_tokens: usize,
    /// Time for the prompt.
    pub prefill_ms: u64,
    /// Time for the new tokens.
    pub decode_ms: u64,
    /// Chosen experts found in memory.
    pub hits: u64,
    /// Chosen experts read.
    pub misses: u64,
    /// Bytes read.
    pub bytes_read: u64,
}

/// `event: said` of `GET /app/answers/{id}`: what came since the last one.
#[derive(Debug, Serialize)]
pub struct Said {
    /// Whether this is all there is until now, instead of what follows.
    pub begins: bool,
    /// Text of the answer.
    pub text: String,
    /// Text of what is thought.
    pub thinking: String,
    /// What is happening.
    pub phase: Phase,
    /// Tokens of the prompt that were read, and all of them.
    pub prompt: Option<(usize, usize)>,
    /// What it took until now.
    pub spent: Option<Spent>,
    /// Why it cannot be kept, if it cannot.
    pub unsaved: Option<String>,
}

/// `GET /app/status`
#[derive(Debug, Serialize)]
pub struct Status {
    /// The program's version.
    pub version: &'static str,
    /// What the model is called; empty where none is chosen.
    pub model: String,
    /// Whether another one can be chosen.
    pub can_choose: bool,
    /// Whether it is in memory.
    pub is_loaded: bool,
    /// Whether it is on its way there.
    pub is_loading: bool,
    /// How far it is then, where it has a process of its own and the system says what that has taken.
    pub loading: Option<Loading>,
    /// Whether it answers anybody.
    pub is_answering: bool,
    /// Turns that wait for it.
    pub waiting: usize,
    /// Tokens of context.
    pub context: usize,
    /// The number of the process that has the model, while there is one.
    pub pid: Option<u32>,
    /// What that process may take of memory.
    pub budget_bytes: u64,
    /// What it takes now, where the system says; 0 without a process.
    pub resident_bytes: Option<u64>,
    /// Retained expert slots of all layers at a full context.
    pub slots: usize,
    /// Layers with routed experts.
    pub layers: usize,
    /// Routed experts of each layer.
    pub experts: usize,
    /// What the memory is for.
    pub plan: Vec<PlanLine>,
    /// What is meant where the settings say nothing.
    pub defaults: Sampling,
}

/// How far a model is on its way into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Loading {
    /// Bytes that its process has taken, up to all of them.
    pub done_bytes: u64,
    /// Bytes of the weights that are read before it answers.
    pub total_bytes: u64,
}

/// A line of the memory's plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanLine {
    /// What the bytes are for.
    pub what: String,
    /// How many.
    pub bytes: u64,
}

impl PlanLine {
    /// All of a plan.
    pub fn of(plan: Plan) -> Vec<PlanLine> {
        let line = |(what, bytes)| PlanLine { what, bytes };
        plan.lines.into_iter().map(line).collect()
    }
}

/// How tokens are chosen.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Sampling {
    /// 0 to 2.
    pub temperature: f32,
    /// Above 0, to 1.
    pub top_p: f32,
    /// 0 keeps all.
    pub top_k: u32,
}

/// `GET` and `PUT /app/settings`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Said to the model before every conversation.
    pub system: String,
    /// Whether the model thinks first.
    pub thinking: bool,
    /// 0 to 2.
    pub temperature: Option<f32>,
    /// Above 0, to 1.
    pub top_p: Option<f32>,
    /// 0 keeps all.
    pub top_k: Option<u32>,
    /// The most new tokens of an answer.
    pub max_new: Option<u32>,
    /// `light`, `dark`, or whatever the system has.
    pub theme: Option<Theme>,
    /// `en`, `de`, or whatever the browser asks for.
    pub language: Option<Language>,
    /// Whether Enter begins a new line, and Ctrl+Enter sends.
    pub enter_is_newline: bool,
    /// The model and how it was opened, when it was chosen on the page last.
    pub engine: Wish,
}

/// How the page looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Theme {
    /// Dark on light.
    Light,
    /// Light on dark.
    Dark,
}

/// What the page speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// English.
    En,
    /// German.
    De,
}

impl Settings {
    /// How tokens are chosen, checked.
    pub fn sampler(&self, defaults: &Defaults) -> Result<SamplerOptions, Refusal> {
        let base = &defaults.sampler;
        Ok(SamplerOptions {
            temperature: number("temperature", self.temperature, 0.0..=2.0, base.temperature)?,
            top_p: positive("top_p", self.top_p, 1.0, base.top_p)?,
            top_k: self.top_k.unwrap_or(base.top_k),
            ..base.clone()
        })
    }
}

impl Ending {
    /// How a turn ended that the model was asked for.
    pub fn of(result: &Result<Outcome, Refusal>) -> Ending {
        match result {
            Ok(outcome) => Ending {
                reason: match outcome.end {
                    End::Stop | End::StopText(_) => Reason::Done,
                    End::Length => Reason::Length,
                    End::ContextFull => Reason::ContextFull,
                    End::Cancelled => Reason::Stopped,
                },
                spent: Some(Spent::from(metrics::Spent {
                    usage: outcome.usage,
                    cost: outcome.cost,
                })),
                ..Ending::because(Reason::Done)
            },
            Err(refusal) => Ending {
                message: Some(refusal.to_string()),
                code: Some(refusal.code().to_owned()),
                ..Ending::because(Reason::Failed)
            },
        }
    }

    /// An ending of which no more is known than why.
    pub fn because(reason: Reason) -> Ending {
        Ending {
            reason,
            message: None,
            code: None,
            spent: None,
            left_out: 0,
            larger: None,
        }
    }
}

impl From<metrics::Spent> for Spent {
    fn from(spent: metrics::Spent) -> Spent {
        Spent {
            prompt_tokens: spent.usage.prompt,
            cached_tokens: spent.usage.cached,
            new_tokens: spent.usage.new,
            prefill_ms: spent.cost.prefill.as_millis() as u64,
            decode_ms: spent.cost.decode.as_millis() as u64,
            hits: spent.cost.hits,
            misses: spent.cost.misses,
            bytes_read: spent.cost.bytes_read,
        }
    }
}

impl ChatLine {
    /// A conversation, and what is known of it beside its row.
    pub fn of(chat: Chat, is_answering: bool, excerpt: Option<String>) -> ChatLine {
        ChatLine {
            id: chat.id,
            title: chat.title,
            created_ms: chat.created_ms,
            updated_ms: chat.updated_ms,
            is_answering,
            excerpt,
        }
    }
}

impl PageMessage {
    /// A message; one that has no ending, and that nobody here is writing, was interrupted.
    pub fn of(message: Message, is_written: bool) -> PageMessage {
        let kept = message.ending.as_deref();
        // An ending of another version of this program that is not understood is no reason to hide the answer.
        let kept = kept.map(|text| {
            serde_json::from_str(text).unwrap_or_else(|_| Ending::because(Reason::Interrupted))
        });
        let ending = match message.role {
            Role::User => None,
            Role::Assistant if is_written => None,
            Role::Assistant => Some(kept.unwrap_or_else(|| Ending::because(Reason::Interrupted))),
        };
        PageMessage {
            id: message.id,
            role: match message.role {
                Role::User => "user",
                Role::Assistant => "assistant",
            },
            text: message.text,
            thinking: message.thinking,
            created_ms: message.created_ms,
            ending,
        }
    }
}
