//! The licence texts of the crates in the binary: whoever gives the binary away gives them along.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::metadata::Metadata;

/// How files begin whose business is who may do what.
const NAMES: &[&str] = &[
    "license",
    "licence",
    "copying",
    "copyright",
    "notice",
    "unlicense",
];

/// Every text once, under the crates that have it; then the crates whose packages have none.
pub fn texts(metadata: &Metadata) -> anyhow::Result<Vec<u8>> {
    let (mut by_text, mut without) = (BTreeMap::<String, Vec<String>>::new(), Vec::new());
    for package in metadata.in_binary_of("ouzel-cli") {
        if package.source().is_none() {
            continue;
        }
        let name = format!("{} {}", package.name(), package.version());
        let texts = texts_in(package.folder()?).with_context(|| name.clone())?;
        if texts.is_empty() {
            without.push(format!("{name}: {}", package.license().unwrap_or_default()));
        }
        for text in texts {
            by_text.entry(text).or_default().push(name.clone());
        }
    }
    let mut list: Vec<(Vec<String>, String)> = by_text
        .into_iter()
        .map(|(text, names)| (names, text))
        .collect();
    list.sort();
    let mut all =
        "The licence texts of the crates in Ouzel, as their packages have them.\n".to_owned();
    for (names, text) in list {
        let rule = "-".repeat(80);
        all.push_str(&format!(
            "\n{rule}\n{}\n{rule}\n\n{}\n",
            names.join(", "),
            text.trim_end()
        ));
    }
    if !without.is_empty() {
        all.push_str(&format!(
            "\nThese packages have no text of their own, and name their licence:\n\n{}\n",
            without.join("\n")
        ));
    }
    Ok(all.into_bytes())
}

fn texts_in(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_lowercase();
        if NAMES.iter().any(|begin| name.starts_with(begin)) && entry.path().is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    let read = |path: &PathBuf| -> anyhow::Result<String> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"))
    };
    paths.iter().map(read).collect()
}
