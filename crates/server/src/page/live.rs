//! Answers that are being written: what there is of them, for any number of watchers, and the way to stop them.
//!
//! A watcher remembers how much it has seen and asks for the rest when something changed, so a slow one gets larger pieces, and never makes the
//! writer wait or anything pile up.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::error::Refusal;
use crate::metrics::Spent;
use crate::wire::page::{Ending, Phase, Said};

/// All answers of a page that are being written.
pub struct Live {
    answers: Mutex<HashMap<i64, Arc<Answering>>>,
    n_live: watch::Sender<usize>,
}

impl Default for Live {
    fn default() -> Live {
        Live {
            answers: Mutex::default(),
            n_live: watch::Sender::new(0),
        }
    }
}

/// One of them.
pub struct Answering {
    /// The answer's number.
    pub id: i64,
    /// The conversation.
    pub chat: i64,
    state: Mutex<State>,
    changes: watch::Sender<u64>,
    stop: watch::Sender<bool>,
}

/// What there is of an answer.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The answer.
    pub text: String,
    /// What was thought before.
    pub thinking: String,
    /// What is happening.
    pub phase: Phase,
    /// Tokens of the prompt that were read, and all of them.
    pub prompt: Option<(usize, usize)>,
    /// What it took until now.
    pub spent: Option<Spent>,
    /// Why it cannot be kept, if it cannot.
    pub unsaved: Option<String>,
    /// How it ended.
    pub ending: Option<Ending>,
}

/// How much of an answer somebody has seen, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    text: usize,
    thinking: usize,
    has_begun: bool,
}

impl Live {
    /// An answer begins. One at a time in each conversation.
    ///
    /// # Errors
    /// [`Refusal::Busy`].
    pub fn check_free(&self, chat: Option<i64>) -> Result<(), Refusal> {
        let is_busy = |answer: &Arc<Answering>| Some(answer.chat) == chat;
        if self.lock().values().any(is_busy) {
            return Err(Refusal::Busy("ask in this conversation again"));
        }
        Ok(())
    }

    /// A new answer, with nothing in it.
    pub fn begin(&self, id: i64, chat: i64) -> Arc<Answering> {
        let answering = Arc::new(Answering {
            id,
            chat,
            state: Mutex::default(),
            changes: watch::Sender::new(0),
            stop: watch::Sender::new(false),
        });
        let mut answers = self.lock();
        answers.insert(id, answering.clone());
        self.n_live.send_replace(answers.len());
        answering
    }

    /// An answer that is being written.
    pub fn find(&self, id: i64) -> Option<Arc<Answering>> {
        self.lock().get(&id).cloned()
    }

    /// The answer that is being written in a conversation.
    pub fn of_chat(&self, chat: i64) -> Option<Arc<Answering>> {
        let answers = self.lock();
        answers.values().find(|answer| answer.chat == chat).cloned()
    }

    /// The conversations that are being answered.
    pub fn chats(&self) -> Vec<i64> {
        self.lock().values().map(|answer| answer.chat).collect()
    }

    /// An answer is over; its row has all of it.
    pub fn end(&self, id: i64) {
        let mut answers = self.lock();
        answers.remove(&id);
        self.n_live.send_replace(answers.len());
    }

    /// Waits until there is none.
    pub async fn settled(&self) {
        // The sender lives in `self`, so there is no other end of waiting.
        let _ = self.n_live.subscribe().wait_for(|n| *n == 0).await;
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<i64, Arc<Answering>>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Answering {
    /// Changes what there is, and tells the watchers.
    pub fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changes.send_modify(|n| *n += 1);
    }

    /// All of it.
    pub fn state(&self) -> State {
        self.lock().clone()
    }

    /// What came since somebody looked, and whether that was the last of it.
    pub fn since(&self, seen: &mut Seen) -> (Said, bool) {
        let state = self.lock();
        let said = Said {
            begins: !seen.has_begun,
            text: state.text[seen.text..].to_owned(),
            thinking: state.thinking[seen.thinking..].to_owned(),
            phase: state.phase,
            prompt: state.prompt,
            spent: state.spent.map(Into::into),
            unsaved: state.unsaved.clone(),
        };
        *seen = Seen {
            text: state.text.len(),
            thinking: state.thinking.len(),
            has_begun: true,
        };
        (said, state.ending.is_some())
    }

    /// Hears of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Nobody wants any more of it.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until somebody stops it.
    pub async fn stopped(&self) {
        let _ = self
            .stop
            .subscribe()
            .wait_for(|is_stopped| *is_stopped)
            .await;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
