//! Paths in messages: on one line, whatever is in their names.

use std::fmt::{self, Write};
use std::path::Path;

/// A path to show to people: control characters are escaped, so that a line stays a line and a terminal obeys nobody.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(&'a Path);

/// Paths as messages have them.
pub trait ShowPath {
    /// The path to show. To open it again, or for a program to read, take [`Path::display`].
    fn shown(&self) -> Shown<'_>;
}

impl<P: AsRef<Path> + ?Sized> ShowPath for P {
    fn shown(&self) -> Shown<'_> {
        Shown(self.as_ref())
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.to_string_lossy().chars() {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
