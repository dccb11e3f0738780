//! Standard output and standard error, neither of which may bring the program down.
//!
//! Data goes to standard output; when its reader goes away, that is an error which ends the program quietly. Everything else goes
//! to standard error, and nobody minds if that is closed.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::Context;
use ouzel_storage::ShowPath;
use serde::Serialize;

use crate::exit::{CliError, usage};

/// The largest input that is read, be it a file, standard input or a line of a conversation: far more than any context holds, and
/// little enough to keep in memory.
pub const MAX_INPUT_BYTES: u64 = 64 << 20;

/// Writes text to standard output and hands it on at once.
pub fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(written.map_err(output_error)?)
}

/// Prints help or the version, which clap has laid out for the terminal at hand.
pub fn write_help(help: &clap::Error) -> anyhow::Result<()> {
    let written = help.print().and_then(|()| io::stdout().flush());
    Ok(written.map_err(output_error)?)
}

fn output_error(error: io::Error) -> CliError {
    match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::ClosedPipe,
        _ => CliError::Output(error),
    }
}

/// Writes a JSON value and a newline to standard output.
pub fn write_json(value: &impl Serialize) -> anyhow::Result<()> {
    write(&(serde_json::to_string(value)? + "\n"))
}

/// One line on standard error.
pub fn note(text: &str) {
    note_raw(&format!("ouzel: {text}\n"));
}

/// Where what is said is written down as well.
static LOG: OnceLock<File> = OnceLock::new();

/// From now on what is said goes to a log as well, with the time; a second log is none.
pub fn log_to(file: File) {
    let _ = LOG.set(file);
}

/// Lines for the log alone, where there is one.
pub fn log(text: &str) {
    if let Some(mut file) = LOG.get() {
        let line = format!("{} {text}", httpdate::fmt_http_date(SystemTime::now()));
        // A full disk is no reason to end.
        let _ = file.write_all(line.as_bytes());
    }
}

/// Text on standard error as it stands.
pub fn note_raw(text: &str) {
    log(text);
    let mut err = io::stderr().lock();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}

/// Whether standard error shows dimmed text as such.
pub fn can_dim() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// The bytes of a file that was named on the command line, where `-` is standard input; at most [`MAX_INPUT_BYTES`].
pub fn read_input(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut read = |input: &mut dyn Read| input.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes);
    if path == Path::new("-") {
        read(&mut io::stdin()).context("standard input")?;
    } else {
        File::open(path)
            .and_then(|mut file| read(&mut file))
            .map_err(|error| usage(format!("{}: {error}", path.shown())))?;
    }
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(too_large(&input_name(path)));
    }
    Ok(bytes)
}

/// Refuses an input, by its name, that does not end in time.
pub fn too_large(name: &str) -> anyhow::Error {
    usage(format!(
        "{name}: larger than {} MiB, the limit of inputs; give less",
        MAX_INPUT_BYTES >> 20
    ))
}

/// How an input is called in messages.
pub fn input_name(path: &Path) -> String {
    if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.shown().to_string()
    }
}

/// The text of an input, or where it stops being one.
pub fn utf8(bytes: Vec<u8>, name: &str) -> anyhow::Result<String> {
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        usage(format!("{name}: byte {at} is not UTF-8; give UTF-8 text"))
    })
}
