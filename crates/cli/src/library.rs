//! The models of this machine as the commands that serve open them: at the start by the command line, later by what is wished for on the page.
//!
//! A wish is laid over the command line's own words, so that both go the same way to a plan, and a plan is what would really be loaded. Nothing is loaded
//! here: the engine that comes out does it, in a decode service unless the command line keeps the model in this process.

use std::any::Any;
use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use ouzel::{EngineError, Error, Model, Options, PrefixOptions, SamplerOptions};
use ouzel_engine::floor::Rates;
use ouzel_server::engine::Engine;
use ouzel_server::error::Refusal;
use ouzel_server::model::{
    Grammar, MIN_SLOTS_A_LAYER, ModelEngine, OWN_PROCESS_BYTES, SERVER_BYTES,
};
use ouzel_server::models::{
    Expected, Io, Listed, ModelState, Models, Opened, PlanLine, Planned, Wish,
};
use ouzel_server::wire::Defaults;
use ouzel_storage::free_memory;

use crate::args::{self, Memory, ModelArgs, ServeArgs, SessionArgs};
use crate::commands::{bench, decode_service};
use crate::demo;
use crate::exit;
use crate::models::{self, Chosen, DEMO, Places, State};
use crate::report::{self, bytes};

/// Memory for kept conversations where nobody says, and with the bundled model.
const PREFIX_MEMORY_BYTES: u64 = 128 << 20;
const DEMO_PREFIX_MEMORY_BYTES: u64 = 32 << 20;

/// The models, and how the command line wants them.
pub struct Library {
    args: ServeArgs,
    /// What the machine can do, once somebody wanted to know.
    rates: Mutex<Option<Rates>>,
}

/// A model that could be loaded.
pub struct Ready {
    pub chosen: Chosen,
    pub model: Model,
    pub options: Options,
    pub session: SessionArgs,
    grammar: Grammar,
    wish: Wish,
}

impl Library {
    /// The models as these arguments want them.
    pub fn new(args: &ServeArgs) -> Arc<Library> {
        Arc::new(Library {
            args: args.clone(),
            rates: Mutex::default(),
        })
    }

    /// Whether the command line says which model it shall be, or how much of the machine it may have.
    pub fn is_told(&self) -> bool {
        let session = &self.args.served.session;
        let is_usual = session.memory.is_none()
            && session.max_context.is_none()
            && session.slots.is_none()
            && session.io == args::Io::Auto;
        !is_usual || self.names_a_model()
    }

    /// Whether it names a model.
    pub fn names_a_model(&self) -> bool {
        self.args.model.model().model.is_some()
    }

    /// Whether a model is meant where nobody names one. The bundled one is not: whoever starts without a model is asked.
    pub fn has_usual(&self) -> anyhow::Result<bool> {
        Ok(models::installed(&self.model_args(&Wish::default()))?
            .0
            .is_some())
    }

    fn places(&self) -> anyhow::Result<Places> {
        Places::find(self.args.model.model().models_dir.as_deref())
    }

    fn model_args(&self, wish: &Wish) -> ModelArgs {
        let mut args = self.args.model.model();
        if let Some(model) = &wish.model {
            args.model = Some(OsString::from(model));
        }
        args
    }

    fn session(&self, wish: &Wish) -> SessionArgs {
        let told = &self.args.served.session;
        SessionArgs {
            memory: wish.memory_bytes.map(Memory::Bytes).or(told.memory),
            max_context: wish.context.or(told.max_context),
            slots: wish.slots.or(told.slots),
            io: wish.io.map_or(told.io, |io| match io {
                Io::Auto => args::Io::Auto,
                Io::Direct => args::Io::Direct,
                Io::Buffered => args::Io::Buffered,
            }),
            ..told.clone()
        }
    }

