//! What all requests share, and the way from a body to a ticket.

use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::answer::Head;
use crate::engine::{Engine, Prepared};
use crate::error::Refusal;
use crate::ids;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::options::ServerOptions;
use crate::queue::Queue;
use crate::ticket::Ticket;
use crate::wire::{Asked, Defaults, Reply};

/// Prompts that are rendered at the same time: more would take the model's processors and gain nothing.
const MAX_PREPARING: usize = 2;

/// Reads a body as one API has it.
pub type Parse = fn(&[u8], &Defaults) -> Result<Asked, Refusal>;

/// What all requests share.
pub struct App {
    /// The model.
    pub engine: Arc<dyn Engine>,
    /// The way to its worker.
    pub queue: Arc<Queue>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is told.
    pub log: Arc<dyn Log>,
    /// What was chosen at the start.
    pub options: ServerOptions,
    /// Seconds from 1970 to the start.
    pub started: u64,
    preparing: Arc<Semaphore>,
}

/// A request that is understood and not yet in the queue.
pub struct Understood {
    /// What the worker needs.
    pub prepared: Prepared,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// How it is said.
    pub reply: Box<dyn Reply>,
}

impl App {
    /// Everything at rest.
    pub fn new(
        engine: Arc<dyn Engine>,
        queue: Arc<Queue>,
        metrics: Arc<Metrics>,
        log: Arc<dyn Log>,
        options: ServerOptions,
    ) -> App {
        App {
            engine,
            queue,
            metrics,
            log,
            options,
            started: now(),
            preparing: Arc::new(Semaphore::new(MAX_PREPARING)),
        }
    }

    /// The name that is advertised.
    pub fn name(&self) -> &str {
        self.options.names.first().map_or("ouzel", String::as_str)
    }

    /// Refuses a model that is not the one served here.
    pub fn check_model(&self, name: Option<&str>) -> Result<(), Refusal> {
        match name {
            Some(name) if !self.options.names.iter().any(|known| known == name) => Err(
                Refusal::UnknownModel(name.to_owned(), self.name().to_owned()),
            ),
            _ => Ok(()),
        }
    }

    /// Reads, checks and renders a request, off the threads that serve connections.
    pub async fn understand(
        self: &Arc<App>,
        bytes: Bytes,
        parse: Parse,
    ) -> Result<Understood, Refusal> {
        let app = self.clone();
        self.aside(move || {
            let asked = parse(&bytes, &app.options.defaults)?;
            drop(bytes);
            app.check_model(asked.model.as_deref())?;
            let param = asked.turn.fields.prompt;
            let mut prepared = app.engine.prepare(asked.turn)?;
            prepared.warnings.extend(asked.warnings);
            app.check_fits(param, &prepared)?;
            Ok(Understood {
                prepared,
                stream: asked.stream,
                reply: asked.reply,
            })
        })
        .await
    }

    /// Does work that keeps a processor busy, a few at a time.
    pub async fn aside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let broken = |_| Refusal::Internal("the request could not be worked on".to_owned());
        let permit = self.preparing.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Refusal::Draining)?;
        // The work goes on when its client leaves, so the permit goes with it.
        let work = move || {
            let result = work();
            drop(permit);
            result
        };
        spawn_blocking(work).await.map_err(broken)?
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

    /// What an answer says of itself.
    pub fn head(&self, ticket: &Ticket) -> Head {
        Head {
            id: ids::new(),
            created: now(),
            model: self.name().to_owned(),
            prompt_tokens: ticket.prompt_tokens(),
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
