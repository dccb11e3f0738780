//! Lines of a conversation: edited and remembered at a terminal, as they come from a pipe.

use std::fs;
use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::output::{MAX_INPUT_BYTES, note, too_large};

const PROMPT: &str = "> ";

/// Where lines come from.
pub enum Lines {
    /// A person.
    Terminal {
        editor: Box<DefaultEditor>,
        history: Option<PathBuf>,
    },
    /// A program or a file; counts its lines.
    Pipe { n: usize },
}

impl Lines {
    /// Lines typed by a person; earlier ones are remembered in `history`.
    pub fn terminal(history: Option<&Path>) -> anyhow::Result<Lines> {
        let mut editor = DefaultEditor::new().context("the terminal cannot be used")?;
        if let Some(path) = history {
            // The first conversation has no history yet.
            let _ = editor.load_history(path);
        }
        Ok(Lines::Terminal {
            editor: Box::new(editor),
            history: history.map(Path::to_owned),
        })
    }

    /// Lines of standard input.
    pub fn pipe() -> Lines {
        Lines::Pipe { n: 0 }
    }

    /// The next line, or nothing at the end.
    pub fn next(&mut self) -> anyhow::Result<Option<String>> {
        match self {
            Lines::Terminal { editor, history } => edited(editor, history.as_deref()),
            Lines::Pipe { n } => piped(n),
        }
    }
}

fn edited(editor: &mut DefaultEditor, history: Option<&Path>) -> anyhow::Result<Option<String>> {
    loop {
        match editor.readline(PROMPT) {
            Ok(line) => {
                if !line.trim().is_empty() && editor.add_history_entry(&line).unwrap_or(false) {
                    remember(editor, history);
                }
                return Ok(Some(line));
            }
            // Ctrl-C gives up the line.
            Err(ReadlineError::Interrupted) => {}
            Err(ReadlineError::Eof) => return Ok(None),
            Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                note("that line is not UTF-8 and was skipped");
            }
            Err(error) => return Err(error).context("the terminal"),
        }
    }
}

/// A history that cannot be kept is no reason to stop.
fn remember(editor: &mut DefaultEditor, history: Option<&Path>) {
    let Some(path) = history else { return };
    if let Some(dir) = path.parent() {
        let _ = fs::create_dir_all(dir);
    }
    let _ = editor.save_history(path);
}

fn piped(n: &mut usize) -> anyhow::Result<Option<String>> {
    loop {
        let mut bytes = Vec::new();
        io::stdin()
            .lock()
            .take(MAX_INPUT_BYTES + 1)
            .read_until(b'\n', &mut bytes)
            .context("standard input")?;
        if bytes.is_empty() {
            return Ok(None);
        }
        *n += 1;
        if bytes.len() as u64 > MAX_INPUT_BYTES {
            return Err(too_large(&format!("line {n}")));
        }
        match String::from_utf8(bytes) {
            Ok(line) => return Ok(Some(line)),
            Err(_) => note(&format!("line {n} is not UTF-8 and was skipped")),
        }
    }
}
