//! What `verify` says about directories that are not what they should be; and installations on the real disk.

use std::fs;
use std::path::Path;

use ouzel_format::paths;
use ouzel_install::{Event, InstallError, InstallOptions, install, verify_dir};
use ouzel_storage::{Disk, OsDisk};

use crate::{CHECKPOINTS, checkpoint, disk, install_on, output};

fn overwrite() -> InstallOptions {
    InstallOptions {
        overwrite: true,
        ..InstallOptions::default()
    }
}

#[test]
fn an_installation_on_the_real_disk_verifies_where_it_was_moved_to() {
    for path in CHECKPOINTS {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let output = dir.path().join("in/new/folders/model.gturbo");
        let source = checkpoint(path);
        let (mut planned, mut wrote) = (0, 0);
        let installed = install(
            &source,
            &OsDisk,
            &output,
            &InstallOptions::default(),
            &mut |event| match event {
                Event::Begins {
                    total_bytes,
                    done_bytes,
                    ..
                } => planned += total_bytes - done_bytes,
                Event::Advances { bytes } => wrote += bytes,
                Event::Missing { .. } | Event::Discards { .. } | Event::Retries { .. } => {}
            },
        )
        .expect(path);
        assert_eq!(planned, wrote, "progress adds up");
        install(&source, &OsDisk, &output, &overwrite(), &mut |_| {}).expect("it is replaced");
        let beside: Vec<_> = fs::read_dir(output.parent().expect("a parent"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(beside, ["model.gturbo"], "nothing else is left");
        let moved = dir.path().join("moved");
        fs::rename(&output, &moved).expect("a move");
        let verified = verify_dir(&OsDisk, &moved, &mut |_| {}).expect(path);
        assert_eq!(verified.bytes, installed.bytes);
        assert!(verified.has_receipt);
    }
}

/// Installs tiny-a on the real disk, lets `damage` at it, and gives the error of `verify`.
fn verify_after(damage: impl FnOnce(&Path)) -> InstallError {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let output = dir.path().join("model.gturbo");
    let source = checkpoint("testdata/tiny-a/mlx");
    install(
        &source,
        &OsDisk,
        &output,
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect("an installation");
    damage(&output);
    verify_dir(&OsDisk, &output, &mut |_| {}).expect_err("it is damaged")
}

fn edit(dir: &Path, file: &str, from: &str, to: &str) {
    let path = dir.join(file);
    let text = fs::read_to_string(&path).expect("a text file");
    assert!(text.contains(from), "{file} has no {from}");
    fs::write(path, text.replace(from, to)).expect("a write");
}

#[test]
fn damage_is_named_with_what_was_expected() {
    type Damage = fn(&Path);
    let cases: [(&[&str], Damage); 10] = [
        (&["manifest.json", "verified-install.json"], |dir| {
            edit(
                dir,
                paths::MANIFEST,
                "\"ropeTheta\" : 10000",
                "\"ropeTheta\" : 10001",
            );
        }),
        (&["manifest.json", "version 2"], |dir| {
            edit(
                dir,
                paths::MANIFEST,
                "\"versionMajor\" : 1",
                "\"versionMajor\" : 2",
            );
        }),
        (&["manifest.json", "GTURBO"], |dir| {
            edit(dir, paths::MANIFEST, "GTURBO", "TURBOG");
        }),
        (&["manifest.json", "JSON"], |dir| {
            fs::write(dir.join(paths::MANIFEST), "{").expect("a write");
        }),
        (&["layer_01.bin", "found none"], |dir| {
            fs::remove_file(dir.join("packed_experts/layer_01.bin")).expect("it was there");
        }),
        (&["layer_02.bin", "size in bytes", "found 1000"], |dir| {
            let file = fs::OpenOptions::new()
                .write(true)
                .open(dir.join("packed_experts/layer_02.bin"));
            file.and_then(|file| file.set_len(1000)).expect("cut short");
        }),
        (&["layout.json", "expertStride"], |dir| {
            edit(
                dir,
                paths::LAYOUT,
                "\"expertStride\" : ",
                "\"expertStride\" : 1",
            );
        }),
        (&["checksums.bin"], |dir| {
            fs::remove_file(dir.join(paths::CHECKSUMS)).expect("it was there");
        }),
        (&["verified-install.json", "something else"], |dir| {
            fs::remove_file(dir.join(paths::RECEIPT)).expect("it was there");
            fs::create_dir(dir.join(paths::RECEIPT)).expect("a folder");
        }),
        (&["model.gturbo", "manifest.json", "--repair"], |dir| {
            fs::remove_file(dir.join(paths::MANIFEST)).expect("it was there");
        }),
    ];
    for (named, damage) in cases {
        let error = verify_after(damage).to_string();
        for word in named {
            assert!(error.contains(word), "expected {word:?} in: {error}");
        }
    }
}

#[test]
fn a_receipt_is_not_needed() {
    let disk = disk();
    install_on(&disk, &checkpoint("testdata/tiny-a/mlx"));
    disk.remove_file(&output().join(paths::RECEIPT))
        .expect("healthy");
    let verified = verify_dir(&disk, &output(), &mut |_| {}).expect("other writers may leave none");
    assert!(!verified.has_receipt, "and whoever asks is told");
}

#[test]
fn a_folder_that_is_no_model_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let cases = [
        (dir.path().to_owned(), "another folder"),
        (dir.path().join("absent"), "does not exist; check the path"),
    ];
    for (path, words) in cases {
        let error = verify_dir(&OsDisk, &path, &mut |_| {})
            .expect_err("no model")
            .to_string();
        assert!(error.contains(words), "{error}");
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
    }
    // An installation that was cut short.
    let dying = disk().dying_at(30);
    let source = checkpoint("testdata/tiny-a/mlx");
    install(
        &source,
        &dying,
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect_err("the disk died");
    let left = dying.after_power_cut(1);
    let error = verify_dir(&left, &output(), &mut |_| {})
        .expect_err("no model")
        .to_string();
    assert!(
        error.contains("cut short; run the same installation again"),
        "{error}"
    );
}
