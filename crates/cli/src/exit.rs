//! Errors to exit codes and to the one line that people read. `args.rs` lists the codes for `--help`.

use std::fmt;

use ouzel::{EngineError, Error, TextError};
use ouzel_install::InstallError;
use ouzel_server::ServeError;
use ouzel_storage::StorageError;

pub const FAILURE: u8 = 1;
pub const USAGE: u8 = 2;
pub const MODEL: u8 = 3;
pub const RESOURCES: u8 = 4;
pub const IO: u8 = 5;
pub const INTERRUPTED: u8 = 130;

/// What only the command line can find wrong.
#[derive(Debug)]
pub enum CliError {
    /// The command line or its input.
    Usage(String),
    /// There is no such model.
    NoModel(String),
    /// Another process of this program, which probed the machine, failed: its exit code and what it said.
    Probe { code: Option<u8>, line: String },
    /// Another process uses what this one wants.
    Busy(String),
    /// Ctrl-C.
    Interrupted,
    /// The reader of standard output went away.
    ClosedPipe,
    /// Standard output cannot be written.
    Output(std::io::Error),
    /// Everything was said when it happened; this is the exit code that is left of it.
    Told(u8),
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CliError::Usage(text) | CliError::NoModel(text) | CliError::Busy(text) => {
                f.write_str(text)
            }
            CliError::Probe { line, .. } => write!(f, "the probe failed: {line}"),
            CliError::Interrupted => f.write_str("interrupted"),
            CliError::ClosedPipe => f.write_str("the reader of the output went away"),
            CliError::Output(error) => write!(f, "standard output: {error}"),
            CliError::Told(_) => f.write_str("something failed before"),
        }
    }
}

impl std::error::Error for CliError {}

/// An error about the command line or its input.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    CliError::Usage(text.into()).into()
}

/// The exit code of an error: of the first of its causes that says something.
pub fn code(error: &anyhow::Error) -> u8 {
    error.chain().find_map(code_of).unwrap_or(FAILURE)
}

fn code_of(error: &(dyn std::error::Error + 'static)) -> Option<u8> {
    let cli = || error.downcast_ref().map(cli_code);
    let library = || error.downcast_ref().map(library_code);
    let install = || error.downcast_ref().map(install_code);
    let serve = || error.downcast_ref().map(serve_code);
    let storage = || error.downcast_ref().map(storage_code);
    let io = || error.downcast_ref::<std::io::Error>().map(|_| IO);
    cli()
        .or_else(library)
        .or_else(install)
        .or_else(serve)
        .or_else(storage)
        .or_else(io)
}

fn cli_code(error: &CliError) -> u8 {
    match error {
        CliError::Usage(_) => USAGE,
        CliError::NoModel(_) => MODEL,
        CliError::Busy(_) => IO,
        CliError::Probe { code, .. } => code.unwrap_or(FAILURE),
        CliError::Interrupted => INTERRUPTED,
        CliError::ClosedPipe => 0,
        CliError::Output(_) => IO,
        CliError::Told(code) => *code,
    }
}

fn library_code(error: &Error) -> u8 {
    match error {
        Error::Engine(error) => engine_code(error),
        Error::Text(error) => match **error {
            TextError::Unreadable { .. } => IO,
            _ => MODEL,
        },
        Error::Constraint(_) => FAILURE,
        Error::Conversation(_) | Error::EmptyPrompt | Error::ContextFull { .. } => USAGE,
    }
}

fn engine_code(error: &EngineError) -> u8 {
    match error {
        EngineError::NotAModel { .. }
        | EngineError::Format { .. }
        | EngineError::Damaged { .. }
        | EngineError::Tensor { .. }
        | EngineError::Checksum { .. }
        | EngineError::Unsupported { .. } => MODEL,
        EngineError::Budget { .. } | EngineError::System { .. } => RESOURCES,
        EngineError::Option { .. }
        | EngineError::ContextFull { .. }
        | EngineError::UnknownToken { .. } => USAGE,
        EngineError::Cancelled => INTERRUPTED,
        EngineError::Storage(error) => storage_code(error),
    }
}

fn install_code(error: &InstallError) -> u8 {
    match error {
        InstallError::NotACheckpoint { .. }
        | InstallError::Format { .. }
        | InstallError::Tensor { .. }
        | InstallError::NotAModel { .. }
        | InstallError::Broken { .. }
        | InstallError::Damaged { .. } => MODEL,
        InstallError::Exists { .. }
        | InstallError::InTheWay { .. }
        | InstallError::OtherCheckpoint { .. }
        | InstallError::Address { .. } => USAGE,
        InstallError::NoRoom { .. } => RESOURCES,
        InstallError::Source { .. }
        | InstallError::Unkept { .. }
        | InstallError::Refused { .. }
        | InstallError::Unreachable { .. }
        | InstallError::Network { .. }
        | InstallError::Foreign { .. } => IO,
        InstallError::Paused => INTERRUPTED,
        InstallError::Storage(error) => storage_code(error),
    }
}

fn serve_code(error: &ServeError) -> u8 {
    match error {
        ServeError::NeedsKey(_) => USAGE,
        ServeError::Listen { .. } | ServeError::Threads(_) => IO,
        ServeError::Load(_) => MODEL,
        ServeError::Forced => INTERRUPTED,
    }
}

fn storage_code(error: &StorageError) -> u8 {
    match error {
        StorageError::Io { .. } | StorageError::Read { .. } | StorageError::Locked { .. } => IO,
        StorageError::NoSpace { .. } | StorageError::NoMemory { .. } => RESOURCES,
        StorageError::Truncated { .. } => MODEL,
    }
}

/// What to print about an error, in one line; nothing about a closed pipe or Ctrl-C, which whoever caused them knows of, nor about
/// what was told before.
pub fn line(error: &anyhow::Error) -> Option<String> {
    match error.downcast_ref() {
        Some(CliError::ClosedPipe | CliError::Interrupted | CliError::Told(_)) => None,
        _ => Some(full(error)),
    }
}

/// An error and its causes in one line, each said once.
pub fn full(error: &anyhow::Error) -> String {
    one_line(&causes(error))
}

/// The same for whoever asked and waits for a sentence.
pub fn sentence(error: &anyhow::Error) -> String {
    line(error).unwrap_or_else(|| error.to_string())
}

/// An error and its causes. Those of our rooms tell their cause themselves: what was said is not said again.
fn causes(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |said, cause| {
        let text = cause.to_string();
        match said.as_str() {
            "" => text,
            _ if said.contains(&text) => said,
            _ => format!("{said}: {text}"),
        }
    })
}

/// clap's message without its decoration: what was wrong, what would be right, where to read on.
pub fn usage_line(message: &str) -> String {
    let end = message
        .find("\nUsage:")
        .or_else(|| message.find("\nFor more information"));
    let text = one_line(message[..end.unwrap_or(message.len())].trim_start_matches("error: "));
    format!("{text}; --help says more")
}

fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.fold(String::new(), |mut all, line| {
        if !all.is_empty() {
            // A line that announces others ends in a colon.
            all.push_str(if all.ends_with([':', ';', ',']) {
                " "
            } else {
                "; "
            });
        }
        all.push_str(line);
        all
    })
}

#[cfg(test)]
mod tests;
