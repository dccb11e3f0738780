//! How much memory an installation takes: one buffer and the tables, whatever the weights weigh.

use std::path::Path;

use ouzel_hub::{COMMIT, Hub as Loopback, Options, REPOSITORY};
use ouzel_install::{
    BUFFER_BYTES, Hub, HubOptions, InstallOptions, SCRATCH_BYTES, Source, install, verify_dir,
};
use ouzel_storage::OsDisk;
use ouzel_storage::counting::count;

use crate::checkpoint;
use crate::synthetic::Hollow;

/// Two buffers, as files that are complete are hashed meanwhile, and the tables of models with a few hundred tensors and experts.
const SMALL_PEAK_BYTES: u64 = 2 * BUFFER_BYTES as u64 + (3 << 20);
/// The tables of 3,840 experts are larger: the layout alone is 8 MB of JSON.
const FULL_PEAK_BYTES: u64 = 32 << 20;

fn peak_bytes(source: &dyn Source, dir: &Path) -> (u64, u64) {
    let output = dir.join("model.gturbo");
    let options = InstallOptions::default();
    let (installed, installing) =
        count(|| install(source, &OsDisk, &output, &options, &mut |_| {}));
    let bytes = installed.expect("an installation").bytes;
    let (verified, verifying) = count(|| verify_dir(&OsDisk, &output, &mut |_| {}));
    verified.expect("a model");
    println!(
        "{bytes} bytes installed with {} bytes at once, verified with {}",
        installing.peak_bytes, verifying.peak_bytes
    );
    (installing.peak_bytes, verifying.peak_bytes)
}

#[test]
fn memory_does_not_grow_with_the_weights() {
    for path in ["testdata/tiny-b/mlx", "models/demo"] {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (installing, verifying) = peak_bytes(&checkpoint(path), dir.path());
        assert!(installing > BUFFER_BYTES as u64, "nothing was counted");
        assert!(installing <= SMALL_PEAK_BYTES, "{path}: {installing}");
        assert!(verifying <= SMALL_PEAK_BYTES, "{path}: {verifying}");
    }
}

#[test]
fn the_tables_of_the_full_topology_fit() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (installing, verifying) = peak_bytes(&Hollow::new(30, 128), dir.path());
    assert!(installing <= FULL_PEAK_BYTES, "{installing}");
    assert!(verifying <= FULL_PEAK_BYTES, "{verifying}");
}

/// Two buffers a connection and what the HTTP library may hold for it, whatever the weights weigh.
#[test]
fn a_connection_has_a_scratch_of_half_a_mebibyte() {
    const N_CONNECTIONS: u64 = 8;
    assert_eq!(SCRATCH_BYTES, 512 << 10);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
    let loopback = Loopback::serve(&root, Options::default()).expect("a port");
    let hub = Hub::open(&HubOptions {
        endpoint: loopback.endpoint(),
        connections: N_CONNECTIONS as usize,
        ..HubOptions::new(REPOSITORY, COMMIT)
    })
    .expect("a hub");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let (installing, _) = peak_bytes(&hub, dir.path());
    let most = N_CONNECTIONS * SCRATCH_BYTES as u64 + SMALL_PEAK_BYTES;
    assert!(
        installing > N_CONNECTIONS * SCRATCH_BYTES as u64 / 2,
        "nothing was counted"
    );
    assert!(installing <= most, "{installing} of {most}");
    let disk = crate::disk();
    crate::install_on(&disk, &hub);
    assert!(disk.largest_write() <= SCRATCH_BYTES);
}
