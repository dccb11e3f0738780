//! An answer on its way to the terminal: text to standard output piece by piece, everything else to standard error.

use ouzel::{Event, Generation, Stats, StopReason};

use crate::args::Thinking;
use crate::output::{can_dim, note, note_raw, write};
use crate::progress::Progress;

/// Prompts of more tokens than this show how far they are.
const LONG_PROMPT: usize = 256;

/// What was said, and what it took.
pub struct Answer {
    pub text: String,
    pub stats: Stats,
}

/// Shows an answer while it is made. It ends with a newline, unless there is no text.
pub fn show(generation: Generation<'_>, thinking: Thinking, quiet: bool) -> anyhow::Result<Answer> {
    let mut screen = Screen {
        text: String::new(),
        thoughts: Thoughts {
            thinking,
            is_open: false,
        },
        progress: None,
        quiet,
    };
    let mut stats = None;
    for event in generation {
        // An error leaves the line that was begun.
        match event.inspect_err(|_| screen.end_line())? {
            Event::Done(done) => stats = Some(done),
            event => screen.show(&event)?,
        }
    }
    screen.thoughts.close();
    if !screen.text.is_empty() {
        write("\n")?;
    }
    // A generation ends with an error or with `Done`.
    let stats = stats.ok_or_else(|| anyhow::anyhow!("the answer has no end"))?;
    if stats.stop == StopReason::ToolCall {
        note("the model asks for a tool, which nobody here can run; its answer ends here");
    }
    Ok(Answer {
        text: screen.text,
        stats,
    })
}

struct Screen {
    text: String,
    thoughts: Thoughts,
    progress: Option<Progress>,
    quiet: bool,
}

impl Screen {
    fn show(&mut self, event: &Event) -> anyhow::Result<()> {
        match event {
            Event::Prompt { done, total } => self.show_progress(*done, *total),
            Event::Thinking(text) => self.thoughts.show(text),
            Event::Answer(text) => {
                self.thoughts.close();
                self.text.push_str(text);
                write(text)?;
            }
            // Nobody here runs tools: the answer ends with its call; and nobody asks how likely a token was.
            Event::ToolCall { .. } | Event::Token { .. } | Event::Done(_) => {}
        }
        Ok(())
    }

    fn show_progress(&mut self, done: usize, total: usize) {
        if done == total {
            self.progress = None;
        } else if total > LONG_PROMPT {
            self.progress
                .get_or_insert_with(|| Progress::tokens("reading the prompt", self.quiet))
                .set(done as u64, total as u64);
        }
    }

    fn end_line(&mut self) {
        self.thoughts.close();
        if !self.text.is_empty() {
            // The error that follows says more than this one would.
            let _ = write("\n");
        }
    }
}

/// Thinking goes to standard error, so that it never mixes with the answer.
struct Thoughts {
    thinking: Thinking,
    is_open: bool,
}

impl Thoughts {
    fn show(&mut self, text: &str) {
        if self.thinking != Thinking::Show {
            return;
        }
        if !self.is_open && can_dim() {
            note_raw("\x1b[2m");
        }
        self.is_open = true;
        note_raw(text);
    }

    fn close(&mut self) {
        if std::mem::take(&mut self.is_open) {
            note_raw(if can_dim() { "\x1b[0m\n" } else { "\n" });
        }
    }
}
