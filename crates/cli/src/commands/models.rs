//! `ouzel models`: what is installed, which model is meant when none is named, and how to get rid of one.

use std::fmt::Write;
use std::fs;
use std::io::{self, BufRead, IsTerminal};

use anyhow::Context;
use ouzel_install::remove;
use ouzel_storage::{DirLock, OsDisk, ShowPath};

use crate::args::{ModelsArgs, ModelsCommand};
use crate::exit::{CliError, usage};
use crate::models::{Entry, Places, State};
use crate::output::{note_raw, write};
use crate::report::bytes;
use crate::running;

/// Runs the command.
pub fn run(args: &ModelsArgs) -> anyhow::Result<()> {
    let places = Places::find(args.models_dir.as_deref())?;
    match &args.command {
        None => write(&table(&places)),
        Some(ModelsCommand::Default { name }) => {
            let entry = places.entry_of(name)?;
            if entry.state != State::Complete {
                return Err(CliError::NoModel(format!(
                    "{}: {}; it cannot be the default",
                    entry.name,
                    words(&entry.state)
                ))
                .into());
            }
            places.set_default(&entry.path)?;
            write(&format!("{} is the default model\n", entry.name.shown()))
        }
        Some(ModelsCommand::Remove { name, yes }) => {
            let entry = places.entry_of(name)?;
            remove_one(&places, &entry, *yes)
        }
    }
}

fn table(places: &Places) -> String {
    let entries = places.entries();
    if entries.is_empty() {
        return format!(
            "no model is installed in {}; `ouzel install` brings one, and `--model demo` is always there\n",
            places.models.shown()
        );
    }
    let name = |entry: &Entry| entry.name.shown().to_string();
    let width = entries.iter().map(|entry| name(entry).chars().count());
    let width = width.max();
    let width = width.unwrap_or(0).max(4);
    let mut table = format!("  {:width$}  {:>9}  {:10}  PATH\n", "NAME", "SIZE", "STATE");
    for entry in &entries {
        let mark = if entry.is_default { '*' } else { ' ' };
        let state = match &entry.state {
            State::Complete => "complete",
            State::Unfinished => "unfinished",
            State::Installing => "installing",
            State::Gone => "gone",
            State::Broken(_) => "broken",
        };
        let _ = writeln!(
            table,
            "{mark} {:width$}  {:>9}  {state:10}  {}",
            name(entry),
            bytes(entry.bytes),
            entry.path.shown()
        );
    }
    for entry in entries
        .iter()
        .filter(|entry| entry.state != State::Complete)
    {
        let _ = writeln!(table, "{}: {}", name(entry), words(&entry.state));
    }
    if entries.iter().any(|entry| entry.is_default) {
        table.push_str("* is used when no --model is given\n");
    }
    table
}

fn words(state: &State) -> String {
    match state {
        State::Complete => "complete".to_owned(),
        State::Unfinished => {
            "its installation was cut short; the same `ouzel install` goes on, `ouzel models remove` takes it away"
                .to_owned()
        }
        State::Installing => "another ouzel installs it right now".to_owned(),
        State::Gone => {
            "it was the default and is not there any more; `ouzel models default NAME` chooses another".to_owned()
        }
        State::Broken(why) => format!("{why}; `ouzel install --repair` may mend it"),
    }
}

fn remove_one(places: &Places, entry: &Entry, yes: bool) -> anyhow::Result<()> {
    // A model may be a link; then it goes with what it leads to, and nobody may be using that.
    let dir = fs::canonicalize(&entry.path).unwrap_or_else(|_| entry.path.clone());
    let what = format!("{} ({})", dir.shown(), bytes(entry.bytes));
    if !yes && !confirm(&format!("Remove {what}? [y/N] "))? {
        return Err(usage(format!("{}: kept", entry.name)));
    }
    let lock = DirLock::try_acquire(&DirLock::path_for(&dir))
        .map_err(|error| running::explain(places, &dir, error))?;
    let removed = remove(&OsDisk, &dir);
    lock.release();
    removed?;
    if entry.path.is_symlink() {
        fs::remove_file(&entry.path).with_context(|| entry.path.shown().to_string())?;
    }
    if entry.is_default {
        places.forget_default();
    }
    write(&format!("removed {what}\n"))
}

/// Asks at the terminal; elsewhere nobody could answer.
fn confirm(question: &str) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        return Err(usage(
            "there is no terminal to ask at; --yes removes without a question",
        ));
    }
    note_raw(question);
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .context("standard input")?;
    Ok(["y", "yes"].contains(&line.trim().to_ascii_lowercase().as_str()))
}
