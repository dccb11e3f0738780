//! The real engine: a thin adapter between the seam and [`ouzel`].
//!
//! Rendering, tokens and the check of what is demanded need the model's files only and run on any thread. The loaded model belongs to the worker's
//! thread: it is in this process, or in a decode service that the worker's thread starts, asks and ends.

mod grammar;

use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ouzel::{Cancel, EngineError, Error, Model, Options, Prompt};
use ouzel_service::protocol::Load;
use ouzel_service::turn::Generate;
use ouzel_service::{LoadedModel, OnLoss, Program, Service, ServiceError};
use ouzel_tokenizer::Warning;

use crate::engine::{Engine, Facts, Loaded, Plan, Prepared, Process, Step};
use crate::error::Refusal;
use crate::model::grammar::Demanded;
use crate::turn::{Ask, Demand, Turn};

pub use crate::model::grammar::Grammar;

/// What connections, bodies and pieces that nobody has read yet may take, in bytes: a body and a queue of usual prompts.
const CONNECTION_BYTES: u64 = 16 << 20;
/// What a server takes beside a model and its grammars, in bytes: connections, and the page's conversations.
pub const SERVER_BYTES: u64 = CONNECTION_BYTES + ouzel_chats::MEMORY_BYTES;
/// What this process takes beside that where the model is in another one, in bytes.
pub const OWN_PROCESS_BYTES: u64 = 12 << 20;
/// The line of the engine's plan that has them.
const OTHER_USES: &str = "other uses of the program";
/// Slots of each layer below which a model reads more than it computes.
pub const MIN_SLOTS_A_LAYER: u32 = 8;

/// Takes what is needed before the process of this number loads a model; dropped when the model is given back.
pub type Claim = Box<dyn Fn(u32) -> Result<Box<dyn Any>, String> + Send + Sync>;

