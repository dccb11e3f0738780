//! An answer as server-sent events: a body that turns pieces into a door's events as they come.
//!
//! The body owns its ticket, so that a connection which breaks gives the place back. It asks for a piece only when the connection can
//! take more; while nothing comes, heartbeats tell the client and every proxy that somebody is there.

use std::convert::Infallible;
use std::fmt::Write;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use http_body::Frame;
use serde::Serialize;
use tokio::time::{Instant, Sleep, sleep};

use crate::error::Refusal;
use crate::ticket::{Event, Ticket};
use crate::turn::{End, Outcome, Piece};

/// Well below the ten seconds that clients are promised.
pub const HEARTBEAT: Duration = Duration::from_secs(5);
/// Events are handed on in portions of about this size where many wait.
const PORTION_BYTES: usize = 16 << 10;

/// The events of one API.
pub trait Voice: Send + 'static {
    /// What is said before anything is known.
    fn open(&mut self, out: &mut Events);
    /// A piece of the answer.
    fn piece(&mut self, piece: Piece, out: &mut Events);
    /// The end.
    fn close(&mut self, outcome: &Outcome, out: &mut Events);
    /// The end of an answer that went wrong.
    fn fail(&mut self, refusal: &Refusal, out: &mut Events);
    /// A sign of life.
    fn heartbeat(&mut self, out: &mut Events) {
        out.comment("the model is at work");
    }
}

/// Events on their way out.
#[derive(Debug, Default)]
pub struct Events(String);

impl Events {
    /// An event without a name.
    pub fn data(&mut self, value: &impl Serialize) {
        // What is written here has no maps with keys that are no strings, the one thing that could fail.
        let json = serde_json::to_string(value).unwrap_or_default();
        let _ = write!(self.0, "data: {json}\n\n");
    }

    /// An event with a name.
    pub fn event(&mut self, name: &str, value: &impl Serialize) {
        let _ = writeln!(self.0, "event: {name}");
        self.data(value);
    }

    /// The mark that ends OpenAI's streams.
    pub fn done(&mut self) {
        self.0.push_str("data: [DONE]\n\n");
    }

    /// A line that clients skip.
    pub fn comment(&mut self, text: &str) {
        let _ = write!(self.0, ": {text}\n\n");
    }

    /// What was written, to be sent.
    pub(crate) fn take(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.0))
    }

    /// What was written, for tests.
    pub fn text(&self) -> &str {
        &self.0
    }
}

/// The response that streams a turn.
pub fn stream(ticket: Ticket, mut voice: Box<dyn Voice>) -> Response {
    let mut out = Events::default();
    voice.open(&mut out);
    let body = TurnBody {
        ticket: Some(ticket),
        voice,
        out,
        heartbeat: Box::pin(sleep(HEARTBEAT)),
    };
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // Asks proxies to hand events on as they come.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct TurnBody {
    /// Gone once the answer ended.
    ticket: Option<Ticket>,
    voice: Box<dyn Voice>,
    out: Events,
    heartbeat: Pin<Box<Sleep>>,
}

impl TurnBody {
    /// Takes what has come.
    fn take(&mut self, cx: &mut Context<'_>) {
        while self.out.0.len() < PORTION_BYTES {
            let Some(ticket) = &mut self.ticket else {
                return;
            };
            match ticket.poll_next(cx) {
                Poll::Pending => return,
                Poll::Ready(Event::Piece(piece)) => self.voice.piece(piece, &mut self.out),
                Poll::Ready(Event::Ended(result)) => {
                    match result {
                        Ok(outcome) if outcome.end == End::Cancelled => {
                            self.voice.fail(&Refusal::Draining, &mut self.out);
                        }
                        Ok(outcome) => self.voice.close(&outcome, &mut self.out),
                        Err(refusal) => self.voice.fail(&refusal, &mut self.out),
                    }
                    self.ticket = None;
                }
            }
        }
    }
}

impl http_body::Body for TurnBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let body = &mut *self;
        loop {
            body.take(cx);
            if !body.out.0.is_empty() {
                body.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT);
                let portion = std::mem::take(&mut body.out.0);
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(portion)))));
            }
            if body.ticket.is_none() {
                return Poll::Ready(None);
            }
            if body.heartbeat.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            body.voice.heartbeat(&mut body.out);
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ticket.is_none() && self.out.0.is_empty()
    }
}
