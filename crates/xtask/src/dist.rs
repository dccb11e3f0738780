//! `cargo xtask dist`: what people download, in `target/dist`: an archive for each system, a Debian package, a macOS app, and the sums of all.
//!
//! Packing is a pure function of the files, so the same files give the same bytes: entries are sorted, belong to nobody, and have one time, that of
//! the commit or of SOURCE_DATE_EPOCH. A binary that cannot be built here is handed in with `--binary`.

mod check;
mod deb;
mod gzip;
mod help;
mod licences;
mod mac;
mod tar;
mod tree;
mod zip;

use std::env::consts::EXE_SUFFIX;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};
use ouzel_storage::Sha256;

use crate::metadata::Metadata;
use crate::process::{cargo, must, output, root};
use tree::Tree;

/// Where the archives go, below cargo's folder.
const FOLDER: &str = "dist";
/// The sums of everything in it.
const SUMS: &str = "SHA256SUMS";
/// Seconds from 1970 that everything is said to be from.
const TIME_VARIABLE: &str = "SOURCE_DATE_EPOCH";

/// A kind of system, by what its archives look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Linux,
    MacOs,
    Windows,
}

/// What is packed.
pub struct Release {
    /// As rustc calls it.
    target: String,
    system: System,
    version: String,
    /// Seconds from 1970.
    time: u64,
    binary: Vec<u8>,
    /// What belongs to every archive beside the binary.
    common: Tree,
    /// What only one system wants, by where it lies in `packaging/`.
    packaging: Tree,
}

/// One file for people to download.
pub struct Archive {
    name: String,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
struct Args {
    target: Option<String>,
    binary: Option<PathBuf>,
    is_check: bool,
}

/// Makes the archives.
pub fn run(rest: &[String]) -> anyhow::Result<ExitCode> {
    let args = Args::parse(rest)?;
    let metadata = Metadata::of_members()?;
    let target_dir = root()?.join(metadata.target_dir()?);
    let host = host()?;
    let target = args.target.clone().unwrap_or_else(|| host.clone());
    // Help and completions are asked of a program that runs here.
    must(&mut cargo(&["build", "--release", "--locked"])?)?;
    let here = target_dir
        .join("release")
        .join(format!("ouzel{EXE_SUFFIX}"));
    let binary = match &args.binary {
        Some(path) => path.clone(),
        None if target == host => here.clone(),
        None => build_for(&target, &target_dir)?,
    };
    let release = Release::gather(&target, &binary, &here)?;
    let folder = target_dir.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let archives = pack(&release)?;
    for archive in &archives {
        fs::write(folder.join(&archive.name), &archive.bytes)
            .with_context(|| archive.name.clone())?;
        println!("{:>9} KB  {}", archive.bytes.len() / 1000, archive.name);
    }
    fs::write(folder.join(SUMS), sums(&folder)?).context(SUMS)?;
    println!("in {}", folder.display());
    if args.is_check {
        let again = pack(&Release::gather(&target, &binary, &here)?)?;
        check::same(&archives, &again)?;
        check::contents(&release, &archives, target == host)?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn parse(rest: &[String]) -> anyhow::Result<Args> {
        let mut args = Args::default();
        let mut words = rest.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                words
                    .next()
                    .with_context(|| format!("{word} needs a value"))
            };
            match word.as_str() {
                "--target" => args.target = Some(value()?.clone()),
                "--binary" => args.binary = Some(value()?.into()),
                "--check" => args.is_check = true,
                _ => bail!("dist takes --target TARGET, --binary PATH and --check, not {word}"),
            }
        }
        Ok(args)
    }
}

impl System {
    fn of(target: &str) -> anyhow::Result<System> {
        let parts: Vec<&str> = target.split('-').collect();
        Ok(match parts.as_slice() {
            [_, _, "linux", ..] => System::Linux,
            [_, "apple", "darwin"] => System::MacOs,
            [_, _, "windows", ..] => System::Windows,
            _ => bail!("{target}: archives are made for Linux, macOS and Windows"),
        })
    }

    /// How a program of this system begins.
    fn has_made(self, binary: &[u8]) -> bool {
        match self {
            System::Linux => binary.starts_with(b"\x7fELF"),
            // Of one processor, or of several in one file.
            System::MacOs => {
                binary.starts_with(&[0xcf, 0xfa, 0xed, 0xfe])
                    || binary.starts_with(&[0xca, 0xfe, 0xba, 0xbe])
            }
            System::Windows => binary.starts_with(b"MZ"),
        }
    }

    fn suffix(self) -> &'static str {
        if self == System::Windows { ".exe" } else { "" }
    }
}

