//! Tells the program which commit it was built from, for measurements to name. Without git, or outside a repository, it is "unknown".

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Every commit, checkout and rebase adds a line to this log.
    let log = git(&[
        "rev-parse",
        "--path-format=absolute",
        "--git-path",
        "logs/HEAD",
    ]);
    if let Some(log) = log.filter(|path| std::path::Path::new(path).is_file()) {
        println!("cargo::rerun-if-changed={log}");
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=OUZEL_COMMIT={commit}");
}

/// The one line that git says, if it says one.
fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_owned())
}
