//! The real engine: a thin adapter between the seam and [`ouzel`].
//!
//! Rendering, tokens and grammars need the model's files only and run on any thread; the session lives on the worker's.

mod grammar;

use std::any::Any;
use std::time::{Duration, Instant};

use ouzel::{
    Cancel, EngineError, Error, Event, GenerateOptions, Model, Options, Prompt, Session, SoFar,
    Stats, StopReason,
};
use ouzel_tokenizer::Warning;

use crate::engine::{Engine, Facts, Loaded, Plan, Prepared, Step};
use crate::error::Refusal;
use crate::experts::Experts;
use crate::metrics::Spent;
use crate::model::grammar::Demanded;
use crate::turn::{Ask, Cost, Demand, End, Outcome, Piece, TokenLogprob, Turn, Usage};

pub use crate::model::grammar::Grammar;

/// What connections, bodies and pieces that nobody has read yet may take, in bytes: a body and a queue of usual prompts.
const CONNECTION_BYTES: u64 = 16 << 20;
/// What a server takes beside a model and its grammars, in bytes: connections, and the page's conversations.
pub const SERVER_BYTES: u64 = CONNECTION_BYTES + ouzel_chats::MEMORY_BYTES;
/// How the experts lie is told this often.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Slots of each layer below which a model reads more than it computes.
pub const MIN_SLOTS_A_LAYER: u32 = 8;

/// Takes what a process needs before it loads a model; dropped when the model is given back.
pub type Claim = Box<dyn Fn() -> Result<Box<dyn Any>, String> + Send + Sync>;

/// A model directory, opened, and how it is loaded.
pub struct ModelEngine {
    model: Model,
    options: Options,
    claim: Claim,
    facts: Facts,
    grammar: Grammar,
}

impl ModelEngine {
    /// Checks that there is a plan for these options and everything that text needs; loads nothing.
    ///
    /// # Errors
    /// The budget's, the tokenizer's, the template's.
    pub fn new(
        model: Model,
        grammar: Grammar,
        options: Options,
        claim: Claim,
    ) -> Result<ModelEngine, Error> {
        let budget = model.plan_budget(&options)?;
        model.tokenizer()?;
        model.template()?;
        model.stop_ids()?;
        let facts = Facts {
            context: budget.context,
            vocabulary: model.config().vocab_size,
            memory_bytes: budget.total_bytes,
            plan: Plan {
                slots: budget.slots,
                layers: model.config().n_layers(),
                experts: model.config().n_experts,
                lines: budget
                    .lines
                    .into_iter()
                    .map(|line| (line.what, line.bytes))
                    .collect(),
            },
        };
        Ok(ModelEngine {
            model,
            options,
            claim,
            facts,
            grammar,
        })
    }
}

impl Engine for ModelEngine {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn prepare(&self, turn: Turn) -> Result<Prepared, Refusal> {
        let field = turn.fields.prompt;
        let tools = match &turn.ask {
            Ask::Conversation(conversation) => conversation.tools.as_slice(),
            Ask::Text(_) | Ask::Ids(_) => &[],
        };
        let (prompt, warnings) = match &turn.ask {
            Ask::Conversation(conversation) => {
                let prompt = self.model.conversation_prompt(conversation);
                prompt.map_err(|error| refusal(error, field))?
            }
            Ask::Text(text) => {
                let prompt = self.model.raw_prompt(text);
                (prompt.map_err(|error| refusal(error, field))?, Vec::new())
            }
            Ask::Ids(ids) => {
                let (text, ids) = (String::new(), ids.clone());
                (Prompt { text, ids }, Vec::new())
            }
        };
        let constraint = match &turn.demand {
            None => None,
            Some(demand) => {
                let demanded = Demanded {
                    demand,
                    tools,
                    parallel: turn.settings.parallel_calls,
                    fields: turn.fields,
                };
                let tokenizer = self.model.tokenizer().map_err(internal)?;
                Some(self.grammar.constraint(tokenizer, &demanded, &prompt.ids)?)
            }
        };
        // Where every call has its marks, text that looks like one without them is text.
        let is_marked = matches!(turn.demand, Some(Demand::JsonOrTools(_)));
        let tool_names = tools.iter().map(|tool| tool.name.clone());
        Ok(Prepared {
            ids: prompt.ids,
            tool_names: tool_names.filter(|_| !is_marked).collect(),
            settings: turn.settings,
            constraint,
            warnings: warnings.iter().map(Warning::to_string).collect(),
        })
    }

