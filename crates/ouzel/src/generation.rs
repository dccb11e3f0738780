//! An answer as it is made: an iterator of events.
//!
//! Each step computes one layer of a chunk of the prompt or one token, so a caller may stop between any two of them by not asking for
//! more. Whatever chunks and tokens were computed stay in the session; a chunk that was under way is lost, and where it has overwritten
//! what sliding layers need, so is what came before it, unless prefixes are kept. The last event carries what the answer took; what is
//! kept of the turn is kept when the caller asks for another event after that, or drops the generation.

use std::collections::VecDeque;
use std::time::Duration;

use ouzel_engine::{EngineError, Experts, Logprobs, Sampler, TokenId};
use ouzel_tokenizer::{OutputOptions, OutputParser};

use crate::prefix::PrefixStore;
use crate::session::token_ids;
use crate::{Cancel, Error, GenerateOptions, Model, SoFar, Stats, StopReason, TokenConstraint};

/// Something that happened in an answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A part of the prompt was computed.
    Prompt {
        /// Tokens done, those still held from before included; each layer of a chunk counts as its share of the chunk.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// A new token, before what its text is, where [`GenerateOptions::logprobs`] asks for it. A token that ends the answer comes too.
    Token {
        /// The token.
        id: u32,
        /// The natural logarithm of its probability, before biases, penalties and constraints and at temperature 1.
        logprob: f32,
        /// The likeliest tokens in its place with theirs, likeliest first; as many as were asked for.
        top: Vec<(u32, f32)>,
    },
    /// Text that the model thinks; it is no part of the answer.
    Thinking(String),
    /// Text of the answer.
    Answer(String),
    /// A whole tool call. There is none where the caller runs no tools.
    ToolCall {
        /// The tool's name, as the list of tools has it if one of them fits.
        name: String,
        /// The arguments.
        arguments: serde_json::Map<String, serde_json::Value>,
    },
    /// The answer ended; nothing follows.
    Done(Stats),
}

/// What a generation borrows from its session.
pub(crate) struct Parts<'s> {
    pub model: &'s Model,
    pub engine: &'s mut ouzel_engine::Session,
    pub tokens: &'s mut Vec<u32>,
    pub prefixes: Option<&'s mut PrefixStore>,
    /// What bringing the session to where the prompt continues took.
    pub restore_time: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Begin,
    Prompt,
    Answer,
    Ended,
}

/// An answer in the making: `Iterator<Item = Result<Event, Error>>`. After an error nothing follows.
pub struct Generation<'s> {
    engine: &'s mut ouzel_engine::Session,
    tokens: &'s mut Vec<u32>,
    prefixes: Option<&'s mut PrefixStore>,
    restore_time: Duration,
    parser: OutputParser<'s>,
    sampler: Sampler,
    constraint: Option<Box<dyn TokenConstraint>>,
    logprobs: Option<Logprobs>,
    cancel: Cancel,
    stop: Vec<String>,
    max_new: usize,
    runs_tools: bool,
    prompt: Vec<u32>,
    n_reused: usize,
    /// Where the prompt under way stops on its way, so that what other conversations share with this one can be kept.
    stop_at: Option<usize>,
    /// Where the stretch of the prompt under way begins.
    stretch_from: usize,
    /// The last [`Event::Prompt`].
    n_told: usize,
    n_new: usize,
    n_reasoning: usize,
    phase: Phase,
    before: ouzel_engine::Stats,
    /// Events that one step gave and nobody took yet.
    events: VecDeque<Event>,
}

