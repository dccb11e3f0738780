//! `cargo xtask style`: what CONTRIBUTING.md promises and a compiler does not check.
//!
//! Each check is a function of one file's path and text that returns what is wrong; this file reads the files that git knows and
//! adds up the findings. Words that are refused are put together here from halves, so that this room passes its own check.

mod code;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use crate::metadata::Metadata;
use crate::process::{output, root};
use crate::rooms;
use code::Kind;

/// A file that is longer has two subjects.
const MAX_FILE_LINES: usize = 700;

/// A function that is longer has two ideas.
const MAX_FUNCTION_LINES: usize = 70;

/// What a newcomer has to download, in bytes of the files that git knows.
const MAX_REPOSITORY_BYTES: u64 = 80_000_000;

/// Text files that are longer are data, which no one wrote by hand.
const MAX_TEXT_BYTES: u64 = 512 * 1024;

/// Marks of unfinished work, anywhere.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Code that is not there, or does not run, in Rust.
const ABSENT: &[&str] = &[
    concat!("to", "do!"),
    concat!("unimpl", "emented!"),
    concat!("#[ig", "nore"),
];

/// What only `format/names.rs` says: parts of the names that Hugging Face gives to tensors.
const TENSOR_NAMES: &[&str] = &[
    concat!("self_", "attn."),
    concat!("mlp.", "gate_proj"),
    concat!("mlp.", "up_proj"),
    concat!("mlp.", "down_proj"),
    concat!("switch_", "glu"),
    concat!("input_", "layernorm"),
    concat!("_feedforward_", "layernorm"),
    concat!("language_", "model.model"),
    concat!("router.", "per_expert_scale"),
];

/// Rooms that may hold unsafe code.
const UNSAFE_ROOMS: &[&str] = &["crates/storage/", "crates/kernels/"];

/// What a room must never know, by its code alone: `println!` and the like, the environment, files, the network, threads.
const WALLS: &[(&str, &[&str])] = &[
    (
        "format",
        &[PRINT, DEBUG, ENVIRONMENT, FILES, NETWORK, THREADS],
    ),
    ("storage", &[PRINT, DEBUG, ENVIRONMENT, NETWORK]),
    ("install", &[PRINT, DEBUG, ENVIRONMENT, NETWORK]),
    (
        "tokenizer",
        &[PRINT, DEBUG, ENVIRONMENT, FILES, NETWORK, THREADS],
    ),
    (
        "kernels",
        &[PRINT, DEBUG, ENVIRONMENT, FILES, NETWORK, THREADS],
    ),
    ("engine", &[PRINT, DEBUG, ENVIRONMENT, NETWORK]),
    ("ouzel", &[PRINT, DEBUG, ENVIRONMENT, NETWORK]),
    (
        "chats",
        &[PRINT, DEBUG, ENVIRONMENT, FILES, NETWORK, THREADS],
    ),
    ("service", &[PRINT, DEBUG, ENVIRONMENT, FILES, NETWORK]),
    ("server", &[PRINT, DEBUG, ENVIRONMENT, FILES]),
    ("oracle", &[PRINT, DEBUG, ENVIRONMENT, NETWORK, THREADS]),
    ("cli", &[DEBUG, NETWORK]),
];
/// `print!`, `println!`, `eprint!`, `eprintln!`.
const PRINT: &str = "print";
const DEBUG: &str = "dbg!";
const ENVIRONMENT: &str = "env::";
const FILES: &str = "fs::";
const NETWORK: &str = "net::";
const THREADS: &str = "thread::";
/// The one file of its room that starts threads: lending them a borrowed closure needs unsafe code, which may live nowhere else.
const POOL: &str = "crates/kernels/src/pool.rs";

/// The one place from which connections go out.
const WAY_OUT: &str = "crates/install/src/hub";

/// Paths outside the repository, which a clone does not have.
const OUTSIDE: &[&str] = &[
    concat!("../", "shared"),
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/"),
];

/// Runs all checks over the files that git knows.
pub fn run() -> anyhow::Result<ExitCode> {
    let root = root()?;
    let mut found = rooms::check(&Metadata::of_members()?);
    let list = output(
        Command::new("git")
            .args(["ls-files", "-z"])
            .current_dir(&root),
    )?;
    let list = String::from_utf8(list).context("a file name is not UTF-8")?;
    let (mut bytes, mut n_files) = (0, 0);
    for path in list.split_terminator('\0') {
        // A file that was removed and is not committed yet has nothing to check.
        let Ok(metadata) = root.join(path).metadata() else {
            continue;
        };
        bytes += metadata.len();
        n_files += 1;
        found.extend(check_file(&root, path, metadata.len())?);
    }
    found.extend(repository_size(bytes));
    found.iter().for_each(|line| println!("{line}"));
    ensure!(found.is_empty(), "{} findings", found.len());
    println!(
        "{n_files} files, {:.1} MB: nothing found",
        bytes as f64 / 1e6
    );
    Ok(ExitCode::SUCCESS)
}