    fn tokenize(&self, text: &str, special: bool) -> Result<Vec<u32>, Refusal> {
        let tokenizer = self.model.tokenizer().map_err(internal)?;
        Ok(if special {
            tokenizer.encode(text)
        } else {
            tokenizer.encode_plain(text)
        })
    }

    fn detokenize(&self, ids: &[u32]) -> Result<String, Refusal> {
        let vocabulary = self.facts.vocabulary;
        if let Some(id) = ids.iter().find(|id| **id as usize >= vocabulary) {
            return Err(Refusal::invalid(
                "tokens",
                format!("tokens has {id}; the vocabulary has {vocabulary}"),
            ));
        }
        Ok(self.model.tokenizer().map_err(internal)?.decode(ids, false))
    }

    fn memory_for(&self, context: usize) -> Option<u64> {
        let wanted = Options {
            max_context: Some(u32::try_from(context).ok()?),
            slots: None,
            ..self.options.clone()
        };
        let smallest = match self.model.plan_budget(&wanted) {
            Ok(budget) => budget.smallest_bytes,
            Err(Error::Engine(EngineError::Budget { needed, .. })) => needed,
            // The model itself has no such context.
            Err(_) => return None,
        };
        let config = self.model.config();
        let slots = config.n_experts.min(MIN_SLOTS_A_LAYER as usize) * config.n_layers();
        Some(smallest + slots as u64 * self.model.manifest().expert_stride)
    }

    fn load(&self) -> Result<Box<dyn Loaded>, Refusal> {
        let claim = (self.claim)().map_err(Refusal::Unavailable)?;
        let session = self.model.session(&self.options);
        let session = session.map_err(|error| Refusal::Unavailable(error.to_string()))?;
        Ok(Box::new(LoadedModel {
            seen: session.engine().unseen(),
            session,
            _claim: claim,
        }))
    }
}

struct LoadedModel {
    session: Session,
    /// Room for a look at the experts.
    seen: ouzel::Experts,
    /// Given back after the session's memory.
    _claim: Box<dyn Any>,
}

impl Loaded for LoadedModel {
    fn answer(
        &mut self,
        prepared: Prepared,
        cancel: &Cancel,
        emit: &mut dyn FnMut(Step),
    ) -> Result<(), Refusal> {
        let settings = prepared.settings;
        let left = self.session.capacity().saturating_sub(prepared.ids.len());
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
            tool_names: prepared.tool_names,
            ..GenerateOptions::default()
        };
        let model = self.session.model().clone();
        let text_of = |id: u32| {
            model
                .tokenizer()
                .map(|t| t.decode(&[id], false))
                .unwrap_or_default()
        };
        let generation =
            self.session
                .generate_with(prepared.ids, &options, prepared.constraint, cancel);
        let mut has_all_calls = false;
        let mut looked = Instant::now();
        // The loop goes on after the end: what was computed is kept then.
        let mut generation = generation.map_err(internal)?;
        while let Some(event) = generation.next() {
            emit(Step::Spent(spent(&generation.so_far())));
            if looked.elapsed() >= LOOK_EVERY || matches!(event, Ok(Event::Done(_))) {
                looked = Instant::now();
                generation.look(&mut self.seen);
                emit(Step::Experts(Experts::from(&self.seen)));
            }
            let piece = match event.map_err(internal)? {
                Event::Prompt { done, total } => Piece::Prompt { done, total },
                Event::Token { id, logprob, top } => Piece::Token(TokenLogprob {
                    token: text_of(id),
                    logprob,
                    top: top
                        .into_iter()
                        .map(|(id, logprob)| (text_of(id), logprob))
                        .collect(),
                }),
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

/// What an error of the library means for a request whose prompt is in this field.
fn refusal(error: Error, field: &'static str) -> Refusal {
    match error {
        Error::Conversation(_) | Error::EmptyPrompt => {
            Refusal::invalid(field, format!("{field}: {error}"))
        }
        Error::ContextFull { .. } | Error::Engine(_) | Error::Text(_) => internal(error),
    }
}

/// What an error means where the request was checked before.
fn internal(error: Error) -> Refusal {
    Refusal::Internal(error.to_string())
}
