//! Standard output and standard error, neither of which may bring the program down.
//!
//! Data goes to standard output; when its reader goes away, that is an error which ends the program quietly. Everything else goes
//! to standard error, and nobody minds if that is closed.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;
use ouzel_storage::StorageError;
use serde::Serialize;

use crate::exit::{CliError, usage};

/// Writes text to standard output and hands it on at once.
pub fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => CliError::ClosedPipe.into(),
            _ => anyhow::Error::new(error).context("standard output"),
        })
}

/// Writes a JSON value and a newline to standard output.
pub fn write_json(value: &impl Serialize) -> anyhow::Result<()> {
    write(&(serde_json::to_string(value)? + "\n"))
}

/// One line on standard error.
pub fn note(text: &str) {
    note_raw(&format!("ouzel: {text}\n"));
}

/// Text on standard error as it stands.
pub fn note_raw(text: &str) {
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Whether standard error shows dimmed text as such.
pub fn can_dim() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The bytes of a file that was named on the command line, where `-` is standard input.
pub fn read_input(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin()
            .read_to_end(&mut bytes)
            .context("standard input")?;
        return Ok(bytes);
    }
    File::open(path)
        .and_then(|mut file| file.read_to_end(&mut bytes))
        .map_err(|error| usage(format!("{}: {error}", path.display())))?;
    Ok(bytes)
}

/// How an input is called in messages.
pub fn input_name(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    }
}

/// The text of an input, or where it stops being one.
pub fn utf8(bytes: Vec<u8>, name: &str) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        usage(format!("{name}: byte {at} is not UTF-8; give UTF-8 text"))
    })
}

/// A file that is written under another name and renamed when it is complete: half of it would be of no use to anyone.
pub struct NewFile {
    file: BufWriter<File>,
    path: PathBuf,
    partial: PathBuf,
    is_complete: bool,
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_complete {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

impl NewFile {
    /// Begins the file at `path`, which stays as it is until [`NewFile::finish`].
    pub fn create(path: &Path) -> anyhow::Result<NewFile> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let file = File::create(&partial)
            .map_err(|source| StorageError::io("creating", &partial, source))?;
        Ok(NewFile {
            file: BufWriter::with_capacity(1 << 20, file),
            path: path.to_owned(),
            partial,
            is_complete: false,
        })
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        let result = self.file.write_all(bytes);
        result.map_err(|source| StorageError::io("writing", &self.partial, source).into())
    }

    /// Makes the file durable and gives it its name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let flushed = self
            .file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all());
        flushed.map_err(|source| StorageError::io("writing", &self.partial, source))?;
        fs::rename(&self.partial, &self.path)
            .map_err(|source| StorageError::io("renaming", &self.partial, source))?;
        self.is_complete = true;
        Ok(())
    }
}
