//! A conversation that has become longer than the context: its oldest turns are left out, where somebody said so, and stay where they are kept.

use ouzel_chats::{Message, Role};

use super::turn::turn;
use crate::engine::Prepared;
use crate::error::Refusal;
use crate::models::Opened;
use crate::wire::page::{Ending, Larger, Settings};

/// When turns are left out, the rest has at most this share of the context: an answer needs room, and the next turns go on behind the same beginning.
const SHARE: (usize, usize) = (1, 2);
/// A larger context holds what did not fit, a quarter more for an answer, and is a multiple of this.
const CONTEXT_STEP: usize = 1024;

/// A turn that fits, and how many of the oldest messages it does without. `leaves_out` says that it may do without some; a conversation that did
/// before may again.
///
/// # Errors
/// [`Refusal::ContextFull`] where that is not allowed or not enough; those of the engine.
pub fn fit(
    chosen: &Opened,
    said: &[Message],
    settings: &Settings,
    leaves_out: bool,
) -> Result<(Prepared, usize), Refusal> {
    let prepare = |from: usize| {
        let turn = turn(said[from..].to_vec(), settings, &chosen.defaults)?;
        let param = turn.fields.prompt;
        let prepared = chosen.engine.prepare(turn)?;
        chosen.check_fits(param, &prepared)?;
        Ok((prepared, from))
    };
    let before = left_out(said);
    let most = chosen.engine.facts().context * SHARE.0 / SHARE.1;
    let whole = prepare(0);
    match &whole {
        // Whoever says it anew has no room for an answer.
        Ok((prepared, _)) if leaves_out && prepared.ids.len() > most => {}
        Err(Refusal::ContextFull { .. }) if leaves_out || before > 0 => {}
        _ => return whole,
    }
    if before > 0
        && let Ok(fits) = prepare(before)
    {
        return Ok(fits);
    }
    // A turn begins with what the person said.
    let starts: Vec<usize> = (before + 1..said.len())
        .filter(|&i| said[i].role == Role::User)
        .collect();
    let is_too_long = |&from: &usize| match prepare(from) {
        Ok((prepared, _)) => prepared.ids.len() > most,
        Err(_) => true,
    };
    let from = starts.partition_point(is_too_long);
    // Where not even the last question is that short, it may still fit.
    match starts.get(from).or(starts.last()) {
        Some(&from) => prepare(from),
        None => whole,
    }
}

/// Messages that the last answer did without.
fn left_out(said: &[Message]) -> usize {
    let endings = said.iter().rev().filter_map(|message| {
        let ending = message.ending.as_deref()?;
        serde_json::from_str::<Ending>(ending).ok()
    });
    let last = endings.map(|ending| ending.left_out).next();
    last.filter(|&n| n < said.len()).unwrap_or(0)
}

/// A context in which a turn of so many tokens would fit, if there is one.
pub fn larger(chosen: &Opened, needed: usize) -> Option<Larger> {
    let roomy = (needed + needed / 4).next_multiple_of(CONTEXT_STEP);
    [roomy, needed + needed / 8 + 1]
        .into_iter()
        .find_map(|context| {
            let memory = chosen.engine.memory_for(context)?;
            Some(Larger {
                context,
                memory_bytes: memory.max(chosen.engine.facts().memory_bytes),
            })
        })
}
