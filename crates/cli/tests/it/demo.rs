//! The bundled model: unpacked once, by one process, and again where it is damaged.

use std::fs;
use std::path::PathBuf;

use crate::tool::User;

fn unpacked(user: &User) -> Vec<PathBuf> {
    let entries = fs::read_dir(&user.models).expect("the models folder is there");
    let dirs = entries.map(|entry| entry.expect("it can be listed").path());
    let mut dirs: Vec<_> = dirs.filter(|path| path.is_dir()).collect();
    dirs.sort();
    dirs
}

#[test]
fn two_first_runs_at_once_share_one_directory() {
    let user = User::new();
    let args = ["generate", "--quiet", "--max-new", "3", "Hello!"];
    let children: Vec<_> = (0..2)
        .map(|_| {
            user.command()
                .args(args)
                .spawn()
                .expect("the binary was built")
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().expect("the program ends");
        assert!(output.status.success(), "{output:?}");
    }
    assert_eq!(unpacked(&user).len(), 1);
}

#[test]
fn damage_is_repaired() {
    let user = User::new();
    let args = ["generate", "--quiet", "What is a fieldfare?"];
    let answer = user.run(&args).ok();
    let dir = unpacked(&user).remove(0);
    let layer = dir.join("packed_experts/layer_00.bin");
    let good = fs::read(&layer).expect("the first layer is there");
    let mut flipped = good.clone();
    flipped[good.len() / 2] ^= 1;
    fs::write(&layer, &flipped).expect("it can be written");
    assert_eq!(user.run(&args).ok(), answer);
    assert_eq!(fs::read(&layer).expect("the first layer is there"), good);
    fs::remove_file(dir.join("manifest.json")).expect("it can be removed");
    assert_eq!(user.run(&args).ok(), answer);
    assert_eq!(unpacked(&user), [dir]);
}

#[test]
fn a_damaged_cache_is_made_anew() {
    let user = User::new();
    let cache = user.models.with_file_name("cache").join("tokenizers");
    let tokenize = || {
        user.run_with(&["tokenize", "demo"], b"What is a thrush?")
            .ok()
    };
    let ids = tokenize();
    let image = fs::read_dir(&cache)
        .expect("the cache is there")
        .next()
        .expect("one image")
        .expect("it can be listed");
    let good = fs::read(image.path()).expect("the image is there");
    fs::write(image.path(), &good[..good.len() / 2]).expect("it can be written");
    assert_eq!(tokenize(), ids);
    assert_eq!(fs::read(image.path()).expect("the image is there"), good);
}

#[test]
fn a_models_folder_that_cannot_be() {
    let user = User::new();
    let file = user.file("file", b"");
    let run = user.run(&[
        "generate",
        "--model",
        "demo",
        "--models-dir",
        &file,
        "Hello!",
    ]);
    run.refused(5, &["bundled model", "--models-dir"]);
}