    /// Everything that is needed to load the model that is wished for.
    pub fn ready(&self, wish: &Wish) -> anyhow::Result<Ready> {
        let chosen = models::choose(&self.model_args(wish))?;
        let session = self.session(wish);
        let mut options = chosen.options(&session, self.args.served.precision);
        let model = chosen.open(&options)?;
        options.prefixes = Some(self.prefixes(&chosen));
        let grammar = Grammar::new(model.tokenizer()?);
        options.other_bytes = self.other_bytes(&grammar);
        session.settle(&model, &mut options)?;
        if options.max_context.is_none() {
            options.max_context = largest_context(&model, &options)?;
        }
        let wish = Wish {
            model: Some(name_in_list(&chosen)),
            memory_bytes: match session.memory {
                Some(Memory::Bytes(bytes)) => Some(bytes),
                Some(Memory::Auto) | None => None,
            },
            context: session.max_context,
            slots: session.slots,
            io: match session.io {
                args::Io::Auto => None,
                args::Io::Direct => Some(Io::Direct),
                args::Io::Buffered => Some(Io::Buffered),
            },
        };
        Ok(Ready {
            chosen,
            model,
            options,
            session,
            grammar,
            wish,
        })
    }

    /// The engine that would load it.
    pub fn opened(&self, ready: Ready) -> anyhow::Result<Opened> {
        let names = match self.args.model_name.as_slice() {
            [] => vec![ready.chosen.name()],
            names => names.to_vec(),
        };
        let temperature = self.args.served.temperature;
        let defaults = Defaults {
            sampler: SamplerOptions {
                temperature: temperature.unwrap_or(ready.chosen.temperature()),
                top_k: self.args.top_k,
                ..SamplerOptions::default()
            },
        };
        let wish = ready.wish.clone();
        Ok(Opened {
            engine: self.engine(ready)?,
            names,
            defaults,
            wish,
        })
    }

    /// The engine of a model that was chosen: in a decode service, unless this process shall have it.
    fn engine(&self, ready: Ready) -> anyhow::Result<Arc<dyn Engine>> {
        let (claimed, planned) = (ready.model.clone(), ready.options.clone());
        let (chosen, shared) = (ready.chosen, ready.session.shared);
        let claim = move |pid| match chosen.claim_for(pid, &claimed, &planned, shared) {
            Ok(running) => Ok(Box::new(running) as Box<dyn Any>),
            Err(error) => Err(exit::full(&error)),
        };
        let engine = ModelEngine::new(ready.model, ready.grammar, ready.options, Box::new(claim))?;
        Ok(Arc::new(if self.args.served.in_process {
            engine
        } else {
            engine.in_service(decode_service::program()?)
        }))
    }

    /// What is kept of conversations, and where.
    fn prefixes(&self, chosen: &Chosen) -> PrefixOptions {
        let served = &self.args.served;
        let usual = if chosen.is_demo {
            DEMO_PREFIX_MEMORY_BYTES
        } else {
            PREFIX_MEMORY_BYTES
        };
        let dir = chosen
            .places()
            .prefixes
            .as_ref()
            .map(|dir| dir.join(chosen.name()));
        PrefixOptions {
            memory_bytes: served.prefix_memory.unwrap_or(usual),
            dir: dir.filter(|_| served.prefix_disk > 0),
            disk_bytes: served.prefix_disk,
        }
    }

    /// What the server takes beside the model, in bytes.
    fn other_bytes(&self, grammar: &Grammar) -> u64 {
        let own_process = if self.args.served.in_process {
            0
        } else {
            OWN_PROCESS_BYTES
        };
        SERVER_BYTES + own_process + grammar.bytes() as u64
    }

    fn planned(&self, wish: &Wish) -> anyhow::Result<Planned> {
        let ready = self.ready(wish)?;
        let budget = ready.model.plan_budget(&ready.options)?;
        let rates = *self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let expected = match rates {
            Some(rates) => Some(ready.model.forecast(&ready.options, &rates)?),
            None => None,
        };
        let (model, config) = (name_in_list(&ready.chosen), ready.model.config());
        let (max_context, layers, experts) =
            (config.max_position, config.n_layers(), config.n_experts);
        let reads = report::reads(ready.model.read_mode(&ready.options)?);
        let facts = self.engine(ready)?.facts();
        let free_bytes = free_memory();
        Ok(Planned {
            model,
            total_bytes: budget.total_bytes,
            smallest_bytes: budget.smallest_bytes,
            context: budget.context,
            max_context,
            slots: budget.slots,
            layers,
            experts,
            plan: PlanLine::of(facts.plan),
            reads,
            free_bytes,
            fits: free_bytes.map(|free| budget.total_bytes <= free),
            expected: expected.map(|forecast| Expected {
                decode_tokens_per_s: forecast.decode_tokens_per_s,
                prefill_tokens_per_s: forecast.prefill_tokens_per_s,
            }),
        })
    }

