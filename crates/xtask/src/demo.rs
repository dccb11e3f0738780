//! `cargo xtask demo-check`: the README's first command gives the bytes that the repository records.
//!
//! It runs twice, each time as a new user with empty folders: literally as the README has it, and as an installed binary that is
//! started in a folder outside the repository. The other stream has to name the bundled model and to end with one statistics line.

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, bail, ensure};

use crate::process::{cargo, must, root};
use crate::readme;

/// What the demo command must print.
const ANSWER: &str = "testdata/demo/readme-answer.txt";

/// How standard error names the bundled model, and what it says brings the real one.
const NAME: &str = "bundled 47M dictionary model";
const ADVICE: &str = "ouzel install";

/// Runs the check.
pub fn run() -> anyhow::Result<ExitCode> {
    let root = root()?;
    let words =
        readme::demo_command(&fs::read_to_string(root.join("README.md")).context("README.md")?)?;
    let expected = fs::read(root.join(ANSWER)).context(ANSWER)?;
    ensure!(!expected.is_empty(), "{ANSWER} is empty");
    must(&mut cargo(&["build", "--release"])?)?;
    let binary = target_dir(&root)?
        .join("release")
        .join(format!("ouzel{EXE_SUFFIX}"));

    let cargo_args: Vec<&str> = words.iter().skip(1).map(String::as_str).collect();
    let ouzel_args: Vec<&str> = words
        .iter()
        .skip_while(|word| *word != "--")
        .skip(1)
        .map(String::as_str)
        .collect();
    ensure!(!ouzel_args.is_empty(), "the demo command has no `--`");
    let home = TempDir::new("literal")?;
    check(
        "the README's command",
        cargo(&cargo_args)?,
        &home,
        &expected,
    )?;
    let home = TempDir::new("elsewhere")?;
    let mut command = Command::new(&binary);
    command.args(&ouzel_args).current_dir(&home.0);
    check(
        "the binary, started in another folder",
        command,
        &home,
        &expected,
    )?;
    Ok(ExitCode::SUCCESS)
}

fn check(what: &str, mut command: Command, home: &TempDir, expected: &[u8]) -> anyhow::Result<()> {
    println!("{what}:");
    let started = Instant::now();
    command
        .stdin(Stdio::null())
        .env("OUZEL_MODELS", home.0.join("models"))
        .env("OUZEL_CACHE", home.0.join("cache"));
    let output = command
        .output()
        .with_context(|| format!("{what}: cannot start {:?}", command.get_program()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().for_each(|line| println!("  | {line}"));
    ensure!(output.status.success(), "{what}: {}", output.status);
    compare(&output.stdout, expected)
        .and_then(|()| notes(&said))
        .with_context(|| what.to_owned())?;
    println!(
        "  {} bytes as recorded, {:.1} s",
        expected.len(),
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

/// What standard error has to say: which model this is, and one statistics line as the last one.
fn notes(said: &str) -> anyhow::Result<()> {
    ensure!(
        said.contains(NAME) && said.contains(ADVICE),
        "standard error does not say that this is the {NAME}: {said:?}"
    );
    let is_statistics = |line: &&str| line.contains("prompt tokens") && line.contains("tokens/s");
    let n = said.lines().filter(is_statistics).count();
    ensure!(
        n == 1,
        "standard error has {n} statistics lines instead of one: {said:?}"
    );
    ensure!(
        said.lines().last().as_ref().is_some_and(is_statistics),
        "the statistics line is not the last one: {said:?}"
    );
    Ok(())
}

/// Bytes against bytes, with the place where they part.
fn compare(actual: &[u8], expected: &[u8]) -> anyhow::Result<()> {
    if actual == expected {
        return Ok(());
    }
    let at = actual
        .iter()
        .zip(expected)
        .take_while(|(a, b)| a == b)
        .count();
    let (actual, expected) = (
        String::from_utf8_lossy(actual),
        String::from_utf8_lossy(expected),
    );
    bail!("standard output differs from {ANSWER} at byte {at}: {actual:?} instead of {expected:?}")
}

fn target_dir(root: &Path) -> anyhow::Result<PathBuf> {
    // Where cargo puts its output may come from a variable or from a configuration file; it knows.
    let metadata = crate::metadata::Metadata::of_members()?;
    Ok(root.join(metadata.target_dir()?))
}

/// A folder that is removed at the end.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> anyhow::Result<TempDir> {
        let dir = std::env::temp_dir().join(format!("ouzel-demo-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(TempDir(dir))
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        // What stays behind lies in a folder that is emptied anyway.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_byte_or_another_length_is_refused() {
        assert!(compare(b"A thrush.\n", b"A thrush.\n").is_ok());
        for (bad, at) in [
            ("A thrusk.\n", "byte 7"),
            ("A thrush.", "byte 9"),
            ("A thrush.\n\n", "byte 10"),
            ("", "byte 0"),
        ] {
            let error = compare(bad.as_bytes(), b"A thrush.\n")
                .unwrap_err()
                .to_string();
            assert!(error.contains(at), "{bad:?}: {error}");
        }
    }

    #[test]
    fn a_silent_or_a_wordy_standard_error_is_refused() {
        let note = "ouzel: this is the bundled 47M dictionary model; `ouzel install` brings the real one\n";
        let stats = "9 prompt tokens, 12 new; the model ended; decode 80.0 tokens/s\n";
        assert!(notes(&format!("{note}{stats}")).is_ok());
        for bad in [
            note.to_owned(),
            stats.to_owned(),
            format!("{note}{stats}{stats}"),
            format!("{stats}{note}"),
        ] {
            assert!(notes(&bad).is_err(), "{bad}");
        }
    }
}
