//! `ouzel decode-service`: the model in a process of its own, which `serve` and `app` start.

use std::path::PathBuf;

use ouzel_service::{ChildError, Program};

use crate::exit::{self, CliError};

/// The command's name.
const NAME: &str = "decode-service";

/// How much sooner than others this process is to be ended where the system is out of memory, of 1,000: before its owner, which starts another
/// one, and before programs of the user that are half as large.
#[cfg(target_os = "linux")]
const OOM_SCORE_ADJ: &str = "500";

/// Runs the command: until the owner says so, or is gone.
pub fn run() -> anyhow::Result<()> {
    // Where the system does not take it, it chooses by itself.
    #[cfg(target_os = "linux")]
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ);
    let orphaned = || std::process::exit(i32::from(exit::FAILURE));
    let ended = ouzel_service::run(std::io::stdin(), std::io::stdout(), orphaned);
    ended.map_err(|error| match error {
        // Nobody is there who would read why.
        ChildError::Gone(_) => CliError::Told(exit::FAILURE).into(),
        error => error.into(),
    })
}

/// This program, as a decode service.
pub fn program() -> anyhow::Result<Program> {
    let file = std::env::current_exe()?;
    Ok(Program {
        file: still_there(file),
        args: vec![NAME.to_owned()],
    })
}

/// A program that was replaced while it runs has no name any more; Linux still has its file.
fn still_there(file: PathBuf) -> PathBuf {
    let running = PathBuf::from("/proc/self/exe");
    if !file.is_file() && running.is_file() {
        return running;
    }
    file
}
