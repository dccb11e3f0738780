//! The task that owns an answer: it asks the model, tells the watchers, and writes down what comes, to the end.

use std::sync::Arc;
use std::time::Duration;

use ouzel_chats::{ChatsError, Message};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

use super::Page;
use super::fit::{fit, larger};
use super::live::{Answering, State};
use crate::app::App;
use crate::error::Refusal;
use crate::ticket::{Event, Ticket};
use crate::turn::{End, Outcome, Piece};
use crate::wire::page::{Ending, Phase, Reason, Settings};

/// What comes is written down this often: what a power cut may take, against what a disk has to do.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// What becomes of a question.
pub enum Place {
    /// It has its place in the queue already.
    Taken(Admitted),
    /// It is asked after these messages, and has none yet.
    After {
        /// What was said, the question at the end.
        said: Vec<Message>,
        /// Whether the oldest turns may be left out.
        leaves_out: bool,
    },
}

/// A question that has its place in the queue.
pub struct Admitted {
    ticket: Ticket,
    /// The oldest messages that it does without.
    left_out: usize,
}

impl Place {
    async fn admit(self, app: &Arc<App>, settings: Settings) -> Result<Admitted, Refusal> {
        match self {
            Place::Taken(admitted) => Ok(admitted),
            Place::After { said, leaves_out } => admit(app, said, settings, leaves_out).await,
        }
    }
}

/// Answers, whatever happens; afterwards the row has an ending.
pub async fn answer(
    app: Arc<App>,
    page: Arc<Page>,
    answering: Arc<Answering>,
    asked: Place,
    settings: Settings,
) {
    let mut left_out = 0;
    let result = tokio::select! {
        admitted = asked.admit(&app, settings) => match admitted {
            Ok(admitted) => {
                left_out = admitted.left_out;
                follow(&page, &answering, &app, admitted.ticket).await
            }
            Err(refusal) => Err(refusal),
        },
        // Nothing was begun, so nothing has to be ended.
        () = answering.stopped() => Ok(None),
    };
    let more = |needed| larger(&app.current.get(), needed);
    let ending = match result {
        Ok(Some(outcome)) => Ending {
            left_out,
            larger: match outcome.end {
                End::ContextFull => more(outcome.usage.prompt + outcome.usage.new),
                _ => None,
            },
            ..Ending::of(&Ok(outcome))
        },
        Ok(None) => Ending::because(Reason::Stopped),
        Err(refusal) => Ending {
            left_out,
            larger: match &refusal {
                Refusal::ContextFull { needed, .. } => more(*needed),
                _ => None,
            },
            ..Ending::of(&Err(refusal))
        },
    };
    // The only whole copy is here: it stays, and its watchers are told why, until it could be written.
    while !save(&page, &answering, Some(&ending)).await {
        sleep(SAVE_EVERY).await;
    }
    answering.change(|state| state.ending = Some(ending));
    page.live.end(answering.id);
}

/// From what was said to a place in the queue.
pub async fn admit(
    app: &Arc<App>,
    said: Vec<Message>,
    settings: Settings,
    leaves_out: bool,
) -> Result<Admitted, Refusal> {
    let shared = app.clone();
    let (prepared, left_out, model) = app
        .aside(move || {
            let chosen = shared.current.get();
            chosen.check_model(None)?;
            let (prepared, left_out) = fit(&chosen, &said, &settings, leaves_out)?;
            Ok((prepared, left_out, chosen.id))
        })
        .await?;
    Ok(Admitted {
        ticket: app.queue.admit(prepared, model)?,
        left_out,
    })
}

/// Takes what comes until the end, or until it is stopped before anything came: then there is no outcome.
async fn follow(
    page: &Arc<Page>,
    answering: &Arc<Answering>,
    app: &App,
    mut ticket: Ticket,
) -> Result<Option<Outcome>, Refusal> {
    let (mut has_begun, mut is_stopped) = (false, false);
    // The first words are written at once, further ones when it is time again.
    let (mut save_at, mut next_save) = (None, Instant::now());
    loop {
        let due = save_at.unwrap_or_else(Instant::now);
        tokio::select! {
            event = ticket.next() => match event {
                Event::Piece(piece) => {
                    has_begun = true;
                    if !matches!(piece, Piece::Prompt { .. }) {
                        save_at.get_or_insert(next_save);
                    }
                    let spent = app.metrics.spent_by(ticket.id());
                    answering.change(|state| {
                        state.spent = spent.or(state.spent);
                        take(state, piece);
                    });
                }
                Event::Ended(Ok(outcome)) if outcome.end == End::Cancelled && !is_stopped => {
                    return Err(Refusal::Draining);
                }
                Event::Ended(result) => return result.map(Some),
            },
            () = answering.stopped(), if !is_stopped => {
                if !has_begun {
                    return Ok(None);
                }
                is_stopped = true;
                ticket.cancel();
            }
            () = sleep_until(due), if save_at.is_some() => {
                save_at = None;
                save(page, answering, None).await;
                next_save = Instant::now() + SAVE_EVERY;
            }
        }
    }
}

fn take(state: &mut State, piece: Piece) {
    match piece {
        Piece::Prompt { done, total } => {
            state.phase = Phase::Reading;
            state.prompt = Some((done, total));
        }
        Piece::Thinking(text) => {
            state.phase = Phase::Thinking;
            state.thinking.push_str(&text);
        }
        Piece::Text(text) => {
            state.phase = Phase::Writing;
            state.text.push_str(&text);
        }
        // There are no tools here; a model that calls one all the same has said so.
        Piece::Call { name, arguments } => {
            let call = format!("\n\n```json\n{name} {}\n```\n", Value::Object(arguments));
            state.text.push_str(&call);
        }
        Piece::Token(_) => {}
    }
}

/// Writes down what there is, and says whether it could. What cannot be written is told to whoever watches, and tried again.
async fn save(page: &Page, answering: &Answering, ending: Option<&Ending>) -> bool {
    let state = answering.state();
    // Nothing in an ending could fail to become JSON.
    let ending = ending.map(|ending| serde_json::to_string(ending).unwrap_or_default());
    let (id, chats) = (answering.id, page.chats.clone());
    let written = tokio::task::spawn_blocking(move || {
        chats.write(id, &state.text, &state.thinking, ending.as_deref())
    });
    let problem = match written.await {
        // Whoever removed the conversation does not want to hear of it.
        Ok(Ok(()) | Err(ChatsError::Missing)) => None,
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some("the conversations could not be asked".to_owned()),
    };
    let is_written = problem.is_none();
    answering.change(|state| state.unsaved = problem);
    is_written
}
