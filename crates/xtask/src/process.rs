//! Programs that are run, and where: always in the root of the repository, always shown before they start.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Instant;

use anyhow::{Context, bail};

/// The root of the repository that this was started in.
pub fn root() -> anyhow::Result<PathBuf> {
    let dir = std::env::var_os("CARGO_MANIFEST_DIR").context("start this through `cargo xtask`")?;
    let root = Path::new(&dir)
        .ancestors()
        .nth(2)
        .context("crates/xtask has moved")?;
    Ok(root.to_owned())
}

/// The cargo that started this, in the root of the repository.
pub fn cargo(args: &[&str]) -> anyhow::Result<Command> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(root()?);
    Ok(command)
}

/// Runs a program with this one's standard streams.
pub fn status(command: &mut Command) -> anyhow::Result<ExitStatus> {
    println!("$ {}", shown(command));
    let started = Instant::now();
    let status = command.status().with_context(|| shown(command))?;
    println!("({:.1} s)", started.elapsed().as_secs_f64());
    Ok(status)
}

/// Runs a program that must succeed.
pub fn must(command: &mut Command) -> anyhow::Result<()> {
    let status = status(command)?;
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(())
}

/// The standard output of a program that must succeed.
pub fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let output = command.output().with_context(|| shown(command))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}: {}", shown(command), output.status, said.trim());
    }
    Ok(output.stdout)
}

/// Whether a program is there: whether it starts and succeeds.
pub fn is_there(program: &str, args: &[&str]) -> bool {
    Command::new(program)
        .args(args)
        .output()
        .is_ok_and(|output| output.status.success())
}

/// The exit code of a program as this one's own.
pub fn code_of(status: ExitStatus) -> ExitCode {
    match status.code().and_then(|code| u8::try_from(code).ok()) {
        Some(code) => ExitCode::from(code),
        None => ExitCode::FAILURE,
    }
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program
        .file_stem()
        .unwrap_or(program.as_os_str())
        .to_string_lossy();
    let args = command.get_args().map(|arg| arg.to_string_lossy());
    std::iter::once(name)
        .chain(args)
        .collect::<Vec<_>>()
        .join(" ")
}
