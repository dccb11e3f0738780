//! `ouzel chat`: a conversation in the terminal, or over a pipe.
//!
//! The conversation is a list of messages and nothing else; the session finds out what it still holds of it. A turn that fails or
//! does not fit leaves the conversation as it was, and the program goes on.

use std::io::{self, IsTerminal};

use ouzel::{Error, GenerateOptions, Message, Session, Stats, StopReason};
use ouzel_storage::ShowPath;

use super::answer;
use crate::args::{ChatArgs, Thinking};
use crate::exit::CliError;
use crate::interrupt::Armed;
use crate::models::{self, Chosen};
use crate::output::{note, note_raw};
use crate::{exit, report};

mod lines;

use lines::Lines;

const HELP: &str = "\
/help         this list
/clear        forget the conversation; the system text stays
/forget       forget the oldest question and its answer
/system TEXT  instructions for the model from the next turn on; without TEXT shows them, `/system -` removes them
/stats        what the last answer took, and how full the context is
/quit         end (so does Ctrl-D)
Ctrl-C stops an answer. Lines typed meanwhile wait for its end. A line that begins with // is sent with one slash.
";

/// Runs the command.
pub fn run(args: &ChatArgs, quiet: bool) -> anyhow::Result<()> {
    let chosen = models::choose(&args.model)?;
    let mut options = chosen.options(&args.session, args.sampling.precision);
    let model = chosen.open(&options)?;
    args.session.settle(&model, &mut options)?;
    // What a conversation needs is asked for before gigabytes are read.
    model.tokenizer()?;
    model.template()?;
    if !quiet {
        report::before_loading(&model, &options, &args.session);
    }
    let _running = chosen.claim(&model, &options, args.session.shared)?;
    let mut conversation = Conversation {
        session: model.session(&options)?,
        options: args.sampling.options(chosen.temperature()),
        thinking: args.sampling.thinking,
        quiet,
        system: None,
        messages: Vec::new(),
        last: None,
        failed: None,
    };
    conversation.run(&chosen)
}

struct Conversation {
    session: Session,
    options: GenerateOptions,
    thinking: Thinking,
    quiet: bool,
    system: Option<String>,
    /// Questions and answers in turn.
    messages: Vec<Message>,
    last: Option<Stats>,
    /// The exit code of the first turn that failed.
    failed: Option<u8>,
}

/// Whether to go on after a line.
#[derive(PartialEq, Eq)]
enum Next {
    Line,
    Quit,
}

impl Conversation {
    fn run(&mut self, chosen: &Chosen) -> anyhow::Result<()> {
        let is_typed = io::stdin().is_terminal();
        let mut lines = if is_typed {
            if !self.quiet {
                note(&format!("{}; /help lists the commands", chosen.dir.shown()));
            }
            Lines::terminal(chosen.history())?
        } else {
            Lines::pipe()
        };
        while let Some(line) = lines.next()? {
            if self.line(line.trim())? == Next::Quit {
                break;
            }
        }
        match self.failed {
            Some(code) if !is_typed => Err(CliError::Told(code).into()),
            _ => Ok(()),
        }
    }

    fn line(&mut self, line: &str) -> anyhow::Result<Next> {
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match command {
            "" => {}
            "/help" | "/?" => note_raw(HELP),
            "/clear" => self.clear(),
            "/forget" => self.forget(),
            "/system" => self.set_system(rest.trim()),
            "/stats" => self.show_stats(),
            "/quit" | "/exit" => return Ok(Next::Quit),
            _ if line.starts_with("//") => self.turn(&line[1..])?,
            _ if line.starts_with('/') => {
                note(&format!("there is no {command}; /help lists the commands"))
            }
            _ => self.turn(line)?,
        }
        Ok(Next::Line)
    }

    fn clear(&mut self) {
        self.messages.clear();
        self.session.reset();
        note("the conversation is forgotten");
    }

    fn forget(&mut self) {
        if self.messages.is_empty() {
            note("there is nothing to forget");
            return;
        }
        self.messages.drain(..2.min(self.messages.len()));
        note(&format!("turns left: {}", self.messages.len() / 2));
    }

    fn set_system(&mut self, text: &str) {
        match text {
            "" => match &self.system {
                Some(text) => note(&format!("the system text is: {text}")),
                None => note("there is no system text; /system TEXT sets one"),
            },
            "-" => {
                self.system = None;
                note("the system text is removed");
            }
            text => {
                self.system = Some(text.to_owned());
                note("the system text holds from the next turn on");
            }
        }
    }

    fn show_stats(&self) {
        match &self.last {
            Some(stats) => note(&report::stats(stats)),
            None => note("there was no answer yet"),
        }
        note(&format!(
            "{} of {} tokens of context are in use; turns: {}",
            self.session.tokens().len(),
            self.session.capacity(),
            self.messages.len() / 2
        ));
    }

    /// One question and its answer. Only an output that takes no more ends the conversation; any other error is told and taken back.
    fn turn(&mut self, question: &str) -> anyhow::Result<()> {
        self.messages.push(Message::user(question));
        let answer = match self.answer() {
            Ok(answer) => answer,
            Err(error) => {
                self.messages.pop();
                if matches!(
                    error.downcast_ref(),
                    Some(CliError::ClosedPipe | CliError::Output(_))
                ) {
                    return Err(error);
                }
                self.explain(&error);
                self.failed.get_or_insert(exit::code(&error));
                return Ok(());
            }
        };
        let was_ended = matches!(
            answer.stats.stop,
            StopReason::Cancelled | StopReason::ToolCall
        );
        if was_ended && answer.text.is_empty() {
            self.messages.pop();
        } else {
            self.messages.push(Message::assistant(answer.text));
        }
        if !self.quiet {
            note(&report::stats(&answer.stats));
        }
        if answer.stats.stop == StopReason::ContextFull {
            note(
                "the answer was cut off; /forget drops the oldest turn, /clear all of them, --max-context gives more room",
            );
        }
        self.last = Some(answer.stats);
        Ok(())
    }

    fn answer(&mut self) -> anyhow::Result<answer::Answer> {
        let system = self.system.iter().map(Message::system);
        let messages: Vec<Message> = system.chain(self.messages.iter().cloned()).collect();
        let armed = Armed::new();
        let generation = self
            .session
            .chat(&messages, &self.options, armed.cancel())?;
        answer::show(generation, self.thinking, self.quiet)
    }

    fn explain(&self, error: &anyhow::Error) {
        if let Some(Error::ContextFull { needed, capacity }) = error.downcast_ref() {
            let mut advice = Vec::new();
            if !self.messages.is_empty() {
                advice.push("/forget drops the oldest turn, /clear all of them");
            }
            if self.system.is_some() {
                advice.push("`/system -` removes the system text");
            }
            advice.push("a shorter question takes less");
            note(&format!(
                "with this turn the conversation needs {needed} tokens and the context has {capacity}: {}, and --max-context gives more \
                 room at the next start",
                advice.join(", ")
            ));
        } else if let Some(line) = exit::line(error) {
            note(&line);
        }
    }
}
