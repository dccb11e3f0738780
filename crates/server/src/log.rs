//! What a server tells while it runs, as values without a place for what people say.
//!
//! A [`Record`] has numbers, methods, addresses, ends, and what the system says of a folder; there is no field into which a prompt, an argument, a header or a key could
//! slip. Whoever starts the server decides where records go.

use std::time::Duration;

use crate::turn::{End, Usage};

/// Something that happened.
#[derive(Debug)]
#[non_exhaustive]
pub enum Record<'a> {
    /// The model is loaded.
    Loaded {
        /// How long it took.
        took: Duration,
    },
    /// The model's memory was given back.
    Unloaded,
    /// The process with the model is gone.
    Lost,
    /// Conversations are not kept on the disk.
    NotKept {
        /// The folder, and what the system says of it.
        why: &'a str,
    },
    /// A request got the head of its answer.
    Request {
        /// The method.
        method: &'a str,
        /// The route, as the table of routes has it.
        route: &'a str,
        /// The status.
        status: u16,
        /// How long it took until here.
        took: Duration,
    },
    /// A turn of the model is over.
    Turn {
        /// Its number.
        id: u64,
        /// Time in the queue.
        waited: Duration,
        /// Time with the model.
        took: Duration,
        /// How it ended: a word of [`ended`], or the code of a refusal.
        end: &'static str,
        /// What it took, where it was not refused.
        usage: Option<Usage>,
    },
    /// The server takes no more requests and ends when those that it has are answered.
    Draining,
}

/// The end of an answer in a word.
pub fn ended(end: &End) -> &'static str {
    match end {
        End::Stop | End::StopText(_) => "ended",
        End::Length => "cut off by its limit",
        End::ContextFull => "cut off by the context",
        End::Cancelled => "cancelled",
    }
}

/// Where records go.
pub trait Log: Send + Sync + 'static {
    /// Takes one; called from any thread.
    fn record(&self, record: &Record<'_>);
}

/// Tells nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Log for Silent {
    fn record(&self, _: &Record<'_>) {}
}
