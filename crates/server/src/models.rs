//! The models that can be chosen, and the one that is: where it comes from is the business of whoever hands in [`Models`].
//!
//! [`Current`] is the one place that knows which model answers. It is replaced by the worker alone, and only while nothing is being answered; a request
//! that was read for one model is not answered by another.

use std::sync::{Arc, PoisonError, RwLock};

use crate::engine::{Engine, Facts, Loaded, Plan, Prepared, Process};
use crate::error::Refusal;
use crate::turn::Turn;
use crate::wire::Defaults;

pub use crate::wire::page::PlanLine;
pub use crate::wire::setup::{Expected, Io, Listed, ModelState, Planned, Wish};

/// The models of a machine. All calls may take a while, and come from threads that may wait.
pub trait Models: Send + Sync + 'static {
    /// Those that are there, in the order in which they are shown.
    fn list(&self) -> Vec<Listed>;

    /// What a model would take, without taking it.
    ///
    /// # Errors
    /// [`Refusal::Invalid`] with the field that cannot be had.
    fn plan(&self, wish: &Wish) -> Result<Planned, Refusal>;

    /// Measures what the machine can do with a model's files, which takes some seconds; plans foretell the speed from then on.
    ///
    /// # Errors
    /// As for [`Models::plan`]; [`Refusal::Internal`] if it cannot be measured.
    fn measure(&self, wish: &Wish) -> Result<(), Refusal>;

    /// Opens a model; loads nothing.
    ///
    /// # Errors
    /// As for [`Models::plan`].
    fn open(&self, wish: &Wish) -> Result<Opened, Refusal>;

    /// Makes a model the one that commands use when none is named.
    ///
    /// # Errors
    /// [`Refusal::Invalid`].
    fn make_default(&self, model: &str) -> Result<(), Refusal>;
}

/// A model that was opened, and how it is served.
#[derive(Clone)]
pub struct Opened {
    /// The model.
    pub engine: Arc<dyn Engine>,
    /// Its names: the first is advertised, all are taken. None, where there is no model.
    pub names: Vec<String>,
    /// What is meant where a request says nothing.
    pub defaults: Defaults,
    /// How it was wished for.
    pub wish: Wish,
}

impl Opened {
    /// No model.
    pub fn nothing() -> Opened {
        Opened {
            engine: Arc::new(NoModel),
            names: Vec::new(),
            defaults: Defaults::default(),
            wish: Wish::default(),
        }
    }

    /// Whether there is no model.
    pub fn is_nothing(&self) -> bool {
        self.names.is_empty()
    }

    /// The name that is advertised.
    pub fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// Refuses a model that is not the one served here.
    pub fn check_model(&self, name: Option<&str>) -> Result<(), Refusal> {
        match name {
            _ if self.is_nothing() => Err(Refusal::NoModel),
            Some(name) if !self.names.iter().any(|known| known == name) => Err(
                Refusal::UnknownModel(name.to_owned(), self.name().to_owned()),
            ),
            _ => Ok(()),
        }
    }

    /// An answer has at least one token, and ids are of this vocabulary.
    pub fn check_fits(&self, param: &'static str, prepared: &Prepared) -> Result<(), Refusal> {
        let facts = self.engine.facts();
        let n_tokens = prepared.ids.len();
        if n_tokens == 0 {
            return Err(Refusal::invalid(
                param,
                format!("{param} has no tokens; give at least one word"),
            ));
        }
        if n_tokens >= facts.context {
            return Err(Refusal::ContextFull {
                param,
                needed: n_tokens,
                limit: facts.context,
                memory: self.engine.memory_for(n_tokens + 1),
            });
        }
        let outside = |id: &&u32| **id as usize >= facts.vocabulary;
        if let Some(id) = prepared.ids.iter().find(outside) {
            return Err(Refusal::invalid(
                param,
                format!(
                    "{param}: {id} is no token id; the vocabulary has {}",
                    facts.vocabulary
                ),
            ));
        }
        let biased = prepared.settings.logit_bias.iter().map(|(id, _)| id);
        if let Some(id) = biased.clone().find(outside) {
            let param = format!("logit_bias.{id}");
            let message = format!(
                "{param}: this is no token id; the vocabulary has {}",
                facts.vocabulary
            );
            return Err(Refusal::invalid(param, message));
        }
        Ok(())
    }
}

/// A model as the one that is chosen.
pub struct Chosen {
    /// Told apart from those before it.
    pub id: u64,
    /// The model.
    pub opened: Opened,
}

impl std::ops::Deref for Chosen {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        &self.opened
    }
}

/// The model that answers now.
pub struct Current(RwLock<Arc<Chosen>>);

impl Current {
    /// The first one.
    pub fn new(opened: Opened) -> Current {
        Current(RwLock::new(Arc::new(Chosen { id: 0, opened })))
    }

    /// It, for as long as the caller needs it.
    pub fn get(&self) -> Arc<Chosen> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Another one from now on. The worker calls this and nobody else.
    pub(crate) fn set(&self, chosen: Arc<Chosen>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = chosen;
    }
}

/// Stands where no model is chosen, and refuses everything.
pub struct NoModel;

impl Engine for NoModel {
    fn facts(&self) -> Facts {
        Facts {
            context: 0,
            vocabulary: 0,
            memory_bytes: 0,
            plan: Plan::default(),
        }
    }

    fn prepare(&self, _: Turn) -> Result<Prepared, Refusal> {
        Err(Refusal::NoModel)
    }

    fn tokenize(&self, _: &str, _: bool) -> Result<Vec<u32>, Refusal> {
        Err(Refusal::NoModel)
    }

    fn detokenize(&self, _: &[u32]) -> Result<String, Refusal> {
        Err(Refusal::NoModel)
    }

    fn memory_for(&self, _: usize) -> Option<u64> {
        None
    }

    fn process(&self) -> Process {
        Process {
            pid: None,
            resident_bytes: Some(0),
            budget_bytes: 0,
        }
    }

    fn load(&self) -> Result<Box<dyn Loaded>, Refusal> {
        Err(Refusal::NoModel)
    }
}
