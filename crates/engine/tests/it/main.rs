//! Whole sessions on the demo model: its goldens, a prompt longer than its window, the arena, and what a damaged model says.

mod arena;
mod damage;
mod demo;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ouzel_engine::{Model, Options, Precision, Session, TokenId};
use ouzel_install::{InstallOptions, LocalFolder, install};
use ouzel_storage::OsDisk;
use ouzel_storage::counting::CountingAllocator;
use tempfile::TempDir;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A file of this repository.
pub fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// Installs a checkpoint of this repository into a folder that goes away with the first value.
pub fn installed(checkpoint: &str) -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let output = dir.path().join("model.gturbo");
    let source = LocalFolder::open(&repository(checkpoint)).expect("the checkpoint");
    install(
        &source,
        &OsDisk,
        &output,
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect("an installation");
    (dir, output)
}

/// A session with few slots, so that experts stream.
pub fn session(
    model: &Arc<Model>,
    precision: Precision,
    change: impl FnOnce(&mut Options),
) -> Session {
    let mut options = Options {
        precision,
        slots: Some(8),
        threads: Some(2),
        ..Options::default()
    };
    change(&mut options);
    Session::new(Arc::clone(model), &options).expect("a session")
}

/// The index of the largest logit, the first of equals.
pub fn argmax(logits: &[f32]) -> TokenId {
    let best = (1..logits.len()).fold(0, |best, i| if logits[i] > logits[best] { i } else { best });
    TokenId(best as u32)
}