impl<'s> Generation<'s> {
    /// The tokens that the parts hold are a prefix of the prompt, and shorter.
    pub(crate) fn new(
        parts: Parts<'s>,
        prompt: Vec<u32>,
        options: &GenerateOptions,
        constraint: Option<Box<dyn TokenConstraint>>,
        cancel: &Cancel,
    ) -> Result<Generation<'s>, Error> {
        let tokenizer = parts.model.tokenizer()?;
        let output = OutputOptions {
            stop_ids: parts.model.stop_ids()?.to_vec(),
            stop_strings: options.stop.clone(),
            tools: options.tool_names.clone(),
        };
        let stop_at = parts
            .prefixes
            .as_ref()
            .and_then(|prefixes| prefixes.point_on_the_way(&prompt, parts.tokens.len(), tokenizer));
        Ok(Generation {
            parser: OutputParser::new(tokenizer, &output, &prompt),
            sampler: sampler(options, constraint.is_some(), parts.model),
            constraint,
            logprobs: options.logprobs.map(|n| Logprobs::new(usize::from(n))),
            cancel: cancel.clone(),
            stop: output.stop_strings,
            max_new: options.max_new as usize,
            runs_tools: options.runs_tools,
            n_reused: parts.tokens.len(),
            stop_at,
            stretch_from: parts.tokens.len(),
            n_told: parts.tokens.len(),
            n_new: 0,
            n_reasoning: 0,
            phase: Phase::Begin,
            before: *parts.engine.stats(),
            events: VecDeque::new(),
            engine: parts.engine,
            tokens: parts.tokens,
            prefixes: parts.prefixes,
            restore_time: parts.restore_time,
            prompt,
        })
    }

    /// The seed that would give this answer again.
    pub fn seed(&self) -> u64 {
        self.sampler.seed()
    }

    /// Tokens of the prompt, and how many of them need no computing.
    pub fn prompt_tokens(&self) -> (usize, usize) {
        (self.prompt.len(), self.n_reused)
    }

    /// What the answer took until now.
    pub fn so_far(&self) -> SoFar {
        let engine = self.engine.stats().since(&self.before);
        SoFar {
            prompt_tokens: self.prompt.len(),
            reused_tokens: self.n_reused,
            new_tokens: self.n_new,
            reasoning_tokens: self.n_reasoning,
            prefill_time: engine.prefill_time,
            decode_time: engine.decode_time,
            hits: engine.hits,
            misses: engine.misses,
            bytes_read: engine.bytes_read,
        }
    }

    /// Copies how the experts lie and what became of them since the last look, into room that the engine's session gave.
    pub fn look(&mut self, seen: &mut Experts) {
        self.engine.look(seen);
    }

    fn step(&mut self) -> Result<(), Error> {
        if self.cancel.is_cancelled() {
            self.end(StopReason::Cancelled);
            return Ok(());
        }
        match self.phase {
            Phase::Begin => self.begin(),
            Phase::Prompt => self.read_layer(),
            Phase::Answer => self.write_token(),
            Phase::Ended => Ok(()),
        }
    }

    fn begin(&mut self) -> Result<(), Error> {
        self.stretch_from = self.tokens.len();
        let stretch = self.stretch_from..self.stop_at.unwrap_or(self.prompt.len());
        let rest = token_ids(&self.prompt[stretch]);
        self.engine.begin_prefill(&rest, &self.cancel.0)?;
        self.phase = Phase::Prompt;
        Ok(())
    }

    fn read_layer(&mut self) -> Result<(), Error> {
        let progress = match self.engine.continue_prefill() {
            Err(EngineError::Cancelled) => {
                self.end(StopReason::Cancelled);
                return Ok(());
            }
            progress => progress?,
        };
        let held = self.engine.position();
        self.tokens.extend(&self.prompt[self.tokens.len()..held]);
        let (done, total) = (self.stretch_from + progress.done, self.prompt.len());
        if done > self.n_told {
            self.n_told = done;
            self.events.push_back(Event::Prompt { done, total });
        }
        if progress.done < progress.total {
            return Ok(());
        }
        if let Some(prefixes) = self.prefixes.as_mut().filter(|_| done < total) {
            prefixes.keep_now(self.engine, &self.prompt[..done]);
            self.stop_at = None;
            self.phase = Phase::Begin;
        } else {
            self.sampler.observe_prompt(&token_ids(&self.prompt));
            self.phase = Phase::Answer;
        }
        Ok(())
    }

    fn write_token(&mut self) -> Result<(), Error> {
        if self.n_new == self.max_new {
            self.end(StopReason::MaxNew);
            return Ok(());
        }
        let Some(id) = self.choose() else {
            if let Some(why) = self.constraint.as_ref().and_then(|c| c.error()) {
                return Err(Error::Constraint(why.to_owned()));
            }
            self.end(StopReason::NothingAllowed);
            return Ok(());
        };
        self.n_new += 1;
        let was_thinking = self.parser.is_thinking();
        let events = &mut self.events;
        self.parser
            .push(id.0, &mut |event| events.extend(owned(event)));
        // The markers around a thought are the thought's.
        self.n_reasoning += usize::from(was_thinking || self.parser.is_thinking());
        if let Some(reason) = self.parser.stopped() {
            self.end(self.stop_reason(reason));
        } else if self.parser.is_calling() && !self.runs_tools {
            self.end(StopReason::ToolCall);
        } else if self.n_new == self.max_new {
            self.end(StopReason::MaxNew);
        } else if self.engine.position() == self.engine.capacity() {
            self.end(StopReason::ContextFull);
        } else {
            self.decode(id)?;
        }
        Ok(())
    }

    /// Chooses the next token and tells everyone.
    fn choose(&mut self) -> Option<TokenId> {
        let logits = self.engine.logits();
        let allowed = self.constraint.as_mut().and_then(|c| c.allowed());
        let id = self.sampler.sample_allowed(logits, allowed)?;
        self.sampler.observe(id);
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id.0);
        }
        if let Some(logprobs) = &mut self.logprobs {
            let logprob = logprobs.of(logits, id);
            let top = logprobs.top().iter().map(|&(id, p)| (id.0, p)).collect();
            let id = id.0;
            self.events.push_back(Event::Token { id, logprob, top });
        }
        Some(id)
    }

    fn decode(&mut self, id: TokenId) -> Result<(), Error> {
        if let Some(prefixes) = &mut self.prefixes
            && self.engine.is_about_to_lose(self.prompt.len() - 1)
        {
            prefixes.keep_now(self.engine, &self.prompt);
        }
        self.engine.decode(id)?;
        self.tokens.push(id.0);
        Ok(())
    }

    fn stop_reason(&self, reason: ouzel_tokenizer::StopReason) -> StopReason {
        match reason {
            ouzel_tokenizer::StopReason::Token(id) => StopReason::StopId(id),
            ouzel_tokenizer::StopReason::Text(index) => {
                StopReason::StopText(self.stop[index].clone())
            }
        }
    }

    fn end(&mut self, stop: StopReason) {
        self.give_up_prompt();
        // What was cut off is no call, and its notation no text for anybody.
        let is_cut_off = match stop {
            StopReason::ToolCall
            | StopReason::MaxNew
            | StopReason::ContextFull
            | StopReason::NothingAllowed
            | StopReason::Cancelled => true,
            StopReason::StopId(_) | StopReason::StopText(_) => false,
        };
        if is_cut_off {
            self.parser.discard_call();
        }
        let events = &mut self.events;
        self.parser.finish(&mut |event| events.extend(owned(event)));
        let engine = self.engine.stats().since(&self.before);
        self.phase = Phase::Ended;
        self.events.push_back(Event::Done(Stats {
            prompt_tokens: self.prompt.len(),
            reused_tokens: self.n_reused,
            new_tokens: self.n_new,
            reasoning_tokens: self.n_reasoning,
            stop,
            restore_time: self.restore_time,
            prefill_tokens: engine.prefill_tokens,
            prefill_time: engine.prefill_time,
            decode_tokens: engine.decode_tokens,
            decode_time: engine.decode_time,
            disk_wait: engine.disk_wait,
            hits: engine.hits,
            misses: engine.misses,
            bytes_read: engine.bytes_read,
            read_mode: self.engine.read_mode(),
            peak_memory: ouzel_storage::peak_memory(),
        }));
    }
}

