//! The walls: which room may import which, and which outside crates belong to one room alone.
//!
//! The table is the one of ARCHITECTURE.md. Tests may import more, because an oracle or an installer judges what it does not belong
//! to; a test of what ships may still not import the tools.

use crate::metadata::{Metadata, Package};

/// A room, and the rooms that it may import.
const ROOMS: &[(&str, &[&str])] = &[
    ("ouzel-format", &[]),
    ("ouzel-storage", &[]),
    ("ouzel-install", &["ouzel-format", "ouzel-storage"]),
    ("ouzel-tokenizer", &[]),
    ("ouzel-kernels", &[]),
    (
        "ouzel-engine",
        &["ouzel-format", "ouzel-storage", "ouzel-kernels"],
    ),
    (
        "ouzel",
        &[
            "ouzel-engine",
            "ouzel-tokenizer",
            "ouzel-format",
            "ouzel-storage",
        ],
    ),
    ("ouzel-chats", &[]),
    ("ouzel-service", &["ouzel", "ouzel-tokenizer"]),
    (
        "ouzel-server",
        &["ouzel", "ouzel-chats", "ouzel-service", "ouzel-tokenizer"],
    ),
    (
        "ouzel-cli",
        &[
            "ouzel",
            "ouzel-server",
            "ouzel-service",
            "ouzel-chats",
            "ouzel-engine",
            "ouzel-install",
            "ouzel-tokenizer",
            "ouzel-format",
            "ouzel-storage",
            "ouzel-kernels",
        ],
    ),
    ("ouzel-oracle", &["ouzel-format"]),
    ("ouzel-hub", &["ouzel-format", "ouzel-storage"]),
    (
        "ouzel-xtask",
        &[
            "ouzel",
            "ouzel-engine",
            "ouzel-format",
            "ouzel-storage",
            "ouzel-install",
            "ouzel-kernels",
            "ouzel-tokenizer",
            "ouzel-oracle",
            "ouzel-hub",
            "ouzel-server",
        ],
    ),
];

/// Outside crates that only some rooms may use, outside of their tests.
const RESERVED: &[(&str, &[&str])] = &[
    ("anyhow", &["ouzel-cli", "ouzel-xtask"]),
    ("axum", &["ouzel-server"]),
    ("bytes", &["ouzel-server"]),
    ("clap", &["ouzel-cli"]),
    ("clap_complete", &["ouzel-cli"]),
    ("ctrlc", &["ouzel-cli"]),
    ("directories", &["ouzel-cli"]),
    ("indicatif", &["ouzel-cli"]),
    ("rustyline", &["ouzel-cli"]),
    ("hyper", &["ouzel-install", "ouzel-server"]),
    ("hyper-util", &["ouzel-install", "ouzel-server"]),
    ("http-body", &["ouzel-server"]),
    ("http-body-util", &["ouzel-install", "ouzel-server"]),
    ("llguidance", &["ouzel-tokenizer"]),
    ("minijinja", &["ouzel-tokenizer"]),
    ("rustls-graviola", &["ouzel-install"]),
    ("getrandom", &["ouzel-server"]),
    ("rusqlite", &["ouzel-chats"]),
    ("schemars", &["ouzel-server"]),
    ("subtle", &["ouzel-server"]),
    ("socket2", &["ouzel-hub"]),
    ("tokio", &["ouzel-install", "ouzel-server"]),
    ("tokio-rustls", &["ouzel-install"]),
    ("webpki-roots", &["ouzel-install"]),
    ("libc", &["ouzel-storage"]),
    ("rustix", &["ouzel-storage"]),
    ("windows-sys", &["ouzel-storage"]),
];

/// What may be used in tests only.
const TESTS_ONLY: &[&str] = &[
    "ouzel-oracle",
    "criterion",
    "ouzel-hub",
    "proptest",
    "tempfile",
    "tokenizers",
    "lzma-rust2",
    "miniz_oxide",
];

/// Every import that the table does not have.
pub fn check(metadata: &Metadata) -> Vec<String> {
    let packages = metadata.packages();
    packages
        .iter()
        .flat_map(|package| check_room(package))
        .collect()
}

fn check_room(package: &Package<'_>) -> Vec<String> {
    let room = package.name();
    let Some((_, allowed)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return vec![format!(
            "{room} is not in the table of rooms (crates/xtask/src/rooms.rs)"
        )];
    };
    let mut wrong = Vec::new();
    for dependency in package.dependencies() {
        let name = dependency.name;
        let is_ours = ROOMS.iter().any(|(ours, _)| *ours == name);
        let is_tool = name == "ouzel-xtask";
        if dependency.is_dev {
            if is_tool {
                wrong.push(format!("{room}: its tests may not import {name}"));
            }
            continue;
        }
        if is_ours && !allowed.contains(&name) {
            wrong.push(format!("{room} may not import {name}"));
        }
        if RESERVED
            .iter()
            .any(|(outside, rooms)| *outside == name && !rooms.contains(&room))
        {
            wrong.push(format!(
                "{room} may not use {name}, which belongs to another room"
            ));
        }
        if TESTS_ONLY.contains(&name) && room != "ouzel-xtask" {
            wrong.push(format!("{room} may use {name} in tests only"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(room: &str, dependency: &str, kind: &str) -> Vec<String> {
        let text = format!(
            r#"{{"packages":[{{"name":"{room}","dependencies":[{{"name":"{dependency}","kind":{kind},"req":"*"}}]}}]}}"#
        );
        check(&Metadata::parse(&text))
    }

    #[test]
    fn what_the_table_has_passes() {
        for (room, dependency, kind) in [
            ("ouzel-engine", "ouzel-kernels", "null"),
            ("ouzel-engine", "ouzel-oracle", r#""dev""#),
            ("ouzel-engine", "ouzel-install", r#""dev""#),
            ("ouzel-cli", "anyhow", "null"),
            ("ouzel-format", "serde", "null"),
            ("ouzel-server", "ouzel", "null"),
        ] {
            assert_eq!(
                said(room, dependency, kind),
                [""; 0],
                "{room} -> {dependency}"
            );
        }
    }

    #[test]
    fn what_it_does_not_have_is_refused() {
        for (room, dependency, kind) in [
            ("ouzel-format", "ouzel-storage", "null"),
            ("ouzel-engine", "ouzel-tokenizer", "null"),
            ("ouzel-server", "ouzel-engine", "null"),
            ("ouzel", "axum", "null"),
            ("ouzel-engine", "ouzel-oracle", "null"),
            ("ouzel-kernels", "ouzel-format", r#""build""#),
            ("ouzel-cli", "ouzel-oracle", "null"),
            ("ouzel", "ouzel-xtask", r#""dev""#),
            ("ouzel-engine", "anyhow", "null"),
            ("ouzel-format", "windows-sys", "null"),
            ("ouzel-tokenizer", "tokenizers", "null"),
            ("ouzel-utils", "serde", "null"),
        ] {
            assert!(
                !said(room, dependency, kind).is_empty(),
                "{room} -> {dependency}"
            );
        }
    }
}
