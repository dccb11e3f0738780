//! An engine without a model: it does what the last message tells it to. For tests of the doors and for load tests.
//!
//! A token is a byte of text. The last message is a list of commands, one a line:
//!
//! ```text
//! say TEXT          the text, a token a word; `say` alone says the whole prompt
//! think TEXT        the same as thinking
//! call NAME JSON    a tool call
//! repeat N TEXT     the text N times
//! wait MS           time passes, in steps of a millisecond, unless cancelled
//! prefill N MS      the prompt takes N steps of so many milliseconds
//! fail TEXT         an error
//! lose              the model is gone
//! unkept TEXT       what is kept of it could not be, and why
//! panic             a mistake of the programmer
//! ```
//!
//! Any other text is said as it stands.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

use ouzel::Cancel;
use ouzel_tokenizer::{ChatMessage, Conversation, ToolContent};
use serde_json::Value;

use crate::engine::{Engine, Facts, Loaded, Plan, Prepared, Process, Step};
use crate::error::Refusal;
use crate::turn::{Ask, Cost, End, Outcome, Piece, Settings, TokenLogprob, Turn, Usage};
use ouzel_service::{Experts, LayerExperts};

/// What the script stands for a control token.
const END_OF_ANSWER: char = '\n';
/// What it says that it takes.
const MEMORY_BYTES: u64 = 1 << 20;

/// The engine; clones share their counts.
#[derive(Clone, Debug)]
pub struct Script {
    /// Tokens of context.
    pub context: usize,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    loads: AtomicUsize,
    unloads: AtomicUsize,
    cancelled: AtomicUsize,
    finished: AtomicUsize,
}

impl Default for Script {
    fn default() -> Script {
        Script::new(4096)
    }
}

impl Script {
    /// An engine with so many tokens of context.
    pub fn new(context: usize) -> Script {
        Script {
            context,
            counts: Arc::default(),
        }
    }

    /// How often it was loaded, and how often given back.
    pub fn loads(&self) -> (usize, usize) {
        let read = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (read(&self.counts.loads), read(&self.counts.unloads))
    }

    /// Answers that were cancelled while they were made, and answers that came to their end.
    pub fn ends(&self) -> (usize, usize) {
        let read = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        (read(&self.counts.cancelled), read(&self.counts.finished))
    }
}

impl Engine for Script {
    fn facts(&self) -> Facts {
        Facts {
            context: self.context,
            vocabulary: 256,
            memory_bytes: MEMORY_BYTES,
            plan: Plan::default(),
        }
    }

    fn prepare(&self, turn: Turn) -> Result<Prepared, Refusal> {
        let ids = match turn.ask {
            Ask::Conversation(conversation) => bytes(&render(&conversation)),
            Ask::Text(text) => bytes(&text),
            Ask::Ids(ids) => ids,
        };
        Ok(Prepared {
            ids,
            settings: turn.settings,
            tool_names: Vec::new(),
            demand: None,
            warnings: Vec::new(),
        })
    }

    fn tokenize(&self, text: &str, _special: bool) -> Result<Vec<u32>, Refusal> {
        Ok(bytes(text))
    }

    fn detokenize(&self, ids: &[u32]) -> Result<String, Refusal> {
        let wrong = || Refusal::invalid("tokens", "tokens: an id is outside the vocabulary of 256");
        let bytes: Result<Vec<u8>, _> = ids.iter().map(|id| u8::try_from(*id)).collect();
        Ok(String::from_utf8_lossy(&bytes.map_err(|_| wrong())?).into_owned())
    }

    fn memory_for(&self, context: usize) -> Option<u64> {
        Some(context as u64 * 1024)
    }

    fn process(&self) -> Process {
        Process::own(MEMORY_BYTES)
    }

    fn load(&self) -> Result<Box<dyn Loaded>, Refusal> {
        self.counts.loads.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(Session {
            counts: self.counts.clone(),
            is_lost: false,
            troubles: Vec::new(),
        }))
    }
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

