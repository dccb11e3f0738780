//! Whether archives are what they should be: made again they are the same, the system's own programs read them, and what comes out runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::{Archive, Release, System};
use crate::process::{is_there, output};

/// Refuses archives that differ.
pub fn same(first: &[Archive], second: &[Archive]) -> anyhow::Result<()> {
    for (first, second) in first.iter().zip(second) {
        ensure!(
            first.name == second.name && first.bytes == second.bytes,
            "{}: made twice, it is not the same",
            first.name
        );
    }
    println!("made twice, they are the same");
    Ok(())
}

/// Unpacks what programs of this system can unpack, and runs what runs here.
pub fn contents(release: &Release, archives: &[Archive], runs_here: bool) -> anyhow::Result<()> {
    let folder = Folder::new()?;
    for archive in archives {
        let path = folder.0.join(&archive.name);
        fs::write(&path, &archive.bytes).context("a temporary folder")?;
        let inside = folder.0.join(format!("{} unpacked", archive.name));
        fs::create_dir(&inside).context("a temporary folder")?;
        let (program, args, binary) = unpacking(release, &archive.name);
        if !is_there(program, &["--version"]) && !is_there(program, &["-v"]) {
            println!(
                "Not checked here: {}, because there is no {program}",
                archive.name
            );
            continue;
        }
        let mut command = Command::new(program);
        command.args(args).arg(&path).current_dir(&inside);
        if program == "dpkg-deb" {
            told(Command::new(program).arg("--info").arg(&path))?;
            told(Command::new(program).arg("--contents").arg(&path))?;
            command.arg(".");
        }
        output(&mut command)?;
        let binary = inside.join(binary);
        ensure!(
            fs::read(&binary).is_ok_and(|bytes| bytes == release.binary),
            "{}: the program is not in it",
            archive.name
        );
        if runs_here {
            runs(&binary, &release.version)?;
        }
        println!("{}: unpacked by {program}", archive.name);
    }
    Ok(())
}

/// What unpacks an archive into the folder at hand, and where the program is then.
fn unpacking(release: &Release, name: &str) -> (&'static str, &'static [&'static str], PathBuf) {
    let top = format!("ouzel-{}-{}", release.version, release.target);
    let binary = Path::new(&top).join(format!("ouzel{}", release.system.suffix()));
    if name.ends_with(".deb") {
        ("dpkg-deb", &["--extract"], "usr/bin/ouzel".into())
    } else if name.ends_with(".tar.gz") {
        ("tar", &["-xzf"], binary)
    } else if release.system == System::MacOs {
        (
            "unzip",
            &["-q"],
            "Ouzel.app/Contents/MacOS/bin/ouzel".into(),
        )
    } else {
        ("unzip", &["-q"], binary)
    }
}

fn runs(binary: &Path, version: &str) -> anyhow::Result<()> {
    let said = String::from_utf8(output(Command::new(binary).arg("--version"))?)?;
    ensure!(
        said.trim() == format!("ouzel {version}"),
        "{}: says {said:?}",
        binary.display()
    );
    Ok(())
}

fn told(command: &mut Command) -> anyhow::Result<()> {
    print!("{}", String::from_utf8_lossy(&output(command)?));
    Ok(())
}

/// A temporary folder, until it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> anyhow::Result<Folder> {
        let path = std::env::temp_dir().join(format!("ouzel-dist-{}", std::process::id()));
        fs::create_dir(&path).with_context(|| path.display().to_string())?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What stays behind is in a folder that is emptied anyway.
        let _ = fs::remove_dir_all(&self.0);
    }
}