    fn entries(&self) -> anyhow::Result<Vec<Listed>> {
        let places = self.places()?;
        let listed = |entry: models::Entry| {
            let (state, why) = match entry.state {
                State::Complete => (ModelState::Complete, None),
                State::Unfinished => (ModelState::Unfinished, None),
                State::Installing => (ModelState::Installing, None),
                State::Gone => (ModelState::Gone, None),
                State::Broken(why) => (ModelState::Broken, Some(why)),
            };
            Listed {
                name: entry.name,
                bytes: entry.bytes,
                state,
                why,
                is_default: entry.is_default,
                is_demo: false,
            }
        };
        let mut entries: Vec<Listed> = places.entries().into_iter().map(listed).collect();
        entries.push(Listed {
            name: DEMO.to_owned(),
            bytes: demo::bytes(),
            state: ModelState::Complete,
            why: None,
            is_default: false,
            is_demo: true,
        });
        Ok(entries)
    }
}

impl Models for Library {
    fn list(&self) -> Vec<Listed> {
        // Where the folder is unknown there was no start.
        self.entries().unwrap_or_default()
    }

    fn plan(&self, wish: &Wish) -> Result<Planned, Refusal> {
        self.planned(wish).map_err(|error| refusal(&error))
    }

    fn measure(&self, wish: &Wish) -> Result<(), Refusal> {
        let ready = self.ready(wish).map_err(|error| refusal(&error))?;
        let rates = bench::rates(&ready.model, &ready.options);
        let rates = rates.map_err(|error| Refusal::Internal(exit::sentence(&error)))?;
        *self.rates.lock().unwrap_or_else(PoisonError::into_inner) = Some(rates);
        Ok(())
    }

    fn open(&self, wish: &Wish) -> Result<Opened, Refusal> {
        let opened = self.ready(wish).and_then(|ready| self.opened(ready));
        opened.map_err(|error| refusal(&error))
    }

    fn make_default(&self, model: &str) -> Result<(), Refusal> {
        let made = || {
            let places = self.places()?;
            let entry = places.entry_of(model)?;
            places.set_default(&entry.path)
        };
        made().map_err(|error: anyhow::Error| Refusal::invalid("model", exit::sentence(&error)))
    }
}

/// What a list calls the model, so that the same word opens it again.
fn name_in_list(chosen: &Chosen) -> String {
    let is_here = chosen.dir.parent() == Some(Path::new(&chosen.places().models));
    match is_here || chosen.is_demo {
        true => chosen.name(),
        false => chosen.dir.to_string_lossy().into_owned(),
    }
}

/// The longest context that leaves a model enough slots to be worth running, or nothing where no context does.
fn largest_context(model: &Model, options: &Options) -> anyhow::Result<Option<u32>> {
    let n_experts = u32::try_from(model.config().n_experts).unwrap_or(u32::MAX);
    match model.largest_context(options, MIN_SLOTS_A_LAYER.min(n_experts)) {
        Ok(context) => Ok(Some(context)),
        // The default context may do; if not, its plan says what would.
        Err(Error::Engine(EngineError::Budget { .. })) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// An error at the part of the wish that it is about.
fn refusal(error: &anyhow::Error) -> Refusal {
    match error.downcast_ref() {
        Some(Error::Engine(EngineError::Budget { needed, .. })) => Refusal::invalid(
            "memory_bytes",
            format!(
                "this needs at least {}: give it more memory, or a shorter context",
                bytes(*needed)
            ),
        ),
        Some(Error::Engine(EngineError::Option {
            option,
            value,
            allowed,
        })) => {
            let field = match *option {
                "--memory" => "memory_bytes",
                "--max-context" => "context",
                "--slots" => "slots",
                _ => "model",
            };
            Refusal::invalid(field, format!("{value}: {allowed}"))
        }
        _ => Refusal::invalid("model", exit::sentence(error)),
    }
}
