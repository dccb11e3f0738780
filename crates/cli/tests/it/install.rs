//! `ouzel install` and `ouzel verify`.

use std::fs;

use crate::tool::{User, install_to, repository};

#[test]
fn a_checkpoint_installs_under_its_name_and_verifies() {
    let user = User::new();
    let checkpoint = repository("testdata/tiny-a/mlx");
    let from = checkpoint
        .to_str()
        .expect("the repository has a plain name");
    let run = user.run(&["install", "--from", from]);
    assert!(run.ok().contains("mlx.gturbo: "));
    let verified = user.run(&["verify", "mlx"]).ok();
    assert!(verified.contains("every expert as installed"), "{verified}");
    user.run(&["install", "--from", from])
        .refused(2, &["already exists", "--overwrite"]);
    user.run(&["install", "--from", from, "--overwrite"]).ok();
    let names: Vec<_> = fs::read_dir(&user.models)
        .expect("the models folder is there")
        .map(|entry| entry.expect("it can be listed").file_name())
        .collect();
    assert_eq!(names, ["mlx.gturbo"], "nothing else is left behind");
    assert!(user.run(&["inspect"]).ok().contains("mlx.gturbo"));
}

/// What a dry run shows is what an installation shows before it begins, from a folder as from a hub.
#[test]
fn an_installation_says_what_it_will_do_before_it_does_it() {
    let user = User::new();
    let tiny = repository("testdata/tiny-a/mlx").display().to_string();
    let output = user.path("models/birds.gturbo");
    let install = |more: &[&str]| {
        let args = ["install", "--from", &tiny, "--output", &output];
        user.run(&[&args[..], more].concat())
    };
    let planned = install(&["--dry-run"]).ok();
    for part in [
        "from",
        "tiny-a/mlx",
        "transfer",
        "bytes",
        &output,
        "stay free",
    ] {
        assert!(planned.contains(part), "{part}: {planned}");
    }
    assert!(!user.models.exists(), "a dry run leaves nothing behind");
    let run = install(&[]);
    // What is free may have changed meanwhile.
    for line in planned.lines().filter(|line| !line.contains("free")) {
        assert!(run.err.contains(line), "{line}: {run:?}");
    }
    assert!(run.err.contains("stay free"), "{run:?}");
    run.ok();
    let quiet = install(&["--overwrite", "--quiet"]);
    assert!(!quiet.err.contains("transfer"), "{quiet:?}");
    quiet.ok();
}

#[test]
fn a_dry_run_notices_that_nothing_can_be_made_there() {
    let user = User::new();
    let tiny = repository("testdata/tiny-a/mlx").display().to_string();
    let refused = |output: &str, says: &str| {
        for more in [&["--dry-run"][..], &[]] {
            let args = ["install", "--from", &tiny, "--output", output];
            let run = user.run(&[&args[..], more].concat());
            run.refused(5, &[says, "nothing can be installed there", "--output"]);
        }
    };
    let file = user.file("a-file", b"mine");
    refused(&format!("{file}/model.gturbo"), "a-file");
    refused(&format!("{file}/below/model.gturbo"), "a-file");
    // Nobody can make anything there, not even root.
    if cfg!(target_os = "linux") {
        refused("/proc/model.gturbo", "/proc");
    }
}

/// A line stays a line, whatever a path is called.
#[cfg(unix)]
#[test]
fn a_path_with_a_newline_breaks_no_line() {
    let user = User::new();
    let tiny = repository("testdata/tiny-a/mlx").display().to_string();
    let (odd, shown) = ("mo\ndel\u{1b}[1m", "mo\\ndel\\u{1b}[1m");
    let nowhere = user.path(odd);
    user.run(&["inspect", &nowhere]).refused(3, &[shown]);
    user.run(&["install", "--from", &nowhere])
        .refused(3, &[shown]);
    user.run(&["generate", "--messages-file", &nowhere])
        .refused(2, &[shown]);
    let file = user.file(odd, b"no model");
    user.run(&["verify", &file]).refused(3, &[shown]);
    let below = format!("{file}/model.gturbo");
    user.run(&["install", "--from", &tiny, "--output", &below])
        .refused(5, &[shown]);
    let output = format!("{}.gturbo", user.models.join(odd).display());
    let run = user.run(&["install", "--from", &tiny, "--output", &output]);
    let n_lines = run.err.lines().count();
    assert!(run.err.contains(shown), "{run:?}");
    assert_eq!(run.ok().lines().count(), 1);
    let plain = user.run(&[
        "install",
        "--from",
        &tiny,
        "--output",
        &user.path("plain.gturbo"),
    ]);
    assert_eq!(plain.err.lines().count(), n_lines, "as with any other name");
    // A program gets the path as it is.
    let args = ["install", "--from", &tiny, "--output", &output];
    let json = user.run(&[&args[..], &["--overwrite", "--progress", "json"]].concat());
    let json = json.ok();
    let last: serde_json::Value =
        serde_json::from_str(json.lines().last().expect("events")).expect("JSON");
    assert_eq!(last["path"], output);
    for args in [&["models"][..], &["inspect", &output], &["verify", &output]] {
        let said = user.run(args).ok();
        assert!(!said.contains(odd), "{said}");
    }
}

