//! Which model is meant, and directories that are none.

use std::fs;
use std::path::Path;

use crate::tool::{User, install_to, tiny};

/// Runs every command that reads weights on a directory.
fn on(dir: &Path) -> [crate::tool::Run; 2] {
    let user = User::new();
    let ids = user.file("ids.json", b"[[1, 2, 3, 4, 5, 6, 7, 8]]");
    let dir = dir.to_str().expect("temporary folders have plain names");
    [
        user.run(&["eval", dir, "--token-ids", &ids, "--quiet"]),
        user.run(&["verify", dir]),
    ]
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the folder is ours");
    for entry in fs::read_dir(from).expect("the model is there") {
        let entry = entry.expect("it can be listed");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("it can be copied");
        }
    }
}

/// A copy of the tiny model with one thing done to it.
fn damaged(damage: impl FnOnce(&Path)) -> [crate::tool::Run; 2] {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let model = dir.path().join("model.gturbo");
    copy(Path::new(tiny()), &model);
    damage(&model);
    on(&model)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).expect("the file is there");
    let at = if at == usize::MAX {
        bytes.len() / 2
    } else {
        at
    };
    bytes[at] ^= 0x10;
    fs::write(path, bytes).expect("it can be written");
}

#[test]
fn directories_that_are_no_models() {
    let empty = tempfile::tempdir().expect("a temporary folder");
    for run in on(empty.path()) {
        run.refused(3, &["no manifest.json", "install"]);
    }
    for run in on(&empty.path().join("none.gturbo")) {
        run.refused(3, &["none.gturbo", "check the"]);
    }
    fs::write(empty.path().join("config.json"), "{}").expect("the folder is ours");
    on(empty.path())[0].refused(3, &["checkpoint", "ouzel install --from"]);
    fs::write(empty.path().join("manifest.json"), "{\"magic\": \"GGUF\"}")
        .expect("the folder is ours");
    for run in on(empty.path()) {
        run.refused(3, &["manifest.json"]);
    }
}

#[test]
fn damaged_models() {
    for run in damaged(|dir| fs::remove_file(dir.join("model_weights.bin")).expect("it is there")) {
        run.refused(3, &["model_weights.bin"]);
    }
    let truncated = |dir: &Path| {
        let path = dir.join("packed_experts/layer_01.bin");
        let file = fs::OpenOptions::new()
            .write(true)
            .open(path)
            .expect("it is there");
        file.set_len(16_384).expect("it can be cut");
    };
    for run in damaged(truncated) {
        run.refused(3, &["layer_01.bin", "16384"]);
    }
    for run in damaged(|dir| flip(&dir.join("manifest.json"), 0)) {
        run.refused(3, &["manifest.json"]);
    }
    for run in damaged(|dir| flip(&dir.join("packed_experts/layout.json"), usize::MAX)) {
        run.refused(3, &["layout.json"]);
    }
    // The hash of gigabytes is left to `verify`; an expert's checksum is compared when it is read.
    damaged(|dir| flip(&dir.join("model_weights.bin"), usize::MAX))[1]
        .refused(3, &["model_weights.bin", "install"]);
    let every_expert = |dir: &Path| {
        let path = dir.join("packed_experts/layer_00.bin");
        let mut bytes = fs::read(&path).expect("the file is there");
        for expert in bytes.chunks_mut(16_384) {
            expert[0] ^= 1;
        }
        fs::write(path, bytes).expect("it can be written");
    };
    // One of the two names each of them.
    let [verified, used] = damaged(every_expert);
    for run in [&verified, &used] {
        assert_eq!(run.code, Some(3), "{run:?}");
        assert!(run.err.contains("layer_00.bin") && run.err.contains("install"));
    }
}

#[test]
fn the_only_installed_model_is_the_default_and_two_need_a_name() {
    let user = User::new();
    install_to("testdata/tiny-a/mlx", &user.models.join("one.gturbo"));
    let inspected = user.run(&["inspect", "--quiet"]);
    assert_eq!(inspected.err, "", "an installed model needs no word");
    assert!(inspected.ok().contains("one.gturbo"));
    install_to("testdata/tiny-b/mlx", &user.models.join("two.gturbo"));
    user.run(&["inspect"]).refused(2, &["--model", "one, two"]);
    assert!(user.run(&["inspect", "two"]).ok().contains("two.gturbo"));
    assert!(
        user.run(&["inspect", "--model", "one"])
            .ok()
            .contains("one.gturbo")
    );
    user.run(&["inspect", "three"])
        .refused(3, &["three", "one, two", "demo"]);
}

#[test]
fn inspect_shows_the_budget_and_the_smallest_that_would_do() {
    let user = User::with_demo();
    let out = user.run(&["inspect", "demo", "--memory", "72MiB"]).ok();
    for part in [
        "resident weights",
        "KV cache, 4096 tokens",
        "expert slots",
        "of 72.0 MiB allowed",
        "smallest",
    ] {
        assert!(out.contains(part), "{part}: {out}");
    }
    assert!(
        out.ends_with("reads: direct\n") || out.ends_with("reads: dropping\n"),
        "{out}"
    );
    let out = user.run(&["inspect", "demo", "--io", "buffered"]).ok();
    assert!(
        out.ends_with("reads: buffered, page cache not counted\n"),
        "{out}"
    );
    let run = user.run(&["inspect", "demo", "--memory", "1MiB"]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(
        run.out.contains("vocabulary"),
        "what the model holds is shown all the same: {run:?}"
    );
}

#[test]
fn memory_auto_takes_what_is_of_use_and_says_so() {
    let user = User::with_demo();
    let out = user.run(&["inspect", "demo", "--memory", "auto"]).ok();
    // Half of what any machine has free holds every expert of this model; more is not taken.
    let total = out
        .lines()
        .find_map(|line| line.trim().strip_prefix("total"));
    let total = total.expect("the table has a sum").trim();
    assert!(out.contains(&format!("of {total} allowed")), "{out}");
    let longer = ["inspect", "demo", "--memory", "auto", "--slots", "2"];
    let out = user.run(&longer).ok();
    assert!(!out.contains(&format!("of {total} allowed")), "{out}");

    let run = user.run(&["generate", "What is a fieldfare?", "--memory", "auto"]);
    let says = run
        .err
        .lines()
        .any(|line| line.contains("--memory auto takes"));
    assert!(says, "{run:?}");
}
