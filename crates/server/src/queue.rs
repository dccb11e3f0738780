//! The bounded queue before the one worker, and the tickets of those who wait.
//!
//! All state lies behind one lock that is held for moments: who waits, who is being answered, whether the model is loaded, whether anybody
//! may still come in. A [`Ticket`] is a place in it: when it is dropped, because its client went away, its turn leaves the queue or
//! is cancelled. Answers travel to tickets in channels of their own, so no reader can make the worker wait.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ouzel::Cancel;
use tokio::sync::{mpsc, oneshot};

use crate::engine::Prepared;
use crate::error::Refusal;
use crate::metrics::Metrics;
use crate::models::{Chosen, Opened};
use crate::ticket::{Event, Ticket};

/// Where nothing is known yet of how long an answer takes.
const FIRST_GUESS: Duration = Duration::from_secs(5);
/// A client that is sent away comes back within this time.
const MAX_RETRY_AFTER_S: u64 = 60;

/// How many may wait, and how long.
#[derive(Clone, Copy, Debug)]
pub struct QueueOptions {
    /// Turns that may wait while one is answered.
    pub max_waiting: usize,
    /// From coming in to the end of the answer.
    pub time_limit: Option<Duration>,
    /// Without a turn for this long, the model is unloaded.
    pub idle_unload: Option<Duration>,
}

/// The queue; the doors hold it, and the worker.
pub struct Queue {
    state: Mutex<State>,
    ready: Condvar,
    options: QueueOptions,
    metrics: Arc<Metrics>,
}

struct State {
    waiting: VecDeque<Job>,
    running: Option<Running>,
    orders: VecDeque<Order>,
    is_open: bool,
    /// Whether the worker has something to look at.
    is_woken: bool,
    next_id: u64,
    /// The number of the model that answers, or will in a moment.
    model: u64,
    /// How long an answer takes, lately.
    mean_turn: Duration,
}

struct Running {
    since: Instant,
    cancel: Cancel,
}

/// A turn on its way to the worker.
pub struct Job {
    /// Names it in logs.
    pub id: u64,
    /// What is asked.
    pub prepared: Prepared,
    /// Set when nobody wants it any more.
    pub cancel: Cancel,
    /// Where the answer goes.
    pub events: mpsc::UnboundedSender<Event>,
    /// Bytes in that channel.
    pub unread: Arc<AtomicUsize>,
    /// When it came.
    pub since: Instant,
}

/// Something else that the worker is asked to do.
pub enum Task {
    /// To load the model.
    Load,
    /// To give its memory back.
    Unload,
    /// To give its memory back and take this one instead, unloaded.
    Take(Arc<Chosen>),
}

/// A task on its way to the worker.
pub struct Order {
    /// What.
    pub task: Task,
    /// Where the result goes.
    pub reply: oneshot::Sender<Result<(), Refusal>>,
}

/// Where the result of an order comes out.
pub type Reply = oneshot::Receiver<Result<(), Refusal>>;

/// What the worker does next.
pub enum Next {
    /// Answers.
    Job(Box<Job>),
    /// Loads or unloads.
    Order(Order),
    /// Gives the model's memory back.
    Idle,
    /// Looks whether the model is still there.
    Wake,
    /// Ends.
    End,
}

impl Queue {
    /// An empty queue that is open.
    pub fn new(options: QueueOptions, metrics: Arc<Metrics>) -> Queue {
        Queue {
            state: Mutex::new(State {
                waiting: VecDeque::new(),
                running: None,
                orders: VecDeque::new(),
                is_open: true,
                is_woken: false,
                next_id: 1,
                model: 0,
                mean_turn: FIRST_GUESS,
            }),
            ready: Condvar::new(),
            options,
            metrics,
        }
    }