/// One line a message; the last one as it stands, so that its commands can be found.
fn render(conversation: &Conversation) -> String {
    let mut lines: Vec<String> = Vec::new();
    for tool in &conversation.tools {
        lines.push(format!("tool {}", tool.name));
    }
    for message in &conversation.messages {
        lines.push(match message {
            ChatMessage::System(text) => format!("system {}", one_line(text)),
            ChatMessage::User(text) => format!("user\u{1}{text}"),
            ChatMessage::Assistant {
                content,
                tool_calls,
                ..
            } => format!(
                "assistant {}{}",
                one_line(content.as_deref().unwrap_or_default()),
                tool_calls
                    .iter()
                    .map(|call| format!(
                        " [{} {}]",
                        call.name,
                        Value::Object(call.arguments.clone())
                    ))
                    .collect::<String>()
            ),
            ChatMessage::ToolResult { name, content, .. } => {
                let content = match content {
                    ToolContent::Text(text) => text.clone(),
                    ToolContent::Json(value) => value.to_string(),
                };
                format!(
                    "user\u{1}result of {}: {content}",
                    name.as_deref().unwrap_or("?")
                )
            }
        });
    }
    lines.join("\n")
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

struct Session {
    counts: Arc<Counts>,
    is_lost: bool,
    troubles: Vec<String>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.counts.unloads.fetch_add(1, Ordering::SeqCst);
    }
}

impl Loaded for Session {
    fn answer(
        &mut self,
        prepared: Prepared,
        cancel: &Cancel,
        emit: &mut dyn FnMut(Step),
    ) -> Result<(), Refusal> {
        let prompt: Vec<u8> = prepared.ids.iter().map(|id| *id as u8).collect();
        let prompt = String::from_utf8_lossy(&prompt).into_owned();
        let commands = prompt.rsplit('\u{1}').next().unwrap_or_default().to_owned();
        let mut reading = Reading {
            prompt: &prompt,
            settings: &prepared.settings,
            cancel,
            emit: &mut |piece| emit(Step::Piece(piece)),
            said: String::new(),
            new: 0,
            reasoning: 0,
            prefill: (1, 0),
        };
        let end = reading.run(&commands);
        let (new, reasoning) = (reading.new, reading.reasoning);
        self.is_lost = matches!(end, Err(Refusal::Lost(_)));
        let unkept = commands
            .lines()
            .filter_map(|line| line.strip_prefix("unkept "));
        self.troubles.extend(unkept.map(str::to_owned));
        let end = end?;
        let count = if end == End::Cancelled {
            &self.counts.cancelled
        } else {
            &self.counts.finished
        };
        count.fetch_add(1, Ordering::SeqCst);
        let usage = Usage {
            prompt: prepared.ids.len(),
            cached: 0,
            new,
            reasoning,
        };
        // Two layers of three experts, as if each word had chosen one that was there and one that was not.
        let layer = |marks: &str| LayerExperts {
            hits: usage.new as u64,
            misses: usage.new as u64,
            marks: marks.to_owned(),
        };
        emit(Step::Experts(Experts {
            experts: 3,
            layers: vec![layer("350"), layer("140")],
        }));
        emit(Step::Done(Outcome {
            end,
            usage,
            cost: Cost::default(),
        }));
        Ok(())
    }

    fn take_troubles(&mut self) -> Vec<String> {
        std::mem::take(&mut self.troubles)
    }

    fn is_lost(&self) -> bool {
        self.is_lost
    }
}

struct Reading<'a> {
    prompt: &'a str,
    settings: &'a Settings,
    cancel: &'a Cancel,
    emit: &'a mut dyn FnMut(Piece),
    said: String,
    new: usize,
    reasoning: usize,
    prefill: (usize, u64),
}

