//! A Debian package: two compressed tape archives in an `ar` archive, which needs nothing of Debian to be made.

use anyhow::{Context, bail};

use super::tree::Tree;
use super::{Archive, Release, gzip, tar};

/// The first package of a version.
const REVISION: u32 = 1;

/// Libraries that the program may ask for, and the packages that have them.
const LIBRARIES: &[(&str, &str)] = &[
    ("libgcc_s.so.1", "libgcc-s1"),
    ("libstdc++.so.6", "libstdc++6"),
];

/// The package of a release.
pub fn write(release: &Release) -> anyhow::Result<Archive> {
    let files = files(release)?;
    let mut control = Tree::default();
    control.file("control", fields(release, &files)?.into_bytes());
    let parts = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", packed(&control, release.time)?),
        ("data.tar.gz", packed(&files, release.time)?),
    ];
    let mut bytes = b"!<arch>\n".to_vec();
    for (name, part) in parts {
        let (time, size) = (release.time, part.len());
        let head = format!(
            "{name:<16}{time:<12}{:<6}{:<6}{:<8}{size:<10}`\n",
            0, 0, "100644"
        );
        bytes.extend(head.as_bytes());
        bytes.extend(part);
        if bytes.len() % 2 == 1 {
            bytes.push(b'\n');
        }
    }
    Ok(Archive {
        name: format!(
            "ouzel_{}-{REVISION}_{}.deb",
            release.version,
            architecture(&release.target)?
        ),
        bytes,
    })
}

fn packed(tree: &Tree, time: u64) -> anyhow::Result<Vec<u8>> {
    Ok(gzip::compress(&tar::write(tree, "./", time)?))
}

/// Everything where Debian wants it.
fn files(release: &Release) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    tree.program("usr/bin/ouzel", release.binary.clone());
    tree.file(
        "usr/share/applications/ouzel.desktop",
        release.packaging("ouzel.desktop")?,
    );
    tree.file(
        "usr/share/icons/hicolor/scalable/apps/ouzel.svg",
        release.packaging("ouzel.svg")?,
    );
    for (path, entry) in release.common.files() {
        let bytes = entry.bytes.clone();
        match path {
            "man/ouzel.1" => tree.file("usr/share/man/man1/ouzel.1.gz", gzip::compress(&bytes)),
            "completions/ouzel.bash" => {
                tree.file("usr/share/bash-completion/completions/ouzel", bytes);
            }
            "completions/_ouzel" => tree.file("usr/share/zsh/vendor-completions/_ouzel", bytes),
            "completions/ouzel.fish" => {
                tree.file("usr/share/fish/vendor_completions.d/ouzel.fish", bytes);
            }
            "completions/ouzel.ps1" | "LICENSE" => {}
            "CHANGELOG.md" => tree.file("usr/share/doc/ouzel/changelog.gz", gzip::compress(&bytes)),
            path => tree.file(&format!("usr/share/doc/ouzel/{path}"), bytes),
        }
    }
    tree.file(
        "usr/share/doc/ouzel/copyright",
        release.packaging("copyright")?,
    );
    Ok(tree)
}

fn fields(release: &Release, files: &Tree) -> anyhow::Result<String> {
    let kib = files.bytes().div_ceil(1024);
    let text = String::from_utf8(release.template("control")?)?;
    let depends = match depends(&release.binary) {
        all if all.is_empty() => String::new(),
        all => format!("Depends: {all}\n"),
    };
    let fields = [
        ("@REVISION@", REVISION.to_string()),
        ("@ARCHITECTURE@", architecture(&release.target)?.to_owned()),
        ("@KIB@", kib.to_string()),
        ("@DEPENDS@\n", depends),
    ];
    Ok(fields
        .iter()
        .fold(text, |text, (mark, value)| text.replace(mark, value)))
}

/// What the program needs: the C library that has the newest symbol which it asks for, and the libraries that it names.
fn depends(binary: &[u8]) -> String {
    const MARK: &[u8] = b"GLIBC_2.";
    let places = binary.windows(MARK.len()).enumerate();
    let versions = places.filter(|(_, part)| *part == MARK).map(|(at, _)| {
        let rest = &binary[at + MARK.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
        digits
            .take(3)
            .fold(0, |n, digit| n * 10 + u32::from(digit - b'0'))
    });
    let libc = versions.max().map(|minor| format!("libc6 (>= 2.{minor})"));
    let names = |library: &str| {
        let name = format!("\0{library}\0").into_bytes();
        binary.windows(name.len()).any(|part| part == name)
    };
    let others = LIBRARIES.iter().filter(|(library, _)| names(library));
    let all: Vec<String> = libc
        .into_iter()
        .chain(others.map(|(_, package)| (*package).to_owned()))
        .collect();
    all.join(", ")
}

fn architecture(target: &str) -> anyhow::Result<&'static str> {
    let processor = target.split('-').next().context("a target has parts")?;
    Ok(match processor {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        _ => bail!("{target}: Debian's name of this processor is not known here"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_needs_is_read_from_it() {
        let binary = b"..GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.17\0\0libgcc_s.so.1\0";
        assert_eq!(depends(binary), "libc6 (>= 2.34), libgcc-s1");
    }
}
