//! `cargo xtask deps`: what the lockfile brings may be given away, comes from one registry, and is named in the notices.
//!
//! Licences and sources are judged here, from deny.toml and `cargo metadata`, because that needs no tool. Known advisories need the
//! database of cargo-deny: where it is at hand, it is asked; where it is not, the output says so and the workflow asks it.

mod spdx;

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use crate::metadata::Metadata;
use crate::notices;
use crate::process::{is_there, must, root};

/// Packages in a lockfile that one can still read: 291 when this was written, half of them for tests, benches and other systems.
/// Encrypted connections brought 45 of them, the server 22, grammars 5. The page's conversations brought 6 with SQLite, two of which look for
/// a library of the system and are not part of the binary: a file format of our own that survives a power cut would be more to read.
/// Archives brought 2 with deflate; what is around it, tape archives, zip and Debian's packages, is a page each of our own. Completions brought 1.
/// The text of attached PDF files brought 26 with lopdf: they are encrypted and compressed in ways of their own, and whoever reads them needs those.
const MAX_PACKAGES: usize = 291;

/// What is allowed.
struct Policy {
    licences: Vec<String>,
    registries: Vec<String>,
}

/// Runs the checks.
pub fn run() -> anyhow::Result<ExitCode> {
    let policy =
        Policy::parse(&fs::read_to_string(root()?.join("deny.toml")).context("deny.toml")?)?;
    let metadata = Metadata::of_all()?;
    let mut found = judge(&metadata, &policy);
    found.extend(too_many(metadata.packages().len()));
    found.iter().for_each(|line| println!("{line}"));
    ensure!(found.is_empty(), "{} findings", found.len());
    println!(
        "{} packages: licences and sources as deny.toml lists them",
        metadata.packages().len()
    );
    notices::check(&metadata)?;
    advisories()?;
    Ok(ExitCode::SUCCESS)
}

impl Policy {
    /// Reads the two lists; the rest of the file is cargo-deny's.
    fn parse(text: &str) -> anyhow::Result<Policy> {
        let policy = Policy {
            licences: list(text, "allow")?,
            registries: list(text, "allow-registry")?,
        };
        ensure!(
            !policy.licences.is_empty() && !policy.registries.is_empty(),
            "deny.toml has an empty list"
        );
        Ok(policy)
    }
}

/// The strings of `key = [` to `]`, one a line.
fn list(text: &str, key: &str) -> anyhow::Result<Vec<String>> {
    let begin = format!("{key} = [");
    let mut lines = text
        .lines()
        .skip_while(|line| *line != begin)
        .skip(1)
        .peekable();
    ensure!(lines.peek().is_some(), "deny.toml has no list `{key}`");
    let items = lines.take_while(|line| *line != "]").map(|line| {
        let quoted = line
            .trim()
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix("\","));
        quoted
            .map(str::to_owned)
            .with_context(|| format!("deny.toml, `{key}`: {line}"))
    });
    items.collect()
}

fn too_many(n: usize) -> Option<String> {
    (n > MAX_PACKAGES).then(|| {
        format!("{n} packages, and {MAX_PACKAGES} are the limit: do with less, or argue for more")
    })
}

/// Everything that the policy does not allow.
fn judge(metadata: &Metadata, policy: &Policy) -> Vec<String> {
    let mut found = Vec::new();
    for package in metadata.packages() {
        let name = format!("{} {}", package.name(), package.version());
        match package
            .license()
            .map(|text| (text, spdx::is_met(text, &policy.licences)))
        {
            Some((_, Ok(true))) => {}
            Some((text, Ok(false))) => found.push(format!(
                "{name}: the licence {text} is not in the list of deny.toml"
            )),
            Some((_, Err(error))) => found.push(format!("{name}: its licence: {error}")),
            None => found.push(format!("{name} names no licence")),
        }
        let is_allowed = |source: &str| {
            source
                .strip_prefix("registry+")
                .is_some_and(|url| policy.registries.iter().any(|r| r == url))
        };
        if let Some(source) = package.source().filter(|source| !is_allowed(source)) {
            found.push(format!("{name} comes from {source}"));
        }
        // A folder has no source, and only ours may be folders.
        if package.source().is_none() && !package.is_ours() {
            found.push(format!("{name} is a folder that is not a room"));
        }
    }
    found
}

fn advisories() -> anyhow::Result<()> {
    if !is_there("cargo-deny", &["--version"]) {
        println!(
            "Not checked here: known advisories, because cargo-deny is not installed; the workflow checks them."
        );
        return Ok(());
    }
    let fetch = Command::new("cargo-deny")
        .args(["fetch", "db"])
        .current_dir(root()?)
        .output();
    if !fetch.is_ok_and(|output| output.status.success()) {
        println!(
            "Not checked here: known advisories, because their database cannot be fetched; the workflow checks them."
        );
        return Ok(());
    }
    must(
        Command::new("cargo-deny")
            .args(["check", "advisories"])
            .current_dir(root()?),
    )
}

#[cfg(test)]
mod tests;
