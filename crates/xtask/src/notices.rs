//! `cargo xtask notices`: the crates whose code is in the binary, listed in THIRD_PARTY_NOTICES.md between two marks.
//!
//! The list comes from the lockfile, for all systems together. `cargo xtask deps` refuses a list that is out of date.

use std::fmt::Write;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, ensure};

use crate::metadata::{Metadata, Package};
use crate::process::root;

const FILE: &str = "THIRD_PARTY_NOTICES.md";
const BEGIN: &str = "<!-- crates: begin -->\n";
const END: &str = "<!-- crates: end -->\n";
const BINARY: &str = "ouzel-cli";

/// Brings the list up to date.
pub fn run() -> anyhow::Result<ExitCode> {
    let path = root()?.join(FILE);
    let text = fs::read_to_string(&path).context(FILE)?;
    fs::write(&path, with_list(&text, &list(&Metadata::of_all()?)?)?).context(FILE)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a list that is not the lockfile's.
pub fn check(metadata: &Metadata) -> anyhow::Result<()> {
    let text = fs::read_to_string(root()?.join(FILE)).context(FILE)?;
    let list = list(metadata)?;
    ensure!(
        with_list(&text, &list)? == text,
        "{FILE} is out of date: `cargo xtask notices` brings it up to date"
    );
    println!(
        "{FILE} lists the {} crates of the binary",
        list.lines().count() - 2
    );
    Ok(())
}

fn list(metadata: &Metadata) -> anyhow::Result<String> {
    let mut list = "| crate | version | licence |\n|---|---|---|\n".to_owned();
    for package in metadata
        .in_binary_of(BINARY)
        .iter()
        .filter(|package| package.source().is_some())
    {
        writeln!(
            list,
            "| {} | {} | {} |",
            package.name(),
            package.version(),
            license(package)?
        )?;
    }
    Ok(list)
}

fn license<'a>(package: &Package<'a>) -> anyhow::Result<&'a str> {
    package
        .license()
        .with_context(|| format!("{} {} names no licence", package.name(), package.version()))
}

fn with_list(text: &str, list: &str) -> anyhow::Result<String> {
    let parts = text
        .split_once(BEGIN)
        .and_then(|(head, rest)| Some((head, rest.split_once(END)?.1)));
    let (head, tail) =
        parts.with_context(|| format!("{FILE} has lost the marks around its list"))?;
    Ok(format!("{head}{BEGIN}{list}{END}{tail}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = r#"{"id":"ouzel-cli","name":"ouzel-cli","version":"0.1.0","license":"Apache-2.0","source":null}"#;

    fn metadata(license: &str) -> Metadata {
        Metadata::parse(&format!(
            r#"{{"packages":[{OURS},{{"id":"half","name":"half","version":"2.7.1","license":{license},"source":"registry"}}],
            "resolve":{{"nodes":[{{"id":"ouzel-cli","deps":[{{"pkg":"half","dep_kinds":[{{"kind":null}}]}}]}}]}}}}"#
        ))
    }

    #[test]
    fn the_list_has_what_is_not_ours() {
        let list = list(&metadata(r#""MIT""#)).unwrap();
        assert_eq!(
            list.lines().skip(2).collect::<Vec<_>>(),
            ["| half | 2.7.1 | MIT |"]
        );
    }

    #[test]
    fn a_crate_without_a_licence_is_refused() {
        assert!(list(&metadata("null")).is_err());
    }

    #[test]
    fn the_list_is_replaced_and_the_rest_stays() {
        let text = format!("head\n{BEGIN}old\n{END}tail\n");
        let new = with_list(&text, "new\n").unwrap();
        assert_eq!(new, format!("head\n{BEGIN}new\n{END}tail\n"));
        assert_eq!(with_list(&new, "new\n").unwrap(), new);
        assert!(with_list("head\ntail\n", "new\n").is_err());
    }
}
