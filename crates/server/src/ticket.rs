//! A place in the queue as its request holds it: the answer comes out of it, and dropping it gives the place back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use ouzel::Cancel;
use tokio::sync::mpsc;
use tokio::time::{Sleep, sleep};

use crate::engine::Prepared;
use crate::error::Refusal;
use crate::queue::Queue;
use crate::turn::{End, Outcome, Piece};

/// What comes out of a ticket.
#[derive(Debug)]
pub enum Event {
    /// A piece of the answer.
    Piece(Piece),
    /// The last one.
    Ended(Result<Outcome, Refusal>),
}

/// A place in the queue.
pub struct Ticket {
    queue: Arc<Queue>,
    id: u64,
    prompt_tokens: usize,
    warnings: Vec<String>,
    cancel: Cancel,
    events: mpsc::UnboundedReceiver<Event>,
    unread: Arc<AtomicUsize>,
    deadline: Option<Pin<Box<Sleep>>>,
    /// Whether something of the answer came.
    has_begun: bool,
    is_over_time: bool,
}

impl Ticket {
    pub(crate) fn new(
        queue: Arc<Queue>,
        id: u64,
        prepared: &Prepared,
        cancel: Cancel,
        events: mpsc::UnboundedReceiver<Event>,
        unread: Arc<AtomicUsize>,
    ) -> Ticket {
        let deadline = queue.time_limit().map(|limit| Box::pin(sleep(limit)));
        Ticket {
            queue,
            id,
            prompt_tokens: prepared.ids.len(),
            warnings: prepared.warnings.clone(),
            cancel,
            events,
            unread,
            deadline,
            has_begun: false,
            is_over_time: false,
        }
    }

    /// The turn's number.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// What was changed of the request so that it could be served.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Asks for the end; it comes as an event, with what it took.
    pub fn cancel(&self) {
        self.cancel.cancel();
    }

    /// The next event. After [`Event::Ended`] there is none.
    pub async fn next(&mut self) -> Event {
        std::future::poll_fn(|cx| self.poll_next(cx)).await
    }

    /// The same for whoever polls.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        if let Some(refusal) = self.check_time(cx) {
            return Poll::Ready(Event::Ended(Err(refusal)));
        }
        let event = ready!(self.events.poll_recv(cx));
        Poll::Ready(match event {
            Some(Event::Piece(piece)) => {
                self.unread
                    .fetch_sub(piece.weight_bytes(), Ordering::Relaxed);
                self.has_begun |= !matches!(piece, Piece::Prompt { .. });
                Event::Piece(piece)
            }
            Some(Event::Ended(Ok(outcome))) => Event::Ended(Ok(self.in_time(outcome))),
            Some(ended) => ended,
            None => Event::Ended(Err(Refusal::Internal("the worker is gone".to_owned()))),
        })
    }

    /// An answer that was cut off by the time limit has a length, as if it had been cut off by a number of tokens.
    fn in_time(&self, outcome: Outcome) -> Outcome {
        match outcome.end {
            End::Cancelled if self.is_over_time => Outcome {
                end: End::Length,
                ..outcome
            },
            _ => outcome,
        }
    }

    /// Looks at the clock, once; a turn that did not begin in time is refused.
    fn check_time(&mut self, cx: &mut Context<'_>) -> Option<Refusal> {
        let deadline = self.deadline.as_mut()?;
        if deadline.as_mut().poll(cx).is_pending() {
            return None;
        }
        self.deadline = None;
        self.is_over_time = true;
        self.cancel.cancel();
        let limit = self.queue.time_limit().unwrap_or_default();
        (!self.has_begun).then_some(Refusal::TimeLimit(limit.as_secs()))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.queue.leave(self.id, &self.cancel);
    }
}
