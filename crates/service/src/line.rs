//! Lines of JSON, of a bounded length.

use std::io::{self, BufRead, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The longest line: four times the largest body that the server takes, because JSON in a string may double, and a prompt of ids comes with it.
pub const MAX_LINE_BYTES: usize = 64 << 20;

/// Why there is no next message.
#[derive(Debug, Error)]
pub enum LineError {
    /// The pipe is closed or broken.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What came is longer than any message.
    #[error("a line has more than {0} bytes")]
    TooLong(usize),
    /// The last line has no end: its writer is gone.
    #[error("a line broke off")]
    BrokeOff,
    /// What came is no message. What it was is not said: it may be private.
    #[error("a line is no message, column {column}: {category}")]
    Garbage {
        /// Where it stops being one.
        column: usize,
        /// In which way.
        category: &'static str,
    },
}

/// Reads messages.
pub struct Lines<R> {
    from: R,
    line: Vec<u8>,
    max_bytes: usize,
}

impl<R: BufRead> Lines<R> {
    /// Messages from here on.
    pub fn new(from: R) -> Lines<R> {
        Lines::at_most(from, MAX_LINE_BYTES)
    }

    /// The same with another limit, without the line's end.
    pub fn at_most(from: R, max_bytes: usize) -> Lines<R> {
        Lines {
            from,
            line: Vec::new(),
            max_bytes,
        }
    }

    /// The next message; `None` at the end.
    ///
    /// # Errors
    /// All of [`LineError`], after which there is nothing to be read.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<Option<T>, LineError> {
        self.line.clear();
        // A prompt that was long is not held until the next one.
        self.line.shrink_to(1 << 16);
        let limit = self.max_bytes as u64 + 1;
        self.from
            .by_ref()
            .take(limit)
            .read_until(b'\n', &mut self.line)?;
        match self.line.pop() {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) if self.line.len() >= self.max_bytes => {
                return Err(LineError::TooLong(self.max_bytes));
            }
            Some(_) => return Err(LineError::BrokeOff),
        }
        let message = serde_json::from_slice(&self.line);
        message.map(Some).map_err(|error| LineError::Garbage {
            column: error.column(),
            category: match error.classify() {
                serde_json::error::Category::Data => "not one that is known",
                _ => "not JSON",
            },
        })
    }

    /// Reads all that is left and looks at nothing of it.
    pub fn skip_all(&mut self) {
        // A pipe that breaks has ended, too.
        let _ = io::copy(&mut self.from, &mut io::sink());
    }
}

/// Appends a message and its line's end.
///
/// # Errors
/// [`LineError::TooLong`], with which nothing was written, and [`LineError::Io`].
pub fn write(message: &impl Serialize, to: &mut impl Write) -> Result<(), LineError> {
    let mut line = serde_json::to_vec(message).map_err(io::Error::from)?;
    if line.len() > MAX_LINE_BYTES {
        return Err(LineError::TooLong(MAX_LINE_BYTES));
    }
    line.push(b'\n');
    Ok(to.write_all(&line)?)
}
