//! What all requests share, and the way from a body to a ticket.

use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::answer::Head;
use crate::engine::Prepared;
use crate::error::Refusal;
use crate::ids;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::models::{Chosen, Current};
use crate::options::ServerOptions;
use crate::page::Installation;
use crate::queue::Queue;
use crate::ticket::Ticket;
use crate::turn::{Ask, Turn};
use crate::wire::{Asked, Defaults, Reply};

/// Prompts that are rendered at the same time: more would take the model's processors and gain nothing.
const MAX_PREPARING: usize = 2;

/// More messages than any conversation has that fits a context. A template goes through them several times, and has a limit of its own that
/// says less.
const MAX_MESSAGES: usize = 10_000;

/// Reads a body as one API has it.
pub type Parse = fn(&[u8], &Defaults) -> Result<Asked, Refusal>;

/// What all requests share.
pub struct App {
    /// The model.
    pub current: Arc<Current>,
    /// The way to its worker.
    pub queue: Arc<Queue>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is told.
    pub log: Arc<dyn Log>,
    /// What was chosen at the start.
    pub options: ServerOptions,
    /// The work on models' files, where some can be done.
    pub installation: Option<Arc<Installation>>,
    /// Why the model that was wanted at the start could not be had.
    pub problem: Mutex<Option<String>>,
    /// Seconds from 1970 to the start.
    pub started: u64,
    preparing: Arc<Semaphore>,
}

/// A request that is understood and not yet in the queue.
pub struct Understood {
    /// The model that it was read for.
    pub chosen: Arc<Chosen>,
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
        current: Arc<Current>,
        queue: Arc<Queue>,
        metrics: Arc<Metrics>,
        log: Arc<dyn Log>,
        options: ServerOptions,
    ) -> App {
        App {
            current,
            queue,
            metrics,
            log,
            installation: options.installer.clone().map(Installation::new),
            problem: Mutex::new(options.problem.clone()),
            options,
            started: now(),
            preparing: Arc::new(Semaphore::new(MAX_PREPARING)),
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
            let chosen = app.current.get();
            let asked = parse(&bytes, &chosen.defaults)?;
            drop(bytes);
            chosen.check_model(asked.model.as_deref())?;
            check_messages(&asked.turn)?;
            let param = asked.turn.fields.prompt;
            let mut prepared = chosen.engine.prepare(asked.turn)?;
            prepared.warnings.extend(asked.warnings);
            chosen.check_fits(param, &prepared)?;
            Ok(Understood {
                chosen,
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

    /// What an answer says of itself.
    pub fn head(chosen: &Chosen, ticket: &Ticket) -> Head {
        Head {
            id: ids::new(),
            created: now(),
            model: chosen.name().to_owned(),
            prompt_tokens: ticket.prompt_tokens(),
        }
    }
}

/// Refuses a conversation of too many messages.
///
/// # Errors
/// [`Refusal::Invalid`].
pub fn check_messages(turn: &Turn) -> Result<(), Refusal> {
    let n = match &turn.ask {
        Ask::Conversation(conversation) => conversation.messages.len(),
        Ask::Text(_) | Ask::Ids(_) => 0,
    };
    if n <= MAX_MESSAGES {
        return Ok(());
    }
    let param = turn.fields.prompt;
    Err(Refusal::invalid(
        param,
        format!("{param}: a conversation of {n} messages, and {MAX_MESSAGES} are the most"),
    ))
}

/// Seconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}
