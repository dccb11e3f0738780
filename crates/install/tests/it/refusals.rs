//! Checkpoints that must be refused, each with an error that names what is wrong.

use std::fs;
use std::path::Path;

use ouzel_install::{Event, InstallOptions, LocalFolder, install, verify_dir};
use ouzel_storage::OsDisk;

use crate::{checkpoint, disk, install_on, output};

type Change = Box<dyn Fn(&Path)>;

/// Installs a copy of tiny-a after `change` was made to it, and returns the error.
fn refused(change: impl Fn(&Path)) -> String {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tiny-a/mlx");
    for entry in fs::read_dir(root).expect("the checkpoint") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), dir.path().join(entry.file_name())).expect("a copy");
    }
    change(dir.path());
    let source = match LocalFolder::open(dir.path()) {
        Ok(source) => source,
        Err(error) => return error.to_string(),
    };
    install(
        &source,
        &disk(),
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect_err("it must be refused")
    .to_string()
}

fn edit(file: &'static str, from: &'static str, to: &'static str) -> impl Fn(&Path) {
    move |dir| {
        let path = dir.join(file);
        let text = fs::read_to_string(&path).expect("a text file");
        assert!(text.contains(from), "{file} has no {from}");
        fs::write(path, text.replace(from, to)).expect("a write");
    }
}

#[test]
fn broken_and_foreign_checkpoints_are_named() {
    let index = "model.safetensors.index.json";
    let cases: [(&str, Change); 7] = [
        (
            "config.json",
            Box::new(|dir| fs::remove_file(dir.join("config.json")).expect("gone")),
        ),
        (
            "line",
            Box::new(|dir| fs::write(dir.join("config.json"), "{").expect("a write")),
        ),
        (
            "model.safetensors",
            Box::new(|dir| fs::remove_file(dir.join("model.safetensors")).expect("gone")),
        ),
        (
            "hidden_size_per_layer_input",
            Box::new(edit(
                "config.json",
                "\"hidden_size_per_layer_input\": 0",
                "\"hidden_size_per_layer_input\": 256",
            )),
        ),
        (
            "num_kv_shared_layers",
            Box::new(edit(
                "config.json",
                "\"num_kv_shared_layers\": 0",
                "\"num_kv_shared_layers\": 2",
            )),
        ),
        (
            "enable_moe_block",
            Box::new(edit(
                "config.json",
                "\"enable_moe_block\": true",
                "\"enable_moe_block\": false",
            )),
        ),
        (
            "8-bit",
            Box::new(edit("config.json", "\"bits\": 8", "\"bits\": 4")),
        ),
    ];
    for (named, change) in cases {
        let error = refused(change);
        assert!(error.contains(named), "expected a word on {named}: {error}");
    }
    let error = refused(edit(index, "layer_scalar", "layer_scaler"));
    assert!(error.contains("layer_scaler"), "{error}");
    let error = refused(|dir| {
        let path = dir.join("model.safetensors");
        let bytes = fs::read(&path).expect("the shard");
        fs::write(&path, &bytes[..bytes.len() / 2]).expect("a write");
    });
    assert!(error.contains("model.safetensors"), "{error}");
}

#[test]
fn an_existing_output_is_kept_unless_told_otherwise() {
    let disk = disk();
    let source = checkpoint("testdata/tiny-a/mlx");
    install_on(&disk, &source);
    let before = disk.files_below(&output());
    let error = install(
        &source,
        &disk,
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect_err("it exists");
    assert!(error.to_string().contains("--overwrite"), "{error}");
    assert_eq!(disk.files_below(&output()), before);
}

#[test]
fn missing_texts_are_warned_of() {
    let mut missing = Vec::new();
    let source = checkpoint("testdata/tiny-a/mlx");
    install(
        &source,
        &disk(),
        &output(),
        &InstallOptions::default(),
        &mut |event| {
            if let Event::Missing { file, .. } = event {
                missing.push(file);
            }
        },
    )
    .expect("it installs all the same");
    assert_eq!(
        missing,
        [
            "tokenizer.json",
            "tokenizer_config.json",
            "chat_template.jinja",
            "generation_config.json"
        ]
    );
}

#[test]
fn a_folder_that_is_no_model_does_not_verify() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    for path in [dir.path().to_owned(), dir.path().join("absent")] {
        let error = verify_dir(&OsDisk, &path, &mut |_| {}).expect_err("no model");
        assert!(
            error.to_string().contains(&*path.to_string_lossy()),
            "{error}"
        );
    }
}
