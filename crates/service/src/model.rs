//! A loaded model that answers: the session, and the grammars that bind it. Whoever owns the model has one, in whichever process that is.

use std::time::{Duration, Instant};

use ouzel::{
    Cancel, Error, Event, GenerateOptions, Model, Options, Session, SoFar, Stats, StopReason,
    TokenConstraint,
};
use ouzel_tokenizer::grammar::{Constraint, Demand, GrammarError, Grammars};

use crate::experts::Experts;
use crate::stack::on_deep_stack;
use crate::turn::{Cost, End, Generate, Outcome, Piece, Spent, Step, TokenLogprob, Usage};

/// How the experts lie is told this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A session on a model, and its grammars, whose memory is taken when the first demand comes.
pub struct LoadedModel {
    session: Session,
    /// Room for a look at the experts.
    seen: ouzel::Experts,
    grammars: Result<Grammars, GrammarError>,
}

impl LoadedModel {
    /// Loads the weights.
    ///
    /// # Errors
    /// The tokenizer's; those of [`Model::session`].
    pub fn load(model: &Model, options: &Options) -> Result<LoadedModel, Error> {
        // What this needs for a moment is free again before the session takes all that it may.
        let grammars = Grammars::new(model.tokenizer()?);
        let session = model.session(options)?;
        Ok(LoadedModel {
            seen: session.engine().unseen(),
            session,
            grammars,
        })
    }

    /// Tokens of context, and what the budget adds up to.
    pub fn size(&self) -> (usize, u64) {
        (self.session.capacity(), self.session.budget().total_bytes)
    }

    /// What could not be kept for later, in words, as far as this was not asked before.
    pub fn take_troubles(&mut self) -> Vec<String> {
        self.session.take_prefix_troubles()
    }

    /// Writes down what outlives the model.
    pub fn put_away(&mut self) {
        self.session.put_prefixes_away();
    }

    /// Makes one answer, step by step, and stops soon after `cancel` says so.
    ///
    /// # Errors
    /// What went wrong, in words; the model may be used again.
    pub fn answer(
        &mut self,
        asked: Generate,
        cancel: &Cancel,
        emit: &mut dyn FnMut(Step),
    ) -> Result<(), String> {
        let constraint = match &asked.demand {
            None => None,
            Some(demand) => Some(self.constraint(demand, &asked.ids)?),
        };
        let settings = asked.settings;
        let left = self.session.capacity().saturating_sub(asked.ids.len());
        let options = GenerateOptions {
            max_new: settings
                .max_new
                .unwrap_or(u32::MAX)
                .min(u32::try_from(left).unwrap_or(u32::MAX)),
            sampler: settings.sampler,
            stop: settings.stop,
            logit_bias: settings.logit_bias,
            logprobs: settings.logprobs,
            runs_tools: true,
            tool_names: asked.tool_names,
            ..GenerateOptions::default()
        };
        let model = self.session.model().clone();
        let generation = self
            .session
            .generate_with(asked.ids, &options, constraint, cancel);
        let mut has_all_calls = false;
        let mut looked = Instant::now();
        // The loop goes on after the end: what was computed is kept then.
        let mut generation = generation.map_err(in_words)?;
        while let Some(event) = generation.next() {
            emit(Step::Spent(spent(&generation.so_far())));
            if looked.elapsed() >= LOOK_EVERY || matches!(event, Ok(Event::Done(_))) {
                looked = Instant::now();
                generation.look(&mut self.seen);
                emit(Step::Experts(Experts::from(&self.seen)));
            }
            let piece = match event.map_err(in_words)? {
                Event::Prompt { done, total } => Piece::Prompt { done, total },
                Event::Token { id, logprob, top } => {
                    Piece::Token(token_logprob(&model, id, logprob, top))
                }
                Event::Thinking(text) => Piece::Thinking(text),
                Event::Answer(text) => Piece::Text(text),
                Event::ToolCall { .. } if has_all_calls => continue,
                Event::ToolCall { name, arguments } => {
                    if !settings.parallel_calls {
                        // One is all that was asked for; the generation ends at its next step.
                        has_all_calls = true;
                        cancel.cancel();
                    }
                    Piece::Call { name, arguments }
                }
                Event::Done(stats) => {
                    emit(Step::Done(outcome_of(stats, has_all_calls)));
                    continue;
                }
            };
            emit(Step::Piece(piece));
        }
        Ok(())
    }

    fn constraint(
        &self,
        demand: &Demand,
        prompt: &[u32],
    ) -> Result<Box<dyn TokenConstraint>, String> {
        let grammars = self.grammars.as_ref().map_err(GrammarError::to_string)?;
        let tokenizer = self.session.model().tokenizer().map_err(in_words)?;
        let compiled = on_deep_stack(|| grammars.compile(tokenizer, demand));
        let compiled = compiled.map_err(|error| error.to_string())?;
        let mut constraint = compiled.map_err(|error| error.to_string())?;
        constraint.follow(prompt);
        Ok(Box::new(Bound(constraint)))
    }
}

/// A grammar as the sampler asks it.
struct Bound(Constraint);

impl TokenConstraint for Bound {
    fn allowed(&mut self) -> Option<&[u32]> {
        self.0.allowed()
    }

    fn accept(&mut self, id: u32) {
        self.0.accept(id);
    }

    fn error(&self) -> Option<&str> {
        self.0.error()
    }
}

fn in_words(error: Error) -> String {
    error.to_string()
}

fn token_logprob(model: &Model, id: u32, logprob: f32, top: Vec<(u32, f32)>) -> TokenLogprob {
    let text_of = |id: u32| {
        let tokenizer = model.tokenizer();
        tokenizer.map_or(String::new(), |tokenizer| tokenizer.decode(&[id], false))
    };
    TokenLogprob {
        token: text_of(id),
        logprob,
        top: top
            .into_iter()
            .map(|(id, logprob)| (text_of(id), logprob))
            .collect(),
    }
}

fn spent(so_far: &SoFar) -> Spent {
    Spent {
        usage: Usage {
            prompt: so_far.prompt_tokens,
            cached: so_far.reused_tokens,
            new: so_far.new_tokens,
            reasoning: so_far.reasoning_tokens,
        },
        cost: Cost {
            prefill: so_far.prefill_time,
            decode: so_far.decode_time,
            hits: so_far.hits,
            misses: so_far.misses,
            bytes_read: so_far.bytes_read,
            // It is asked of the system, which is too much for each token.
            peak_memory: None,
        },
    }
}

fn outcome_of(stats: Stats, has_all_calls: bool) -> Outcome {
    let end = match stats.stop {
        StopReason::Cancelled if has_all_calls => End::Stop,
        StopReason::Cancelled => End::Cancelled,
        StopReason::StopText(text) => End::StopText(text),
        // A grammar that leads nowhere cuts an answer off as a limit does.
        StopReason::MaxNew | StopReason::NothingAllowed => End::Length,
        StopReason::ContextFull => End::ContextFull,
        StopReason::StopId(_) | StopReason::ToolCall => End::Stop,
    };
    Outcome {
        end,
        usage: Usage {
            prompt: stats.prompt_tokens,
            cached: stats.reused_tokens,
            new: stats.new_tokens,
            reasoning: stats.reasoning_tokens,
        },
        cost: Cost {
            prefill: stats.prefill_time,
            decode: stats.decode_time,
            hits: stats.hits,
            misses: stats.misses,
            bytes_read: stats.bytes_read,
            peak_memory: stats.peak_memory,
        },
    }
}
