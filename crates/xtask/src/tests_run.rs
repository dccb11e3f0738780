//! `cargo xtask test`: every test, and an honest list of what the system at hand could not run.

use std::env;
use std::fs;
use std::process::ExitCode;

use ouzel_kernels::Isa;
use ouzel_storage::{IoMode, PositionedFile};

use crate::process::{cargo, code_of, status};

/// Runs the tests with `args` handed to `cargo test`; its exit code is ours.
pub fn run(args: &[String]) -> anyhow::Result<ExitCode> {
    let mut command = cargo(&["test", "--workspace"])?;
    let result = status(command.args(args))?;
    println!(
        "\nRun on this system ({} {}):",
        env::consts::OS,
        env::consts::ARCH
    );
    for isa in Isa::available() {
        println!("  kernels for {}", isa.name());
    }
    let (mut run, mut not_run) = (Vec::new(), Vec::new());
    match direct_reads() {
        Ok(()) => run.push("direct reads".to_owned()),
        Err(why) => not_run.push(format!(
            "direct reads: {why}; the tests read through the page cache"
        )),
    }
    run.iter().for_each(|what| println!("  {what}"));
    for (isa, why) in Isa::unavailable() {
        not_run.push(format!(
            "kernels for {}: {why}{}",
            isa.name(),
            elsewhere(isa)
        ));
    }
    not_run.extend(other_systems(env::consts::OS));
    println!("Not run on this system:");
    not_run.iter().for_each(|what| println!("  {what}"));
    Ok(code_of(result))
}

fn elsewhere(isa: Isa) -> &'static str {
    match isa {
        Isa::Neon => " (on Linux `cargo xtask neon` runs them in an emulator)",
        Isa::Portable | Isa::Avx2 | Isa::Avx512 => "",
    }
}

/// Whether a file in the folder for temporary files, which the tests use, can be read past the page cache.
fn direct_reads() -> Result<(), String> {
    let path = env::temp_dir().join(format!("ouzel-xtask-{}", std::process::id()));
    fs::write(&path, [0; 4096]).map_err(|error| error.to_string())?;
    let opened = PositionedFile::open(&path, IoMode::Direct);
    // A file that stays behind is 4 KiB in a folder that is emptied anyway.
    let _ = fs::remove_file(&path);
    opened.map(drop).map_err(|error| {
        format!(
            "the file system of {} refuses them: {error}",
            env::temp_dir().display()
        )
    })
}

/// What is written for one operating system alone and was therefore not even compiled here.
fn other_systems(os: &str) -> Vec<String> {
    let all = [
        (
            "linux",
            "O_DIRECT, dropped pages, /proc and control groups for free and peak memory",
        ),
        (
            "macos",
            "F_NOCACHE, host_statistics64 for free and getrusage for peak memory",
        ),
        (
            "windows",
            "unbuffered reads, locked and renamed files, the Windows memory counters",
        ),
    ];
    let others = all.into_iter().filter(|(name, _)| *name != os);
    others
        .map(|(name, what)| format!("what exists for {name} only: {what}: this system is {os}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_is_told_about_the_others_alone() {
        for os in ["linux", "macos", "windows"] {
            let told = other_systems(os);
            assert_eq!(told.len(), 2, "{os}");
            assert!(
                !told
                    .iter()
                    .any(|line| line.contains(&format!("for {os} only"))),
                "{os}"
            );
        }
        assert_eq!(other_systems("freebsd").len(), 3);
    }
}
