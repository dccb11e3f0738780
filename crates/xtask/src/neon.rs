//! `cargo xtask neon`: the kernels' tests on an aarch64 that is emulated.
//!
//! The compiler, the linker and the instructions are those of a real one; the speed is not, so nothing is measured here.

use std::process::{Command, ExitCode};

use anyhow::{bail, ensure};

use crate::cross::standard_library;
use crate::process::{cargo, code_of, is_there, must, status};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64";

/// The Debian packages of the two programs.
const PACKAGES: &[(&str, &str)] = &[(LINKER, "gcc-aarch64-linux-gnu"), (EMULATOR, "qemu-user")];

/// Where Debian's cross-compiler keeps the target's C library.
const SYSROOT: &str = "/usr/aarch64-linux-gnu";

/// Runs the tests; on an aarch64 machine they need no emulator, and `cargo xtask test` has them.
pub fn run() -> anyhow::Result<ExitCode> {
    if cfg!(target_arch = "aarch64") {
        println!(
            "This machine is an aarch64: `cargo xtask test` runs the NEON kernels themselves."
        );
        return Ok(ExitCode::SUCCESS);
    }
    ensure!(
        cfg!(target_os = "linux"),
        "the emulator runs Linux programs, on Linux only"
    );
    if let Err(why) = standard_library(TARGET) {
        bail!("{TARGET}: {why}");
    }
    for (program, package) in PACKAGES {
        if !is_there(program, &["--version"]) {
            install(package)?;
        }
    }
    let mut command = cargo(&[
        "test",
        "--locked",
        "--package",
        "ouzel-kernels",
        "--target",
        TARGET,
    ])?;
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER);
    // `max` has the dot product; without a processor named, older emulators have less.
    let runner = format!("{EMULATOR} -cpu max -L {SYSROOT}");
    command.env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", runner);
    Ok(code_of(status(&mut command)?))
}

fn install(package: &str) -> anyhow::Result<()> {
    let install = ["install", "--quiet", "--yes", package];
    if status(&mut apt(&install)).is_ok_and(|status| status.success()) {
        return Ok(());
    }
    // The lists of packages may be missing or old.
    must(&mut apt(&["update", "--quiet"]))?;
    must(&mut apt(&install))
}

/// Whoever is not root, and may become it, has `sudo`.
fn apt(args: &[&str]) -> Command {
    let is_root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout == b"0\n");
    let mut command = Command::new(if is_root { "apt-get" } else { "sudo" });
    if !is_root {
        command.arg("apt-get");
    }
    command.args(args);
    command
}
