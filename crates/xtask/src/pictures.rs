//! `cargo xtask app-shots`: the pictures of docs/app.md and the icons of the app, from the release build with the bundled model in a browser.
//!
//! `app/tests/shots.mjs` says what is on them, a line each. Figures on them are those of the machine at hand, so they are not compared.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, ensure};

use crate::app::{BROWSER_VARIABLE, HUB_VARIABLE, SOURCES, browser, hub, packages};
use crate::metadata::Metadata;
use crate::process::{cargo, must, root};

const FOLDER: &str = "docs/pictures";
const DOCUMENT: &str = "docs/app.md";
/// What a clone may have to carry for them.
const MAX_BYTES: u64 = 2_000_000;

/// Takes them anew.
pub fn run() -> anyhow::Result<ExitCode> {
    let root = root()?;
    must(&mut cargo(&["build", "--release"])?)?;
    packages(&root)?;
    let target = root.join(Metadata::of_members()?.target_dir()?);
    let folder = root.join(FOLDER);
    fs::create_dir_all(&folder).context(FOLDER)?;
    // Those that nobody takes any more go.
    for name in names(&folder)? {
        fs::remove_file(folder.join(&name)).with_context(|| name.clone())?;
    }
    let hub = hub(&root)?;
    let mut command = Command::new("node");
    command
        .arg("tests/shots.mjs")
        .current_dir(root.join(SOURCES))
        .env("OUZEL_BINARY", target.join("release/ouzel"))
        .env("OUZEL_SHOTS", &folder)
        .env("OUZEL_ICONS", root.join("packaging"))
        .env(HUB_VARIABLE, hub.endpoint())
        .env(BROWSER_VARIABLE, browser(&root.join(SOURCES))?);
    must(&mut command)?;
    let found = judge(&root)?;
    found.iter().for_each(|line| println!("{line}"));
    ensure!(found.is_empty(), "{} findings", found.len());
    Ok(ExitCode::SUCCESS)
}

/// What is wrong with the pictures and the document that shows them.
fn judge(root: &Path) -> anyhow::Result<Vec<String>> {
    let folder = root.join(FOLDER);
    let text = fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
    let (names, mut bytes) = (names(&folder)?, 0);
    for name in &names {
        bytes += folder.join(name).metadata()?.len();
    }
    let mut found = unshown(&text, &names);
    println!("{} pictures, {} KB", names.len(), bytes / 1000);
    if bytes > MAX_BYTES {
        found.push(format!(
            "{FOLDER}: {bytes} bytes, and {MAX_BYTES} are the limit"
        ));
    }
    Ok(found)
}

fn names(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name.ends_with(".png"));
    names.sort();
    Ok(names)
}

/// Pictures that the document does not show, and those that it shows and are not there, or without words for who cannot see them.
fn unshown(text: &str, names: &[String]) -> Vec<String> {
    let shown: Vec<(&str, &str)> = text
        .split("![")
        .skip(1)
        .filter_map(|rest| rest.split_once("](pictures/"))
        .filter_map(|(words, rest)| Some((words, rest.split_once(')')?.0)))
        .collect();
    let mut found = Vec::new();
    for name in names {
        if !shown.iter().any(|(_, file)| file == name) {
            found.push(format!("{DOCUMENT} does not show {name}"));
        }
    }
    for (words, file) in shown {
        if !names.iter().any(|name| name == file) {
            found.push(format!("{DOCUMENT} shows {file}, which is not there"));
        }
        if words.split_whitespace().count() < 3 {
            found.push(format!("{DOCUMENT} does not say what is on {file}"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_shows_every_picture_and_no_other() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        assert_eq!(judge(&root).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_missing_is_named() {
        let text = "![A page with words](pictures/a.png) and ![x](pictures/b.png)";
        let names = ["a.png", "c.png"].map(str::to_owned);
        let found = unshown(text, &names);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(unshown(&text[..36], &names[..1]).is_empty());
    }
}
