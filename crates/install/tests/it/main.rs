//! Installing the test models and the demo model: the bytes that come out, and what is left when the disk fails.

mod arrangements;
mod encrypted;
mod faults;
mod hub;
mod layout;
mod memory;
mod refusals;
mod repair;
mod synthetic;
mod verification;

use std::path::{Path, PathBuf};

use ouzel_install::{InstallOptions, Installed, LocalFolder, Source, install};
use ouzel_storage::Disk;
use ouzel_storage::counting::CountingAllocator;
use ouzel_storage::sim::SimDisk;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// The checkpoints of this repository.
pub const CHECKPOINTS: [&str; 3] = ["testdata/tiny-a/mlx", "testdata/tiny-b/mlx", "models/demo"];

/// Opens a checkpoint of this repository.
pub fn checkpoint(path: &str) -> LocalFolder {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    LocalFolder::open(&root.join(path)).expect("a checkpoint of the repository")
}

/// Where the tests install on the simulated disk.
pub fn output() -> PathBuf {
    PathBuf::from("models/model.gturbo")
}

/// A simulated disk with the folder that [`output`] is in.
pub fn disk() -> SimDisk {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("models"))
        .and_then(|()| disk.sync_dir(Path::new("")))
        .expect("a healthy disk");
    disk
}

/// Installs on a healthy simulated disk.
pub fn install_on(disk: &SimDisk, source: &dyn Source) -> Installed {
    install(
        source,
        disk,
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect("an installation")
}