/// A model directory, opened, and how it is loaded.
pub struct ModelEngine {
    model: Model,
    options: Options,
    claim: Claim,
    facts: Facts,
    grammar: Grammar,
    /// What is started for the model; without it the model is in this process.
    program: Option<Program>,
    /// The process with the model, where that is not this one.
    pid: Pid,
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
                resident_bytes: model.resident_bytes(),
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
            program: None,
            pid: Pid::default(),
        })
    }

    /// Has this program own the model. The options' other bytes are to hold [`OWN_PROCESS_BYTES`], of which the plan then says what they are.
    pub fn in_service(mut self, program: Program) -> ModelEngine {
        let others = self.options.other_bytes.saturating_sub(OWN_PROCESS_BYTES);
        let lines = &mut self.facts.plan.lines;
        let other_uses = |(what, _): &&mut (String, u64)| what == OTHER_USES;
        if let Some((_, bytes)) = lines.iter_mut().find(other_uses) {
            *bytes = others;
            let own = "the server's own process".to_owned();
            lines.push((own, OWN_PROCESS_BYTES));
        }
        self.program = Some(program);
        self
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
        let mut warnings: Vec<String> = warnings.iter().map(Warning::to_string).collect();
        let demand = match &turn.demand {
            None => None,
            Some(demand) => {
                let demanded = Demanded {
                    demand,
                    tools,
                    parallel: turn.settings.parallel_calls,
                    fields: turn.fields,
                };
                let (demand, unheld) = self.grammar.checked(&demanded)?;
                warnings.extend(unheld);
                Some(demand)
            }
        };
        // Where every call has its marks, text that looks like one without them is text.
        let is_marked = matches!(turn.demand, Some(Demand::JsonOrTools(_)));
        let tool_names = tools.iter().map(|tool| tool.name.clone());
        Ok(Prepared {
            ids: prompt.ids,
            tool_names: tool_names.filter(|_| !is_marked).collect(),
            settings: turn.settings,
            demand,
            warnings,
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

    fn process(&self) -> Process {
        let total = self.facts.memory_bytes;
        if self.program.is_none() {
            return Process::own(total);
        }
        let pid = *lock(&self.pid);
        Process {
            pid,
            resident_bytes: match pid {
                Some(pid) => ouzel::resident_memory_of(pid),
                None => Some(0),
            },
            budget_bytes: total.saturating_sub(SERVER_BYTES + OWN_PROCESS_BYTES),
        }
    }

    fn load(&self) -> Result<Box<dyn Loaded>, Refusal> {
        match &self.program {
            None => self.load_here(),
            Some(program) => self.load_in_service(program),
        }
    }
}

impl ModelEngine {
    fn load_here(&self) -> Result<Box<dyn Loaded>, Refusal> {
        let claim = (self.claim)(std::process::id()).map_err(Refusal::Unavailable)?;
        let model = LoadedModel::load(&self.model, &self.options);
        Ok(Box::new(InProcess {
            model: model.map_err(|error| Refusal::Unavailable(error.to_string()))?,
            _claim: claim,
        }))
    }

    fn load_in_service(&self, program: &Program) -> Result<Box<dyn Loaded>, Refusal> {
        let unavailable = |error: ServiceError| Refusal::Unavailable(error.to_string());
        let mut service = program.start().map_err(unavailable)?;
        let shown = Shown::new(&self.pid, service.pid());
        let claim = (self.claim)(service.pid()).map_err(Refusal::Unavailable)?;
        let (dir, options) = (self.model.dir().to_owned(), self.options.clone());
        let has = service.load(Load::new(dir, options)).map_err(unavailable)?;
        let wanted = (self.facts.context, self.facts.memory_bytes);
        if has != wanted {
            return Err(Refusal::Unavailable(format!(
                "the decode service has {has:?} tokens and bytes, and {wanted:?} were planned"
            )));
        }
        Ok(Box::new(InService {
            service,
            n_turns: 0,
            _shown: shown,
            _claim: claim,
        }))
    }
}

/// The number of the process with the model, while there is one.
type Pid = Arc<Mutex<Option<u32>>>;

fn lock(pid: &Pid) -> MutexGuard<'_, Option<u32>> {
    // Nothing panics while the lock is held.
    pid.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While it lives, a number is shown.
struct Shown(Pid);

impl Shown {
    fn new(shown: &Pid, pid: u32) -> Shown {
        *lock(shown) = Some(pid);
        Shown(shown.clone())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        *lock(&self.0) = None;
    }
}

/// A model in this process.
struct InProcess {
    model: LoadedModel,
    /// Given back after the session's memory.
    _claim: Box<dyn Any>,
}

impl Loaded for InProcess {
    fn answer(
        &mut self,
        prepared: Prepared,
        cancel: &Cancel,
        emit: &mut dyn FnMut(Step),
    ) -> Result<(), Refusal> {
        let answered = self.model.answer(generate(prepared, 0), cancel, emit);
        answered.map_err(Refusal::Internal)
    }

    fn take_troubles(&mut self) -> Vec<String> {
        self.model.take_troubles()
    }

    fn put_away(&mut self) {
        self.model.put_away();
    }
}

/// A model in a process of its own.
struct InService {
    service: Service,
    n_turns: u64,
    _shown: Shown,
    /// Given back when the process has ended.
    _claim: Box<dyn Any>,
}

impl Loaded for InService {
    fn answer(
        &mut self,
        prepared: Prepared,
        cancel: &Cancel,
        emit: &mut dyn FnMut(Step),
    ) -> Result<(), Refusal> {
        self.n_turns += 1;
        let asked = generate(prepared, self.n_turns);
        let answered = self.service.answer(asked, cancel, emit);
        answered.map_err(|error| match error {
            ServiceError::Failed(message) => Refusal::Internal(message),
            ServiceError::Start(_) | ServiceError::Lost(_) => Refusal::Lost(error.to_string()),
        })
    }

    fn take_troubles(&mut self) -> Vec<String> {
        self.service.take_troubles()
    }

    fn put_away(&mut self) {
        self.service.put_away();
    }

    fn is_lost(&self) -> bool {
        self.service.is_lost()
    }

    fn on_loss(&self, tell: OnLoss) {
        self.service.on_loss(tell);
    }
}

fn generate(prepared: Prepared, turn: u64) -> Generate {
    Generate {
        turn,
        ids: prepared.ids,
        settings: prepared.settings,
        tool_names: prepared.tool_names,
        demand: prepared.demand,
    }
}

/// What an error of the library means for a request whose prompt is in this field.
fn refusal(error: Error, field: &'static str) -> Refusal {
    match error {
        Error::Conversation(_) | Error::EmptyPrompt => {
            Refusal::invalid(field, format!("{field}: {error}"))
        }
        Error::ContextFull { .. } | Error::Constraint(_) | Error::Engine(_) | Error::Text(_) => {
            internal(error)
        }
    }
}

/// What an error means where the request was checked before.
fn internal(error: Error) -> Refusal {
    Refusal::Internal(error.to_string())
}