impl Generation<'_> {
    /// Ends a prompt under way. Then the engine stands where it can go on from, perhaps at its beginning.
    fn give_up_prompt(&mut self) {
        self.engine.abandon_prefill();
        self.tokens.truncate(self.engine.position());
    }

    /// Keeps what the turn has computed, once.
    fn keep(&mut self) {
        self.give_up_prompt();
        if let Some(prefixes) = self.prefixes.take() {
            prefixes.keep(self.engine, self.tokens, self.prompt.len());
        }
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        self.keep();
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            if self.phase == Phase::Ended {
                self.keep();
                return None;
            }
            if let Err(error) = self.step() {
                self.phase = Phase::Ended;
                // After an error the engine may stand at position 0; what it no longer holds must not be reused.
                self.tokens.truncate(self.engine.position());
                return Some(Err(error));
            }
        }
    }
}

fn sampler(options: &GenerateOptions, is_constrained: bool, model: &Model) -> Sampler {
    let mut sampler = Sampler::new(&options.sampler, model.config().vocab_size);
    if !options.logit_bias.is_empty() {
        let biases = options.logit_bias.iter().map(|&(id, b)| (TokenId(id), b));
        sampler = sampler.with_biases(&biases.collect::<Vec<_>>());
    }
    if is_constrained {
        sampler = sampler.with_masks();
    }
    sampler
}

fn owned(event: ouzel_tokenizer::Event<'_>) -> Option<Event> {
    match event {
        ouzel_tokenizer::Event::Answer(text) => Some(Event::Answer(text.to_owned())),
        ouzel_tokenizer::Event::Thinking(text) => Some(Event::Thinking(text.to_owned())),
        ouzel_tokenizer::Event::ToolCall {
            name, arguments, ..
        } => Some(Event::ToolCall {
            name: name.to_owned(),
            arguments: arguments.clone(),
        }),
        // The reason is asked for once all pieces are in the queue.
        ouzel_tokenizer::Event::Stop(_) => None,
    }
}