#[test]
fn the_name_of_the_bundled_model_is_taken() {
    let user = User::new();
    let demo = repository("models/demo");
    let from = demo.to_str().expect("the repository has a plain name");
    user.run(&["install", "--from", from])
        .refused(2, &["bundled model", "--output"]);
    let output = |name: &str| user.models.join(name).display().to_string();
    for name in ["demo.gturbo", "demo-0123456789abcdef.gturbo"] {
        user.run(&["install", "--from", from, "--output", &output(name)])
            .refused(2, &[name, "bundled model"]);
    }
    // A slash at the end changes nothing.
    let run = user.run(&[
        "install",
        "--from",
        from,
        "--output",
        &output("birds.gturbo/"),
    ]);
    assert!(!run.err.contains("no "), "nothing is missing: {run:?}");
    run.ok();
    assert!(user.run(&["inspect"]).ok().contains("birds.gturbo"));
}

#[test]
fn an_installation_that_is_at_work_or_was_cut_short() {
    let user = User::new();
    let partial = user.models.join("birds.gturbo.partial");
    fs::create_dir_all(&partial).expect("the folder is ours");
    let path = user.path("models/birds.gturbo");
    for model in ["birds", &path] {
        user.run(&["inspect", model])
            .refused(3, &["birds.gturbo", "cut short"]);
    }
    let file = fs::File::create(user.path("models/birds.gturbo.lock")).expect("it is ours");
    file.lock().expect("nobody else has it");
    let tiny = repository("testdata/tiny-a/mlx");
    let tiny = tiny.to_str().expect("the repository has a plain name");
    user.run(&["install", "--from", tiny, "--output", &path])
        .refused(5, &["another ouzel is at work"]);
    let list = user.run(&["models"]).ok();
    assert!(list.contains("installing"), "{list}");
    drop(file);
    let list = user.run(&["models"]).ok();
    assert!(list.contains("unfinished"), "{list}");
}

#[test]
fn without_its_receipt_a_manifest_is_not_called_as_installed() {
    let user = User::new();
    let output = user.models.join("tiny.gturbo");
    install_to("testdata/tiny-a/mlx", &output);
    fs::remove_file(output.join("verified-install.json")).expect("it was there");
    let said = user.run(&["verify".as_ref(), output.as_os_str()]).ok();
    assert!(
        said.contains("could not be checked") && !said.contains("as installed"),
        "{said}"
    );
}

#[test]
fn a_checkpoint_without_text_installs_with_a_word() {
    let user = User::new();
    let tiny = repository("testdata/tiny-a/mlx");
    let output = user.models.join("tiny.gturbo");
    let run = user.run(&[
        "install".as_ref(),
        "--from".as_ref(),
        tiny.as_os_str(),
        "--output".as_ref(),
        output.as_ref(),
    ]);
    assert!(
        run.err.contains("no tokenizer.json") && run.err.contains("no chat_template.jinja"),
        "{run:?}"
    );
    run.ok();
}

#[test]
fn folders_that_hold_no_checkpoint() {
    let user = User::new();
    let empty = tempfile::tempdir().expect("a temporary folder");
    let dir = empty
        .path()
        .to_str()
        .expect("temporary folders have plain names");
    user.run(&["install", "--from", "/no/such/folder"])
        .refused(3, &["/no/such/folder"]);
    user.run(&["install", "--from", dir])
        .refused(3, &["config.json"]);
    fs::write(
        empty.path().join("config.json"),
        "{\"model_type\": \"llama\"}",
    )
    .expect("the folder is ours");
    let run = user.run(&["install", "--from", dir]);
    run.refused(3, &["config.json"]);
    assert_eq!(
        fs::read_dir(&user.models).map_or(0, Iterator::count),
        0,
        "nothing was written"
    );
}
