//! `cargo xtask app`: builds the page from `app/` into the server room; with `--check` it builds it elsewhere and compares the bytes, so that what
//! is embedded is what the sources say. `cargo xtask app-test` opens it in a browser.
//!
//! The packages are those of the lockfile; none of their own programs runs when they are installed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

use ouzel_hub::{Hub, Options};

use crate::metadata::Metadata;
use crate::process::{cargo, code_of, must, root, status};

/// The sources.
pub const SOURCES: &str = "app";
/// What the binary embeds.
const BUILT: &str = "crates/server/page";
/// Browsers that are looked for before one is installed.
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome"];
/// Tells the tests where a hub is.
pub const HUB_VARIABLE: &str = "OUZEL_TEST_HUB";
/// The checkpoint that it serves.
const CHECKPOINT: &str = "models/demo";
/// What it gives each connection.
const HUB_BYTES_PER_S: u64 = 500_000;
/// Names the browser of the tests.
pub const BROWSER_VARIABLE: &str = "OUZEL_CHROMIUM";

/// Builds the page, or checks it.
pub fn run(rest: &[String]) -> anyhow::Result<ExitCode> {
    let is_check = match rest {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("app takes --check and nothing else"),
    };
    let root = root()?;
    packages(&root)?;
    let sources = root.join(SOURCES);
    must(npm(&["run", "check"]).current_dir(&sources))?;
    if !is_check {
        must(npm(&["run", "build"]).current_dir(&sources))?;
        return Ok(ExitCode::SUCCESS);
    }
    let elsewhere = std::env::temp_dir().join(format!("ouzel-page-{}", std::process::id()));
    let mut build = npm(&["run", "build", "--", "--outDir"]);
    must(build.arg(&elsewhere).current_dir(&sources))?;
    let (built, kept) = (files(&elsewhere)?, files(&root.join(BUILT))?);
    fs::remove_dir_all(&elsewhere).context("removing what was built")?;
    let other: Vec<&String> = built
        .keys()
        .chain(kept.keys())
        .filter(|name| built.get(*name) != kept.get(*name))
        .collect();
    ensure!(
        other.is_empty(),
        "{BUILT} is not what {SOURCES} builds; `cargo xtask app` builds it: {other:?}"
    );
    println!("{BUILT} is what {SOURCES} builds: {} files", built.len());
    Ok(ExitCode::SUCCESS)
}

/// The page of the release build in a browser.
pub fn test(rest: &[String]) -> anyhow::Result<ExitCode> {
    let root = root()?;
    // As the demo check builds it, so that it is there already.
    must(&mut cargo(&["build", "--release"])?)?;
    packages(&root)?;
    let target = root.join(Metadata::of_members()?.target_dir()?);
    let shots = target.join("page-shots");
    fs::create_dir_all(&shots).with_context(|| shots.display().to_string())?;
    let hub = hub(&root)?;
    let mut command = Command::new("node");
    // One after the other: each starts programs that take memory.
    let tests = ["tests/page.test.mjs", "tests/setup.test.mjs"];
    command
        .args(["--test", "--test-concurrency=1", "--test-reporter=spec"])
        .args(tests)
        .args(rest)
        .env(HUB_VARIABLE, hub.endpoint())
        .current_dir(root.join(SOURCES))
        .env("OUZEL_BINARY", target.join("release/ouzel"))
        .env("OUZEL_SHOTS", &shots)
        .env(BROWSER_VARIABLE, browser(&root.join(SOURCES))?);
    let code = code_of(status(&mut command)?);
    println!("pictures of the page are in {}", shots.display());
    Ok(code)
}

/// What the page downloads from: slow enough to be paused.
pub fn hub(root: &Path) -> anyhow::Result<Hub> {
    let options = Options {
        bytes_per_s: Some(HUB_BYTES_PER_S),
        ..Options::default()
    };
    Ok(Hub::serve(&root.join(CHECKPOINT), options)?)
}

fn npm(args: &[&str]) -> Command {
    // On Windows it is a script, which is found by its whole name only.
    let mut command = Command::new(if cfg!(windows) { "npm.cmd" } else { "npm" });
    command.args(args);
    command
}

/// Installs what the lockfile names.
pub fn packages(root: &Path) -> anyhow::Result<()> {
    let mut command = npm(&["ci", "--ignore-scripts", "--no-audit", "--no-fund"]);
    must(command.current_dir(root.join(SOURCES)))
}

/// A Chromium: the one that is named, one that is there, or one that is installed now.
pub fn browser(sources: &Path) -> anyhow::Result<PathBuf> {
    if let Some(named) = std::env::var_os(BROWSER_VARIABLE) {
        return Ok(named.into());
    }
    if let Some(found) = installed_browser() {
        return Ok(found);
    }
    let mut playwright = Command::new("npx");
    playwright.args(["playwright-core", "install", "--with-deps", "chromium"]);
    if status(playwright.current_dir(sources))?.success() {
        // The driver knows where it put it.
        return Ok(PathBuf::new());
    }
    let mut apt = Command::new("apt-get");
    apt.args([
        "install",
        "-qq",
        "-y",
        "--no-install-recommends",
        "chromium",
    ]);
    status(&mut apt)?;
    installed_browser().with_context(|| {
        format!("there is no Chromium and none could be installed; {BROWSER_VARIABLE} names one")
    })
}

/// Whole paths: the driver looks for no program itself.
fn installed_browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let candidates = BROWSERS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates.into_iter().find(|program| program.is_file())
}

/// The files below a folder, by their path in it.
fn files(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(&at).with_context(|| at.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path
                .strip_prefix(folder)?
                .to_string_lossy()
                .replace('\\', "/");
            found.insert(name, fs::read(&path)?);
        }
    }
    Ok(found)
}