impl Reading<'_> {
    fn run(&mut self, commands: &str) -> Result<End, Refusal> {
        for line in commands.lines() {
            if let Some(rest) = line.strip_prefix("prefill ") {
                let mut numbers = rest.split(' ').filter_map(|n| n.parse().ok());
                self.prefill = (
                    numbers.next().unwrap_or(1) as usize,
                    numbers.next().unwrap_or(0),
                );
            }
        }
        let (total, ms) = self.prefill;
        for done in 1..=total {
            if self.pause(ms) {
                return Ok(End::Cancelled);
            }
            (self.emit)(Piece::Prompt { done, total });
        }
        for line in commands.lines() {
            if let Some(end) = self.line(line)? {
                return Ok(end);
            }
        }
        Ok(End::Stop)
    }

    fn line(&mut self, line: &str) -> Result<Option<End>, Refusal> {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        match command {
            "say" if rest.is_empty() => Ok(self.say(self.prompt, false)),
            "say" => Ok(self.say(rest, false)),
            "think" => Ok(self.say(rest, true)),
            "repeat" => {
                let (n, text) = rest.split_once(' ').unwrap_or((rest, ""));
                for _ in 0..n.parse().unwrap_or(0) {
                    if let Some(end) = self.say(text, false) {
                        return Ok(Some(end));
                    }
                }
                Ok(None)
            }
            "call" => Ok(self.call(rest)),
            "wait" => Ok(self
                .pause(rest.parse().unwrap_or(0))
                .then_some(End::Cancelled)),
            "prefill" | "unkept" => Ok(None),
            "fail" => Err(Refusal::Internal(rest.to_owned())),
            "lose" => Err(Refusal::Lost("the script says so".to_owned())),
            "panic" => panic!("the script says so"),
            _ => Ok(self.say(line.trim_end_matches(END_OF_ANSWER), false)),
        }
    }

    /// Waits and tells whether somebody cancelled.
    fn pause(&self, ms: u64) -> bool {
        for _ in 0..ms {
            if self.cancel.is_cancelled() {
                return true;
            }
            sleep(Duration::from_millis(1));
        }
        self.cancel.is_cancelled()
    }

    fn say(&mut self, text: &str, is_thinking: bool) -> Option<End> {
        for word in text.split_inclusive(' ') {
            if self.cancel.is_cancelled() {
                return Some(End::Cancelled);
            }
            if self
                .settings
                .max_new
                .is_some_and(|most| self.new >= most as usize)
            {
                return Some(End::Length);
            }
            self.new += 1;
            if is_thinking {
                self.reasoning += 1;
            }
            if let Some(n) = self.settings.logprobs {
                let alternative = |i: u8| (format!("{word}{i}"), -1.0 - f32::from(i));
                (self.emit)(Piece::Token(TokenLogprob {
                    token: word.to_owned(),
                    logprob: -0.5,
                    top: (0..n).map(alternative).collect(),
                }));
            }
            if is_thinking {
                (self.emit)(Piece::Thinking(word.to_owned()));
            } else if let Some(stop) = self.say_word(word) {
                return Some(End::StopText(stop));
            }
        }
        None
    }

    /// Says one word, or what is before a stop string in it.
    fn say_word(&mut self, word: &str) -> Option<String> {
        let found = self
            .settings
            .stop
            .iter()
            .find_map(|stop| Some((word.find(stop.as_str())?, stop)));
        let text = found.map_or(word, |(at, _)| &word[..at]);
        self.said.push_str(text);
        if !text.is_empty() {
            (self.emit)(Piece::Text(text.to_owned()));
        }
        found.map(|(_, stop)| stop.clone())
    }

    fn call(&mut self, rest: &str) -> Option<End> {
        let (name, json) = rest.split_once(' ').unwrap_or((rest, "{}"));
        self.new += 1;
        (self.emit)(Piece::Call {
            name: name.to_owned(),
            arguments: serde_json::from_str(json).unwrap_or_default(),
        });
        (!self.settings.parallel_calls).then_some(End::Stop)
    }
}