fn check_file(root: &Path, path: &str, bytes: u64) -> anyhow::Result<Vec<String>> {
    if bytes > MAX_TEXT_BYTES {
        return Ok(Vec::new());
    }
    let content = std::fs::read(root.join(path)).with_context(|| path.to_owned())?;
    // What is not text is data.
    Ok(String::from_utf8(content).map_or_else(|_| Vec::new(), |text| check_text(path, &text)))
}

/// Everything that is wrong with one file.
fn check_text(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |line: usize, what: String| found.push(format!("{path}:{line}: {what}"));
    // The words of a language or of a model are its own.
    let is_data =
        path.starts_with("testdata/") && !path.ends_with(".md") || path.starts_with("models/");
    for (number, line) in numbered(text) {
        for word in OUTSIDE.iter().filter(|word| mentions_path(line, word)) {
            say(number, format!("{word} is not part of the repository"));
        }
        for word in UNFINISHED
            .iter()
            .filter(|word| !is_data && code::has_word(line, word))
        {
            say(number, format!("{word}: finish it or leave it out"));
        }
    }
    if path.ends_with(".rs") {
        rust(path, text, &mut say);
    }
    found
}

fn rust(path: &str, text: &str, say: &mut impl FnMut(usize, String)) {
    if !text.starts_with("//!") && !is_test(path) {
        say(
            1,
            "a file opens with what it owns and what it refuses (`//!`)".to_owned(),
        );
    }
    let n_lines = text.lines().count();
    if n_lines > MAX_FILE_LINES {
        say(
            n_lines,
            format!("{n_lines} lines, and {MAX_FILE_LINES} are the limit"),
        );
    }
    let masked = code::only(Kind::Code, text);
    for (name, line, length) in code::functions(&masked) {
        if length > MAX_FUNCTION_LINES {
            say(
                line,
                format!("{name} has {length} lines, and {MAX_FUNCTION_LINES} are the limit"),
            );
        }
    }
    let is_unsafe_room = UNSAFE_ROOMS.iter().any(|room| path.starts_with(room));
    for (number, line) in numbered(&masked) {
        for word in ABSENT.iter().filter(|word| line.contains(*word)) {
            say(
                number,
                format!("{word}: nothing is left for later, and nothing is skipped silently"),
            );
        }
        if !is_unsafe_room && code::has_word(line, concat!("un", "safe")) {
            say(
                number,
                "unsafe code belongs into the rooms storage and kernels".to_owned(),
            );
        }
    }
    if !is_test(path) {
        shipped(path, text, &masked, say);
    }
}

/// What ships of a file: the walls of its room, and who may name tensors. Its tests may do as they like.
fn shipped(path: &str, text: &str, masked: &str, say: &mut impl FnMut(usize, String)) {
    let n_lines = masked.find("#[cfg(test)]\nmod tests {");
    let n_lines = masked[..n_lines.unwrap_or(masked.len())].lines().count();
    let in_room = |room: &str| path.starts_with(&format!("crates/{room}/src/"));
    for (room, forbidden) in WALLS.iter().filter(|(room, _)| in_room(room)) {
        for (number, line) in numbered(masked).take(n_lines) {
            let is_allowed = |word: &str| {
                word == THREADS && path == POOL || word == NETWORK && path.starts_with(WAY_OUT)
            };
            for word in forbidden
                .iter()
                .filter(|word| crosses(line, word) && !is_allowed(word))
            {
                say(number, format!("{word}: {room} must not know of it"));
            }
        }
    }
    if path == "crates/format/src/names.rs" || path.starts_with("crates/oracle/") {
        return;
    }
    for (number, line) in numbered(&code::only(Kind::Literal, text)).take(n_lines) {
        for word in TENSOR_NAMES.iter().filter(|word| line.contains(*word)) {
            say(
                number,
                format!("{word}: tensors are named in crates/format/src/names.rs"),
            );
        }
    }
}

fn crosses(line: &str, word: &str) -> bool {
    if word == PRINT {
        return ["print!", "println!", "eprint!", "eprintln!"]
            .iter()
            .any(|word| code::begins_word(line, word));
    }
    code::begins_word(line, word)
}

fn repository_size(bytes: u64) -> Option<String> {
    let limit = MAX_REPOSITORY_BYTES;
    (bytes > limit).then(|| format!("the repository has {bytes} bytes, and {limit} are the limit"))
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Whether a line names a path that begins with `word`; a path that only contains it is another one.
fn mentions_path(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || "._-}".contains(c);
    line.match_indices(word)
        .any(|(at, _)| word.starts_with('.') || !line[..at].ends_with(is_part))
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
}

#[cfg(test)]
mod tests;
