//! Damaged, partial and foreign directories: an error that names the file, and a session that can go on.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ouzel_engine::{EngineError, Model, Precision, TokenId};
use ouzel_storage::StorageError;

use crate::{installed, session};

fn open_error(dir: &Path) -> String {
    Model::open(dir)
        .expect_err("it must be refused")
        .to_string()
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .open(path)
        .expect("the file");
    file.seek(SeekFrom::Start(offset)).expect("a place in it");
    file.write_all(bytes).expect("a write");
}

#[test]
fn directories_that_are_no_finished_model_are_told_apart() {
    let (dir, model) = installed("testdata/tiny-a/mlx");
    assert!(open_error(&dir.path().join("absent")).contains("nothing at this path"));
    assert!(open_error(dir.path()).contains("unfinished"));
    assert!(open_error(&crate::repository("testdata/tiny-a/mlx")).contains("--from"));
    fs::remove_file(model.join("manifest.json")).expect("gone");
    assert!(open_error(&model).contains("manifest.json"));
}

#[test]
fn missing_cut_and_changed_files_are_named() {
    for name in [
        "model_weights.bin",
        "packed_experts/layer_03.bin",
        "packed_experts/layout.json",
        "packed_experts/checksums.bin",
        "tokenizer/config.json",
    ] {
        let (_dir, model) = installed("testdata/tiny-a/mlx");
        let path = model.join(name);
        let bytes = fs::read(&path).expect(name);
        fs::write(&path, &bytes[..bytes.len() - 1]).expect("a write");
        let error = open_error(&model);
        assert!(error.contains(name) && error.contains("size"), "{error}");
        fs::remove_file(&path).expect("gone");
        assert!(open_error(&model).contains(name));
        // The large files are not hashed when a model is opened.
        if name.ends_with(".json") || name.ends_with("checksums.bin") {
            let mut flipped = bytes.clone();
            flipped[bytes.len() / 2] ^= 1;
            fs::write(&path, &flipped).expect("a write");
            let error = open_error(&model);
            assert!(error.contains(name) && error.contains("SHA-256"), "{error}");
        }
    }
}

#[test]
fn a_flipped_bit_in_an_expert_ends_the_prefill_and_not_the_session() {
    let (_dir, path) = installed("testdata/tiny-a/mlx");
    let model = Arc::new(Model::open(&path).expect("a model"));
    let all: Vec<TokenId> = (3..40).map(TokenId).collect();
    let mut session = session(&model, Precision::Fast, |options| options.slots = Some(2));
    let layer = path.join("packed_experts/layer_02.bin");
    let whole = fs::read(&layer).expect("a layer");
    let mut flipped = whole.clone();
    for expert in flipped.chunks_exact_mut(model.bytes().expert_stride as usize) {
        expert[100] ^= 4;
    }
    overwrite(&layer, 0, &flipped);
    let mut go_on = |_| ControlFlow::Continue(());
    let error = session.prefill(&all, &mut go_on).expect_err("a checksum");
    assert!(
        matches!(&error, EngineError::Checksum { layer, .. } if layer.0 == 2),
        "{error}"
    );
    assert_eq!(session.position(), 0);

    overwrite(&layer, 0, &whole);
    session
        .prefill(&all, &mut go_on)
        .expect("the file is whole again");
    let mut fresh = crate::session(&model, Precision::Fast, |options| options.slots = Some(2));
    fresh.prefill(&all, &mut go_on).expect("a prefill");
    assert!(session.logits() == fresh.logits());
}

#[test]
fn a_file_cut_while_running_ends_in_an_error_and_not_the_session() {
    let (_dir, path) = installed("testdata/tiny-b/mlx");
    let model = Arc::new(Model::open(&path).expect("a model"));
    let mut session = session(&model, Precision::Fast, |options| options.slots = Some(0));
    let layer = path.join("packed_experts/layer_05.bin");
    let whole = fs::read(&layer).expect("a layer");
    let file = fs::OpenOptions::new()
        .write(true)
        .open(&layer)
        .expect("the layer");
    file.set_len(100).expect("cut");
    let ids: Vec<TokenId> = (3..20).map(TokenId).collect();
    let mut go_on = |_| ControlFlow::Continue(());
    let error = session.prefill(&ids, &mut go_on).expect_err("cut short");
    assert!(error.to_string().contains("layer_05.bin"), "{error}");
    overwrite(&layer, 0, &whole);
    session
        .prefill(&ids, &mut go_on)
        .expect("the file is whole again");
}

#[test]
fn a_file_cut_between_tokens_ends_the_answer_and_not_the_session() {
    let (_dir, path) = installed("testdata/tiny-b/mlx");
    let model = Arc::new(Model::open(&path).expect("a model"));
    let layer = path.join("packed_experts/layer_03.bin");
    let whole = fs::read(&layer).expect("a layer");
    let stride = model.bytes().expert_stride;
    let prompt: Vec<TokenId> = (3..20).map(TokenId).collect();
    let answer: Vec<TokenId> = (20..44).map(TokenId).collect();
    let mut go_on = |_| ControlFlow::Continue(());
    // Without slots every token reads; with some, buffers of slots and of the transit set are under way when the read fails.
    for slots in [0, 2] {
        let open = || {
            crate::session(&model, Precision::Fast, |options| {
                options.slots = Some(slots)
            })
        };
        let mut fresh = open();
        fresh.prefill(&prompt, &mut go_on).expect("a prefill");
        let mut session = open();
        for expert in [0, 1, 2] {
            session.prefill(&prompt, &mut go_on).expect("a prefill");
            session.decode(answer[0]).expect("the file is whole");
            let n_before = session.stats().decode_tokens;
            let cut = expert * stride + 100;
            let file = fs::OpenOptions::new().write(true).open(&layer);
            file.expect("the layer").set_len(cut).expect("cut");
            let failed = answer.iter().find_map(|id| session.decode(*id).err());
            let error = failed.expect("some token chooses an expert that is gone");
            let EngineError::Storage(StorageError::Truncated { path, offset, .. }) = &error else {
                panic!("{error}");
            };
            assert_eq!(path, &layer);
            assert!(offset + stride > cut && offset % stride == 0, "{error}");
            assert!(error.to_string().contains(&format!("offset {offset}")));
            assert_eq!(
                session.position(),
                0,
                "the session says that it begins anew"
            );
            // Whatever the failed token left in the slots is whole.
            overwrite(&layer, 0, &whole);
            session.reset();
            session.prefill(&prompt, &mut go_on).expect("a prefill");
            assert!(session.logits() == fresh.logits(), "{slots} slots");
            assert!(session.stats().decode_tokens >= n_before);
        }
        for id in &answer {
            let expected = fresh.decode(*id).expect("a token").to_vec();
            assert!(
                session.decode(*id).expect("a token") == expected,
                "{slots} slots"
            );
        }
    }
}
