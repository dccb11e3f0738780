//! Archives of a program that is a few lines long, read by other programs than those that wrote them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::process::is_there;

const PROGRAM: &[u8] = b"#!/bin/sh\n# GLIBC_2.34\necho ouzel 1.2.3\n";

fn release(target: &str) -> Release {
    // `CARGO_MANIFEST_DIR` of a test is this room.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut common = Tree::default();
    for name in [
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        "THIRD_PARTY_NOTICES.md",
        "THIRD_PARTY_LICENSES.txt",
        "docs/app.md",
        "man/ouzel.1",
        "completions/ouzel.bash",
        "completions/_ouzel",
        "completions/ouzel.fish",
        "completions/ouzel.ps1",
    ] {
        common.file(name, format!("this is {name}\n").into_bytes());
    }
    let mut packaging = Tree::default();
    packaging.folder("", &root.join("packaging")).unwrap();
    packaging.file("ouzel.svg", b"<svg/>".to_vec());
    Release {
        target: target.to_owned(),
        system: System::of(target).unwrap(),
        version: "1.2.3".to_owned(),
        time: 1_796_082_128,
        binary: PROGRAM.to_vec(),
        common,
        packaging,
    }
}

fn one(archives: Vec<Archive>, suffix: &str) -> Archive {
    let found = archives.into_iter().find(|a| a.name.ends_with(suffix));
    found.unwrap()
}

/// What a program says about an archive; nothing where it is not here.
fn told(program: &str, args: &[&str], archive: &Archive) -> Option<String> {
    if !is_there(program, &["--version"]) && !is_there(program, &["-v"]) {
        println!("skipped: there is no {program}");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("archive"), &archive.bytes).unwrap();
    let mut command = Command::new(program);
    command.args(args).arg("archive").current_dir(dir.path());
    Some(String::from_utf8(output(&mut command).unwrap()).unwrap())
}

#[test]
fn the_same_files_give_the_same_bytes() {
    for target in [
        "x86_64-unknown-linux-gnu",
        "aarch64-apple-darwin",
        "x86_64-pc-windows-msvc",
    ] {
        let (first, second) = (
            pack(&release(target)).unwrap(),
            pack(&release(target)).unwrap(),
        );
        check::same(&first, &second).unwrap();
        let mut later = release(target);
        later.time += 86400;
        assert!(
            check::same(&first, &pack(&later).unwrap()).is_err(),
            "{target}"
        );
    }
    assert!(System::of("wasm32-unknown-unknown").is_err());
}

/// On Windows a script of a shell is no program, and nothing there makes these archives.
#[cfg(unix)]
#[test]
fn what_is_unpacked_runs() {
    let release = release("x86_64-unknown-linux-gnu");
    check::contents(&release, &pack(&release).unwrap(), true).unwrap();
}

/// Other systems' `tar` knows other options.
#[cfg(target_os = "linux")]
#[test]
fn a_tape_archive_is_sorted_and_belongs_to_root() {
    let archive = one(
        pack(&release("aarch64-unknown-linux-gnu")).unwrap(),
        ".tar.gz",
    );
    assert_eq!(archive.name, "ouzel-1.2.3-aarch64-unknown-linux-gnu.tar.gz");
    let Some(list) = told("tar", &["--utc", "--full-time", "-tvzf"], &archive) else {
        return;
    };
    let lines: Vec<&str> = list.lines().collect();
    assert!(
        lines.iter().all(|line| line.contains(" root/root ")),
        "{list}"
    );
    assert!(
        lines
            .iter()
            .all(|line| line.contains("2026-11-30 23:42:08")),
        "{list}"
    );
    let program = lines
        .iter()
        .find(|line| line.ends_with("gnu/ouzel"))
        .unwrap();
    assert!(program.starts_with("-rwxr-xr-x "), "{list}");
    assert!(list.contains("/share/ouzel.desktop"), "{list}");
}

