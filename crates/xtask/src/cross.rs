//! `cargo xtask cross`: the rooms type-check for the systems that this one is not.
//!
//! A type-check needs the target's standard library and nothing else, as long as no crate compiles C for it. It proves that the
//! code of another system compiles; that it works is for the workflow to show, on that system.

use std::process::{Command, ExitCode};

use anyhow::ensure;

use crate::process::{cargo, is_there, output, status};

/// The systems that are promised.
const TARGETS: &[&str] = &[
    "x86_64-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "aarch64-apple-darwin",
    "x86_64-pc-windows-msvc",
];

/// Everything that ships.
const ROOMS: &[&str] = &[
    "ouzel-format",
    "ouzel-storage",
    "ouzel-kernels",
    "ouzel-tokenizer",
    "ouzel-engine",
    "ouzel-install",
    "ouzel",
    "ouzel-chats",
    "ouzel-cli",
];

/// Checks each target whose standard library is there or can be fetched.
pub fn run() -> anyhow::Result<ExitCode> {
    let (mut failed, mut skipped) = (Vec::new(), Vec::new());
    for target in TARGETS {
        if let Err(why) = standard_library(target) {
            skipped.push(format!("{target}: {why}"));
            continue;
        }
        let mut command = cargo(&["check", "--locked", "--target", target])?;
        // SQLite is C, for which there is no compiler here; a type-check links nothing, so that a library is named is enough.
        command.env("LIBSQLITE3_SYS_USE_PKG_CONFIG", "1");
        command.env("SQLITE3_LIB_DIR", "nowhere");
        if !status(command.args(ROOMS.iter().flat_map(|room| ["--package", room])))?.success() {
            failed.push(*target);
        }
    }
    skipped.iter().for_each(|line| println!("Skipped {line}"));
    ensure!(failed.is_empty(), "no type-check for {}", failed.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Makes sure that the toolchain has a target's standard library.
///
/// # Errors
/// If it is missing and rustup cannot bring it.
pub fn standard_library(target: &str) -> Result<(), String> {
    if is_installed(target) || is_there("rustup", &["target", "add", target]) {
        return Ok(());
    }
    Err(format!(
        "its standard library is missing and `rustup target add {target}` brings none"
    ))
}

fn is_installed(target: &str) -> bool {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let Ok(dir) = output(rustc.args(["--print", "target-libdir", "--target", target])) else {
        return false;
    };
    // rustc names the folder whether or not it is there.
    std::fs::read_dir(String::from_utf8_lossy(&dir).trim())
        .is_ok_and(|mut entries| entries.next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_installed_and_nonsense_is_not() {
        assert!(TARGETS.iter().any(|target| is_installed(target)));
        assert!(!is_installed("pdp11-unknown-none"));
    }
}