impl Release {
    /// Reads everything that is packed; `here` is a program of the same sources that runs on this system.
    fn gather(target: &str, binary: &Path, here: &Path) -> anyhow::Result<Release> {
        let (root, system) = (root()?, System::of(target)?);
        let bytes = fs::read(binary).with_context(|| binary.display().to_string())?;
        ensure!(
            system.has_made(&bytes),
            "{} is no program of {target}",
            binary.display()
        );
        let metadata = Metadata::of_all()?;
        let mut common = Tree::default();
        for name in [
            "README.md",
            "CHANGELOG.md",
            "SECURITY.md",
            "LICENSE",
            "THIRD_PARTY_NOTICES.md",
        ] {
            common.file(name, fs::read(root.join(name)).context(name)?);
        }
        common.folder("docs", &root.join("docs"))?;
        common.file("THIRD_PARTY_LICENSES.txt", licences::texts(&metadata)?);
        let version = metadata.version_of("ouzel-cli")?.to_owned();
        let time = time(&root)?;
        common.file("man/ouzel.1", help::man_page(here, &version, time)?);
        for (shell, name) in help::COMPLETIONS {
            common.file(
                &format!("completions/{name}"),
                output(Command::new(here).args(["completions", shell]))?,
            );
        }
        let mut packaging = Tree::default();
        packaging.folder("", &root.join("packaging"))?;
        let icon = "app/public/assets/icon.svg";
        packaging.file("ouzel.svg", fs::read(root.join(icon)).context(icon)?);
        Ok(Release {
            target: target.to_owned(),
            system,
            version,
            time,
            binary: bytes,
            common,
            packaging,
        })
    }

    /// A file of `packaging/`.
    fn packaging(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let file = self.packaging.get(name);
        Ok(file.with_context(|| format!("packaging/{name}"))?.to_vec())
    }

    /// The same, with the version where its text has `@VERSION@`.
    fn template(&self, name: &str) -> anyhow::Result<Vec<u8>> {
        let text = String::from_utf8(self.packaging(name)?).with_context(|| name.to_owned())?;
        Ok(text.replace("@VERSION@", &self.version).into_bytes())
    }

    /// What is unpacked to a folder and works there.
    fn portable(&self) -> anyhow::Result<Tree> {
        let mut tree = Tree::default();
        let top = format!("ouzel-{}-{}", self.version, self.target);
        tree.under(&top, &self.common);
        let name = format!("{top}/ouzel{}", self.system.suffix());
        tree.program(&name, self.binary.clone());
        if self.system == System::Linux {
            for name in ["ouzel.desktop", "ouzel.svg"] {
                tree.file(&format!("{top}/share/{name}"), self.packaging(name)?);
            }
        }
        Ok(tree)
    }
}

/// Everything that a system's people may want.
fn pack(release: &Release) -> anyhow::Result<Vec<Archive>> {
    let (portable, time) = (release.portable()?, release.time);
    let name = format!("ouzel-{}-{}", release.version, release.target);
    let tar_gz = || -> anyhow::Result<Archive> {
        Ok(Archive {
            name: format!("{name}.tar.gz"),
            bytes: gzip::compress(&tar::write(&portable, "", time)?),
        })
    };
    Ok(match release.system {
        System::Linux => vec![tar_gz()?, deb::write(release)?],
        System::MacOs => vec![
            tar_gz()?,
            Archive {
                name: format!("{name}.app.zip"),
                bytes: zip::write(&mac::app(release)?, time)?,
            },
        ],
        System::Windows => vec![Archive {
            name: format!("{name}.zip"),
            bytes: zip::write(&portable, time)?,
        }],
    })
}

/// Builds for another system, for which a linker has to be there.
fn build_for(target: &str, target_dir: &Path) -> anyhow::Result<PathBuf> {
    let built = must(&mut cargo(&[
        "build",
        "--release",
        "--locked",
        "--target",
        target,
    ])?);
    built.with_context(|| {
        format!("no program for {target} can be built here; build it there and hand it in with --binary PATH")
    })?;
    let suffix = System::of(target)?.suffix();
    Ok(target_dir
        .join(target)
        .join(format!("release/ouzel{suffix}")))
}

/// What rustc calls this system.
fn host() -> anyhow::Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let said = String::from_utf8(output(Command::new(rustc).arg("-vV"))?)?;
    let line = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc names no host")?.to_owned())
}

/// The time of everything that is packed.
fn time(root: &Path) -> anyhow::Result<u64> {
    if let Ok(seconds) = std::env::var(TIME_VARIABLE) {
        return seconds.parse().context(TIME_VARIABLE);
    }
    let mut git = Command::new("git");
    let said = output(git.args(["log", "-1", "--format=%ct"]).current_dir(root));
    let said = said.with_context(|| format!("without git, {TIME_VARIABLE} says the time"))?;
    Ok(String::from_utf8(said)?.trim().parse()?)
}

/// A line for each file of the folder, as `sha256sum --check` reads them.
fn sums(folder: &Path) -> anyhow::Result<String> {
    let mut tree = Tree::default();
    tree.folder("", folder)?;
    let lines = tree.files().filter(|(name, _)| *name != SUMS);
    Ok(lines.fold(String::new(), |all, (name, file)| {
        let mut sum = Sha256::new();
        sum.update(&file.bytes);
        let digits: String = sum.finish().iter().map(|b| format!("{b:02x}")).collect();
        format!("{all}{digits}  {name}\n")
    }))
}

#[cfg(test)]
mod tests;