    /// A place in the queue of the model with this number, within a tokio runtime.
    ///
    /// # Errors
    /// [`Refusal::QueueFull`], [`Refusal::Draining`], [`Refusal::Changed`].
    pub fn admit(self: &Arc<Queue>, prepared: Prepared, model: u64) -> Result<Ticket, Refusal> {
        let mut state = self.lock();
        if !state.is_open {
            return Err(Refusal::Draining);
        }
        if state.model != model {
            return Err(Refusal::Changed);
        }
        // While nobody is answered, the worker is about to take whoever waits first.
        let room = self.options.max_waiting + usize::from(state.running.is_none());
        if state.waiting.len() >= room {
            return Err(Refusal::QueueFull {
                waiting: state.waiting.len(),
                retry_after_s: state.retry_after_s(),
            });
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        let (cancel, unread) = (Cancel::new(), Arc::new(AtomicUsize::new(0)));
        let id = state.next_id;
        state.next_id += 1;
        let ticket = Ticket::new(
            self.clone(),
            id,
            &prepared,
            cancel.clone(),
            receiver,
            unread.clone(),
        );
        state.waiting.push_back(Job {
            id,
            prepared,
            cancel,
            events: sender,
            unread,
            since: Instant::now(),
        });
        self.metrics.live.fetch_add(1, Ordering::Relaxed);
        drop(state);
        self.ready.notify_one();
        Ok(ticket)
    }

    /// Gives a place back: whoever waits leaves, whoever is answered is cancelled.
    pub fn leave(&self, id: u64, cancel: &Cancel) {
        cancel.cancel();
        let mut state = self.lock();
        if let Some(at) = state.waiting.iter().position(|job| job.id == id) {
            let job = state.waiting.remove(at);
            drop(state);
            // A long prompt is freed outside of the lock.
            drop(job);
            self.metrics.cancelled.fetch_add(1, Ordering::Relaxed);
        }
        self.metrics.live.fetch_sub(1, Ordering::Relaxed);
    }

    /// Loads or unloads the model, when nobody waits or is answered.
    ///
    /// # Errors
    /// [`Refusal::Busy`], [`Refusal::Draining`].
    pub fn order(&self, load: bool) -> Result<Reply, Refusal> {
        let (task, what) = if load {
            (Task::Load, "load it")
        } else {
            (Task::Unload, "unload it")
        };
        self.give(what, |_| task)
    }

    /// Takes another model, when nobody waits or is answered. Whoever was read for the one before is not let in from now on.
    ///
    /// # Errors
    /// As for [`Queue::order`].
    pub fn take(&self, opened: Opened) -> Result<Reply, Refusal> {
        self.give("choose another model", |state| {
            state.model += 1;
            let id = state.model;
            Task::Take(Arc::new(Chosen { id, opened }))
        })
    }

    fn give(
        &self,
        what: &'static str,
        task: impl FnOnce(&mut State) -> Task,
    ) -> Result<Reply, Refusal> {
        let mut state = self.lock();
        if !state.is_open {
            return Err(Refusal::Draining);
        }
        if state.running.is_some() || !state.waiting.is_empty() {
            return Err(Refusal::Busy(what));
        }
        let (reply, receiver) = oneshot::channel();
        let task = task(&mut state);
        state.orders.push_back(Order { task, reply });
        drop(state);
        self.ready.notify_one();
        Ok(receiver)
    }

    /// Has the worker look whether the model is still there.
    pub fn wake(&self) {
        self.lock().is_woken = true;
        self.ready.notify_all();
    }

    /// Lets nobody in any more; those who are in are answered.
    pub fn close(&self) {
        self.lock().is_open = false;
        self.ready.notify_all();
    }

    /// Lets nobody in and sends everybody away.
    pub fn abort(&self) {
        let mut state = self.lock();
        state.is_open = false;
        if let Some(running) = &state.running {
            running.cancel.cancel();
        }
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        for job in waiting {
            // Its client may be gone.
            let _ = job.events.send(Event::Ended(Err(Refusal::Draining)));
        }
        self.ready.notify_all();
    }

    /// How many wait, and whether one is being answered.
    pub fn load(&self) -> (usize, bool) {
        let state = self.lock();
        (state.waiting.len(), state.running.is_some())
    }

    /// The time that a turn may take in all.
    pub fn time_limit(&self) -> Option<Duration> {
        self.options.time_limit
    }

    /// Waits for something to do. The worker calls this and nobody else.
    pub fn next(&self, is_loaded: bool) -> Next {
        let mut state = self.lock();
        let idle = self.options.idle_unload.filter(|_| is_loaded);
        let until = idle.map(|idle| Instant::now() + idle);
        loop {
            if std::mem::take(&mut state.is_woken) {
                return Next::Wake;
            }
            if let Some(order) = state.orders.pop_front() {
                return Next::Order(order);
            }
            if let Some(job) = state.waiting.pop_front() {
                state.running = Some(Running {
                    since: Instant::now(),
                    cancel: job.cancel.clone(),
                });
                return Next::Job(Box::new(job));
            }
            if !state.is_open {
                return Next::End;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => return Next::Idle,
                Some(left) => {
                    let waited = self.ready.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.ready.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// The turn that [`Queue::next`] gave is over.
    pub fn done(&self) {
        let mut state = self.lock();
        if let Some(running) = state.running.take() {
            // A quarter of the newest: some four turns back are remembered.
            state.mean_turn = (state.mean_turn * 3 + running.since.elapsed()) / 4;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while the lock is held, and the state would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// When the turn under way should be over, by those before it.
    fn retry_after_s(&self) -> u64 {
        let gone = self
            .running
            .as_ref()
            .map_or(Duration::ZERO, |running| running.since.elapsed());
        let left = self.mean_turn.saturating_sub(gone).as_secs_f64().ceil() as u64;
        left.clamp(1, MAX_RETRY_AFTER_S)
    }
}
