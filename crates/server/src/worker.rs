//! The one thread that owns the model.
//!
//! It takes turns from the queue one at a time, loads the model when there is one and none is loaded, and gives its memory back when
//! there was none for long enough. An engine that panics loses its session and nothing else: the turn is refused, and the next
//! one loads anew.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::engine::{Engine, Loaded};
use crate::error::Refusal;
use crate::log::{Log, Record};
use crate::metrics::Metrics;
use crate::queue::{Job, Next, Queue};
use crate::ticket::Event;
use crate::turn::{Outcome, Piece};

/// Bytes of an answer that may wait for its reader: some hours of reading.
pub const MAX_UNREAD_BYTES: usize = 4 << 20;

/// Everything that the thread works with.
pub struct Worker {
    /// Where the model comes from.
    pub engine: Arc<dyn Engine>,
    /// Where turns come from.
    pub queue: Arc<Queue>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is told.
    pub log: Arc<dyn Log>,
}

impl Worker {
    /// Starts the thread. It ends when the queue is closed and empty.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name("model".to_owned())
            .spawn(move || self.work())
    }

    fn work(self) {
        let mut loaded: Option<Box<dyn Loaded>> = None;
        loop {
            match self.queue.next(loaded.is_some()) {
                Next::Job(job) => {
                    self.answer(&mut loaded, *job);
                }
                Next::Order(order) => {
                    let result = if order.load {
                        self.load(&mut loaded)
                    } else {
                        self.unload(&mut loaded);
                        Ok(())
                    };
                    // Whoever asked may be gone.
                    let _ = order.reply.send(result);
                }
                Next::Idle => self.unload(&mut loaded),
                Next::End => return self.unload(&mut loaded),
            }
        }
    }

    fn load(&self, loaded: &mut Option<Box<dyn Loaded>>) -> Result<(), Refusal> {
        if loaded.is_some() {
            return Ok(());
        }
        let since = Instant::now();
        *loaded = Some(self.engine.load()?);
        self.metrics.is_loaded.store(true, Ordering::Relaxed);
        self.log.record(&Record::Loaded {
            took: since.elapsed(),
        });
        Ok(())
    }

    fn unload(&self, loaded: &mut Option<Box<dyn Loaded>>) {
        if loaded.take().is_some() {
            self.metrics.is_loaded.store(false, Ordering::Relaxed);
            self.log.record(&Record::Unloaded);
        }
    }

    fn answer(&self, loaded: &mut Option<Box<dyn Loaded>>, job: Job) {
        let (id, began) = (job.id, Instant::now());
        let waited = began - job.since;
        let events = job.events.clone();
        // Whatever a panic leaves behind is dropped below.
        let result = catch_unwind(AssertUnwindSafe(|| self.generate(loaded, job)));
        let result = result.unwrap_or_else(|_| {
            self.unload(loaded);
            Err(Refusal::Internal(
                "the engine failed in a way that it should not; the model is loaded anew"
                    .to_owned(),
            ))
        });
        self.queue.done();
        self.metrics.count(&result);
        self.log.record(&Record::Turn {
            id,
            waited,
            took: began.elapsed(),
            result: &result,
        });
        // Its client may be gone.
        let _ = events.send(Event::Ended(result));
    }

    fn generate(&self, loaded: &mut Option<Box<dyn Loaded>>, job: Job) -> Result<Outcome, Refusal> {
        self.load(loaded)?;
        let Some(model) = loaded else {
            return Err(Refusal::Internal("the model is not loaded".to_owned()));
        };
        let (cancel, mut is_slow) = (job.cancel.clone(), false);
        let mut emit = |piece: Piece| {
            let bytes = piece.weight_bytes();
            let unread = job.unread.fetch_add(bytes, Ordering::Relaxed) + bytes;
            if unread > MAX_UNREAD_BYTES {
                is_slow = true;
                cancel.cancel();
            } else if job.events.send(Event::Piece(piece)).is_err() {
                cancel.cancel();
            }
        };
        let result = model.answer(job.prepared, &job.cancel, &mut emit);
        if is_slow {
            return Err(Refusal::SlowReader(MAX_UNREAD_BYTES));
        }
        result
    }
}
