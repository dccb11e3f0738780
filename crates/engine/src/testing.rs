//! What the tests of this crate share: installed models and recorded stages.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ouzel_install::{InstallOptions, LocalFolder};
use ouzel_storage::OsDisk;
use tempfile::TempDir;

use crate::Model;

/// A model installed into a folder that goes away with it.
pub struct Installed {
    pub model: Arc<Model>,
    _dir: TempDir,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Installs the checkpoint at `checkpoint`, relative to the repository.
pub fn install(checkpoint: &str) -> Installed {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let output = dir.path().join("model.gturbo");
    let source = LocalFolder::open(&root().join(checkpoint)).expect("the checkpoint");
    ouzel_install::install(
        &source,
        &OsDisk,
        &output,
        &InstallOptions::default(),
        &mut |_| {},
    )
    .unwrap_or_else(|error| panic!("{checkpoint}: {error}"));
    Installed {
        model: Arc::new(
            Model::open(&output).unwrap_or_else(|error| panic!("{checkpoint}: {error}")),
        ),
        _dir: dir,
    }
}