#[test]
fn dpkg_reads_the_package() {
    let archive = one(pack(&release("x86_64-unknown-linux-gnu")).unwrap(), ".deb");
    assert_eq!(archive.name, "ouzel_1.2.3-1_amd64.deb");
    if let Some(info) = told("dpkg-deb", &["--info"], &archive) {
        for field in [
            "Package: ouzel",
            "Version: 1.2.3-1",
            "Architecture: amd64",
            "libc6 (>= 2.34)",
        ] {
            assert!(info.contains(field), "{info}");
        }
        for mark in ["@VERSION", "@REVISION", "@ARCHITECTURE", "@KIB", "@DEPENDS"] {
            assert!(!info.contains(mark), "{info}");
        }
    }
    if let Some(list) = told("dpkg-deb", &["--contents"], &archive) {
        for path in [
            "usr/bin/ouzel",
            "usr/share/applications/ouzel.desktop",
            "usr/share/icons/hicolor/scalable/apps/ouzel.svg",
            "usr/share/man/man1/ouzel.1.gz",
            "usr/share/doc/ouzel/copyright",
            "usr/share/doc/ouzel/docs/app.md",
            "usr/share/bash-completion/completions/ouzel",
        ] {
            assert!(list.contains(&format!(" ./{path}\n")), "{path}: {list}");
        }
    }
}

#[test]
fn the_mac_app_is_one() {
    let release = release("aarch64-apple-darwin");
    let app = mac::app(&release).unwrap();
    let plist = app.get("Ouzel.app/Contents/Info.plist").unwrap();
    let plist = String::from_utf8(plist.to_vec()).unwrap();
    for (key, value) in [
        ("CFBundleExecutable", "Ouzel"),
        ("CFBundlePackageType", "APPL"),
        ("CFBundleIconFile", "Ouzel"),
        ("CFBundleShortVersionString", "1.2.3"),
    ] {
        let pair = format!("<key>{key}</key>\n\t<string>{value}</string>");
        assert!(plist.contains(&pair), "{key}: {plist}");
    }
    assert!(!plist.contains('@'), "{plist}");
    let icon = app.get("Ouzel.app/Contents/Resources/Ouzel.icns").unwrap();
    assert_eq!(icon[4..8], u32::try_from(icon.len()).unwrap().to_be_bytes());
    assert_eq!(&icon[16..24], b"\x89PNG\r\n\x1a\n");
    let archive = one(pack(&release).unwrap(), ".app.zip");
    let Some(list) = told("unzip", &["-Z"], &archive) else {
        return;
    };
    for program in ["MacOS/Ouzel", "MacOS/bin/ouzel"] {
        let line = list.lines().find(|line| line.ends_with(program)).unwrap();
        assert!(line.starts_with("-rwxr-xr-x "), "{line}");
    }
}

/// The app's script with a program beside it that says how it was started.
#[cfg(unix)]
#[test]
fn the_mac_app_starts_the_program_and_ends() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().unwrap();
    let mut release = release("aarch64-apple-darwin");
    release.binary = b"#!/bin/sh\necho \"started $#\" > \"$(dirname \"$0\")/said\"\n".to_vec();
    for (path, entry) in mac::app(&release).unwrap().files() {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &entry.bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode())).unwrap();
    }
    let folder = dir.path().join("Ouzel.app/Contents/MacOS");
    output(Command::new("sh").arg(folder.join("Ouzel"))).unwrap();
    while !fs::read(folder.join("bin/said")).is_ok_and(|said| said.ends_with(b"\n")) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let said = fs::read_to_string(folder.join("bin/said")).unwrap();
    assert_eq!(said, "started 0\n");
}

#[test]
fn the_archive_for_windows_has_its_files() {
    let archive = one(pack(&release("x86_64-pc-windows-msvc")).unwrap(), ".zip");
    let top = "ouzel-1.2.3-x86_64-pc-windows-msvc";
    assert_eq!(archive.name, format!("{top}.zip"));
    let Some(list) = told("unzip", &["-Z1"], &archive) else {
        return;
    };
    for name in ["ouzel.exe", "README.md", "LICENSE", "docs/app.md"] {
        assert!(
            list.lines().any(|line| line == format!("{top}/{name}")),
            "{list}"
        );
    }
    // It compares the check sums.
    told("unzip", &["-tq"], &archive).unwrap();
}

#[test]
fn a_program_of_another_system_is_noticed() {
    let programs: [(System, &[u8]); 3] = [
        (System::Linux, b"\x7fELF"),
        (System::MacOs, &[0xcf, 0xfa, 0xed, 0xfe]),
        (System::Windows, b"MZ"),
    ];
    for (system, _) in programs {
        for (other, bytes) in programs {
            assert_eq!(system.has_made(bytes), system == other);
        }
    }
}
