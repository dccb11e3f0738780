//! The man page, made of what the program says about itself, and the names of the completions.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

use crate::process::output;

/// Shells as `ouzel completions` calls them, and what their files are called.
pub const COMPLETIONS: &[(&str, &str)] = &[
    ("bash", "ouzel.bash"),
    ("zsh", "_ouzel"),
    ("fish", "ouzel.fish"),
    ("powershell", "ouzel.ps1"),
];

/// The page of a program and its commands.
pub fn man_page(program: &Path, version: &str, time: u64) -> anyhow::Result<Vec<u8>> {
    let ask = |args: &[&str]| -> anyhow::Result<String> {
        Ok(String::from_utf8(output(
            Command::new(program).args(args),
        )?)?)
    };
    let main = ask(&["--help"])?;
    let commands = commands(&main);
    ensure!(!commands.is_empty(), "`ouzel --help` lists no commands");
    let mut pages = Vec::new();
    for command in commands {
        pages.push((command, ask(&[command, "--help"])?));
    }
    Ok(page(&main, &pages, version, time)?.into_bytes())
}

/// The commands that the first help lists, one a line, indented, up to an empty line.
fn commands(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    lines
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect()
}

fn page(main: &str, pages: &[(&str, String)], version: &str, time: u64) -> anyhow::Result<String> {
    let (about, rest) = main
        .split_once("\n\n")
        .context("`ouzel --help` has no parts")?;
    let about = about.trim_end_matches('.').replacen("Runs", "run", 1);
    let (year, month, day) = date(time);
    let mut out = format!(
        ".TH OUZEL 1 \"{year:04}-{month:02}-{day:02}\" \"ouzel {version}\"\n.SH NAME\nouzel \\- {}\n.SH DESCRIPTION\n",
        escaped(&about)
    );
    out.push_str(&as_it_stands(rest));
    for (command, help) in pages {
        out.push_str(&format!(
            ".SH \"OUZEL {}\"\n{}",
            command.to_uppercase(),
            as_it_stands(help)
        ));
    }
    Ok(out)
}

/// Letters of a line, as wide as terminals are.
const WIDTH: usize = 78;

/// Lines that are laid out already, but for those that are too long.
fn as_it_stands(text: &str) -> String {
    let lines = text.trim().lines().flat_map(wrapped).map(|line| {
        let text = escaped(&line);
        // A line that begins like this would be a request.
        let guard = if text.starts_with(['.', '\'']) {
            "\\&"
        } else {
            ""
        };
        format!("{guard}{text}\n")
    });
    format!(".nf\n{}.fi\n", lines.collect::<String>())
}

/// One line or more; the further ones begin below the second column where there is one, else below the first.
fn wrapped(line: &str) -> Vec<String> {
    let line = line.trim_end();
    if line.len() <= WIDTH {
        return vec![line.to_owned()];
    }
    let words = line.trim_start();
    let mut indent = line.len() - words.len();
    if let Some(gap) = words.find("  ") {
        indent += words.len() - words[gap..].trim_start().len();
    }
    let (mut lines, mut last) = (Vec::new(), String::new());
    for (n, word) in line.split(' ').enumerate() {
        if n > 0 && last.len() + 1 + word.len() > WIDTH {
            lines.push(last);
            last = " ".repeat(indent);
        } else if n > 0 {
            last.push(' ');
        }
        last.push_str(word);
    }
    lines.push(last);
    lines
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// Year, month and day of a time in seconds from 1970.
pub fn date(time: u64) -> (u64, u64, u64) {
    let (mut year, mut day) = (1970, time / 86400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    (year, month, day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_command_and_no_stray_requests() {
        let main = "Runs models.\n\nUsage: ouzel COMMAND\n\nCommands:\n  app   The page\n  help  Print this\n\nOptions:\n  -h\n";
        assert_eq!(commands(main), ["app"]);
        let help = "The page\n.dot\n'quote\nC:\\x --port\n".to_owned();
        let page = page(main, &[("app", help)], "1.2.3", 951_782_400).unwrap();
        assert!(page.starts_with(
            ".TH OUZEL 1 \"2000-02-29\" \"ouzel 1.2.3\"\n.SH NAME\nouzel \\- run models\n"
        ));
        assert!(
            page.contains(
                ".SH \"OUZEL APP\"\n.nf\nThe page\n\\&.dot\n\\&'quote\nC:\\ex \\-\\-port\n.fi\n"
            ),
            "{page}"
        );
    }

    #[test]
    fn long_lines_are_wrapped_as_they_are_indented() {
        let lines = wrapped(&format!("  {}", "word ".repeat(30)));
        assert_eq!(lines.len(), 2);
        let fits = |line: &String| line.starts_with("  w") && line.len() <= WIDTH;
        assert!(lines.iter().all(fits), "{lines:?}");
        assert_eq!(wrapped("  a   b "), ["  a   b"]);
        let lines = wrapped(&format!("  name   {}", "word ".repeat(30)));
        let below = |line: &String| line.starts_with("         word");
        assert!(lines.len() == 3 && lines[0].starts_with("  name   word"));
        assert!(lines[1..].iter().all(below), "{lines:?}");
    }
}
