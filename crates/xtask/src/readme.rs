//! The commands that README.md promises, read from it, so that a check runs what a reader would type.

use anyhow::{Context, bail, ensure};

/// How the demo command begins.
const DEMO: &str = "cargo run --release -- generate ";

/// The command that runs every test.
const TEST: &str = "cargo xtask test";

/// The words of the README's demo command; also makes sure that the test command is there, on a line of its own.
pub fn demo_command(readme: &str) -> anyhow::Result<Vec<String>> {
    let commands = commands(readme);
    ensure!(
        commands.contains(&TEST),
        "README.md has no command `{TEST}`"
    );
    let demo = commands.iter().find(|line| line.starts_with(DEMO));
    words(demo.with_context(|| format!("README.md has no command that starts with `{DEMO}`"))?)
}

/// The lines inside fences.
fn commands(readme: &str) -> Vec<&str> {
    let mut inside = false;
    let mut lines = Vec::new();
    for line in readme.lines() {
        if line.starts_with("```") {
            inside = !inside;
        } else if inside {
            lines.push(line.trim());
        }
    }
    lines
}

/// Splits a command as a shell would, of which it knows double quotes and refuses the rest.
fn words(command: &str) -> anyhow::Result<Vec<String>> {
    let (mut words, mut word, mut quoted, mut started) = (Vec::new(), String::new(), false, false);
    for c in command.chars() {
        match c {
            '"' => (quoted, started) = (!quoted, true),
            ' ' if !quoted => {
                if started {
                    words.push(std::mem::take(&mut word));
                }
                started = false;
            }
            '\\' | '\'' | '$' | '`' | '|' | '>' | '<' | ';' | '&' | '*' => {
                bail!("{command}: {c:?} means something else in each shell")
            }
            c => {
                word.push(c);
                started = true;
            }
        }
    }
    ensure!(!quoted, "{command}: a quotation mark is missing");
    if started {
        words.push(word);
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "# Ouzel\n```sh\ncargo run --release -- generate \"What is a fieldfare?\"\n```\nand\n```\ncargo xtask test\n```\n";

    #[test]
    fn the_demo_command_is_split_into_words() {
        let expected = [
            "cargo",
            "run",
            "--release",
            "--",
            "generate",
            "What is a fieldfare?",
        ];
        assert_eq!(demo_command(GOOD).unwrap(), expected);
    }

    #[test]
    fn a_readme_that_lost_a_command_is_refused() {
        for bad in [
            GOOD.replace("--release", ""),
            GOOD.replace("xtask test", "xtask tests"),
            GOOD.replace("```sh", "").replace("```", ""),
            GOOD.replace("```sh", ""),
            GOOD.replace("?\"", "?"),
            GOOD.replace('?', "$HOME"),
        ] {
            assert!(demo_command(&bad).is_err(), "{bad}");
        }
    }
}
