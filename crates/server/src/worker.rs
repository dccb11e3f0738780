//! The one thread that owns the model.
//!
//! It takes turns from the queue one at a time, loads the model when there is one and none is loaded, and gives its memory back when
//! there was none for long enough. An engine that panics, or whose process dies, loses its session and nothing else: the turn is refused,
//! and the next one loads anew.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ouzel::Cancel;
use tokio::sync::mpsc;

use crate::engine::{Loaded, Step};
use crate::error::Refusal;
use crate::log::{Log, Record, ended};
use crate::metrics::Metrics;
use crate::models::Current;
use crate::queue::{Job, Next, Queue, Task};
use crate::ticket::Event;
use crate::turn::{Outcome, Piece};

/// Bytes of an answer that may wait for its reader: some hours of reading.
pub const MAX_UNREAD_BYTES: usize = 4 << 20;

/// Everything that the thread works with.
pub struct Worker {
    /// Where the model comes from.
    pub current: Arc<Current>,
    /// Where turns come from.
    pub queue: Arc<Queue>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What is told.
    pub log: Arc<dyn Log>,
    /// Troubles that were told: a model that is loaded anew finds them again.
    pub told: RefCell<Vec<String>>,
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
                    let result = self.carry_out(order.task, &mut loaded);
                    // Whoever asked may be gone.
                    let _ = order.reply.send(result);
                }
                Next::Wake => self.forget_lost(&mut loaded),
                Next::Idle => self.unload(&mut loaded),
                Next::End => return self.unload(&mut loaded),
            }
        }
    }

    fn carry_out(&self, task: Task, loaded: &mut Option<Box<dyn Loaded>>) -> Result<(), Refusal> {
        if let Task::Load = task {
            return self.load(loaded);
        }
        self.unload(loaded);
        if let Task::Take(chosen) = task {
            self.current.set(chosen);
        }
        Ok(())
    }

    fn load(&self, loaded: &mut Option<Box<dyn Loaded>>) -> Result<(), Refusal> {
        self.forget_lost(loaded);
        if loaded.is_some() {
            return Ok(());
        }
        let since = Instant::now();
        self.metrics.is_loading.store(true, Ordering::Relaxed);
        let model = catch_unwind(AssertUnwindSafe(|| self.current.get().engine.load()));
        self.metrics.is_loading.store(false, Ordering::Relaxed);
        let model = model.unwrap_or_else(|_| {
            Err(Refusal::Internal(
                "the engine failed in a way that it should not while it loaded the model"
                    .to_owned(),
            ))
        })?;
        let queue = self.queue.clone();
        model.on_loss(Box::new(move || queue.wake()));
        self.metrics.is_loaded.store(true, Ordering::Relaxed);
        self.log.record(&Record::Loaded {
            took: since.elapsed(),
        });
        self.tell_troubles(&mut **loaded.insert(model));
        Ok(())
    }

    /// Says each trouble once.
    fn tell_troubles(&self, model: &mut dyn Loaded) {
        let mut told = self.told.borrow_mut();
        for trouble in model.take_troubles() {
            if !told.contains(&trouble) {
                self.log.record(&Record::NotKept { why: &trouble });
                told.push(trouble);
            }
        }
    }

    fn unload(&self, loaded: &mut Option<Box<dyn Loaded>>) {
        if let Some(mut model) = loaded.take() {
            model.put_away();
            self.tell_troubles(&mut *model);
            drop(model);
            self.metrics.is_loaded.store(false, Ordering::Relaxed);
            self.metrics.set_experts(None);
            self.log.record(&Record::Unloaded);
        }
    }

    /// Lets go of a model that is gone.
    fn forget_lost(&self, loaded: &mut Option<Box<dyn Loaded>>) {
        if loaded.take_if(|model| model.is_lost()).is_some() {
            self.metrics.is_loaded.store(false, Ordering::Relaxed);
            self.metrics.set_experts(None);
            self.log.record(&Record::Lost);
        }
    }

    fn answer(&self, loaded: &mut Option<Box<dyn Loaded>>, job: Job) {
        let mut telling = Telling::new(self, &job);
        // Whatever a panic leaves behind is dropped below.
        let result = catch_unwind(AssertUnwindSafe(|| {
            self.load(loaded)?;
            match loaded {
                Some(model) => {
                    model.answer(job.prepared, &job.cancel, &mut |step| telling.step(step))
                }
                None => Err(Refusal::Internal("the model is not loaded".to_owned())),
            }
        }));
        let result = result.unwrap_or_else(|_| {
            self.unload(loaded);
            Err(Refusal::Internal(
                "the engine failed in a way that it should not; the model is loaded anew"
                    .to_owned(),
            ))
        });
        if let Some(model) = loaded {
            self.tell_troubles(&mut **model);
        }
        // Whoever reads the end sees that the model is gone.
        self.forget_lost(loaded);
        let no_end = || Refusal::Internal("the answer has no end".to_owned());
        // Says nothing where the end was said.
        telling.end(Err(result.err().unwrap_or_else(no_end)));
        self.queue.done();
    }
}

/// One answer on its way to its ticket.
struct Telling<'w> {
    worker: &'w Worker,
    id: u64,
    cancel: Cancel,
    events: mpsc::UnboundedSender<Event>,
    unread: Arc<AtomicUsize>,
    waited: Duration,
    began: Instant,
    is_slow: bool,
    has_ended: bool,
}

impl<'w> Telling<'w> {
    fn new(worker: &'w Worker, job: &Job) -> Telling<'w> {
        let began = Instant::now();
        Telling {
            worker,
            id: job.id,
            cancel: job.cancel.clone(),
            events: job.events.clone(),
            unread: job.unread.clone(),
            waited: began - job.since,
            began,
            is_slow: false,
            has_ended: false,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Spent(spent) => self.worker.metrics.set_now(self.id, spent),
            Step::Experts(experts) => self.worker.metrics.set_experts(Some(experts)),
            Step::Piece(piece) => self.piece(piece),
            Step::Done(_) if self.is_slow => self.end(Err(Refusal::SlowReader(MAX_UNREAD_BYTES))),
            Step::Done(outcome) => self.end(Ok(outcome)),
        }
    }

    fn piece(&mut self, piece: Piece) {
        let bytes = piece.weight_bytes();
        let unread = self.unread.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if unread > MAX_UNREAD_BYTES {
            self.is_slow = true;
            self.cancel.cancel();
        } else if self.events.send(Event::Piece(piece)).is_err() {
            self.cancel.cancel();
        }
    }

    /// Tells the end, once.
    fn end(&mut self, result: Result<Outcome, Refusal>) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        self.worker.metrics.count(&result);
        self.worker.log.record(&Record::Turn {
            id: self.id,
            waited: self.waited,
            took: self.began.elapsed(),
            end: match &result {
                Ok(outcome) => ended(&outcome.end),
                Err(refusal) => refusal.code(),
            },
            usage: result.as_ref().ok().map(|outcome| outcome.usage),
        });
        // Its client may be gone.
        let _ = self.events.send(Event::Ended(result));
    }
}
