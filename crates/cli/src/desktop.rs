//! Started by a double click: without arguments and without a terminal, the program is the app.
//!
//! Nobody sees standard error then, so what is said goes to a log as well, and what ends the program is shown in the browser. On Windows a console program
//! that the desktop starts gets a window of its own, which shows what is said, and is kept open over an error.

use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use ouzel_server::{Problem, ProblemPage};
use ouzel_storage::{ShowPath, create_private_dir, create_private_file, has_own_console};

use crate::args::Cli;
use crate::models::Places;
use crate::output::{self, note};
use crate::{browser, exit, interrupt};

const LOG: &str = "app.log";
/// The log of the starts before, when the other one had become too long.
const OLD_LOG: &str = "app.log.old";
/// A longer log begins anew.
const MAX_LOG_BYTES: u64 = 1 << 20;
/// A browser that was asked for and has not come after this time does not come any more.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether nobody gave arguments and nobody sees what is said.
pub fn is_start() -> bool {
    std::env::args_os().len() <= 1 && (has_own_console() || !has_terminal())
}

fn has_terminal() -> bool {
    io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal()
}

/// Runs `ouzel app`.
pub fn run() -> ExitCode {
    let log = match begin_log() {
        Ok(path) => Some(path),
        Err(error) => {
            note(&format!("there is no log: {}", exit::full(&error)));
            None
        }
    };
    // A panic's last words go to standard error only.
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        output::log(&format!("ouzel: {panic}\n"));
        usual(panic);
    }));
    note(&format!(
        "{} as process {}, without a terminal",
        env!("CARGO_PKG_VERSION"),
        std::process::id()
    ));
    if has_own_console() {
        note("this window belongs to Ouzel: closing it ends the program");
    }
    let result = Cli::try_parse_from(["ouzel", "app"])
        .map_err(anyhow::Error::from)
        .and_then(|cli| {
            interrupt::listen()?;
            crate::run(&cli)
        });
    let Err(error) = result else {
        return ExitCode::SUCCESS;
    };
    if let Some(line) = exit::line(&error) {
        note(&line);
        show(&line, log.as_deref());
    }
    ExitCode::from(exit::code(&error))
}

/// From now on what is said is written down.
fn begin_log() -> anyhow::Result<PathBuf> {
    let folder = Places::find(None)?
        .state
        .ok_or_else(|| exit::usage("this user has no folder for it; OUZEL_STATE names one"))?;
    create_private_dir(&folder)?;
    let path = folder.join(LOG);
    if fs::metadata(&path).is_ok_and(|log| log.len() > MAX_LOG_BYTES) {
        fs::rename(&path, folder.join(OLD_LOG))?;
    }
    create_private_file(&path)?;
    output::log_to(File::options().append(true).open(&path)?);
    Ok(path)
}

/// Shows what ended the program: in its window, or in the browser.
fn show(line: &str, log: Option<&Path>) {
    if has_own_console() {
        note("press Enter to close this window");
        // Whatever comes, it is time to end.
        let _ = io::stdin().read_line(&mut String::new());
        return;
    }
    let advice = match log {
        Some(log) => format!(
            "Start Ouzel again when this is put right. Everything that it said is in {}.",
            log.shown()
        ),
        None => "Start Ouzel again when this is put right.".to_owned(),
    };
    let problem = Problem {
        title: "Ouzel could not go on",
        error: line,
        advice: &advice,
    };
    let shown = ProblemPage::new(&problem).and_then(|page| {
        browser::open(&page.address()?)?;
        Ok(page.show(PATIENCE))
    });
    match shown {
        Ok(true) => {}
        Ok(false) => note("no browser came to show this"),
        Err(error) => note(&format!("no browser could show this: {error}")),
    }
}
