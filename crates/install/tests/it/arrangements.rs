//! The same tensors in any arrangement make the same model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ouzel_format::paths;
use ouzel_install::{Checkpoint, Embedded, Source, verify_dir};
use ouzel_storage::sim::SimDisk;

use crate::synthetic::{Synthetic, is_kept};
use crate::{checkpoint, disk, install_on, output};

/// What does not depend on how the source was arranged: the manifest has the hash of its index, the receipt has the time.
fn payload(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = disk.files_below(&output());
    for name in [paths::MANIFEST, paths::RECEIPT] {
        files.remove(Path::new(name));
    }
    files
}

fn installed(source: &dyn Source) -> SimDisk {
    let disk = disk();
    install_on(&disk, source);
    disk
}

#[test]
fn scattered_shards_install_to_the_same_bytes() {
    for path in ["testdata/tiny-a/mlx", "testdata/tiny-b/mlx"] {
        let mut whole = Synthetic::from(path);
        let expected = payload(&installed(&whole.single()));
        for tower in ["vision_tower.a", "embed_vision.b", "audio_tower.c"] {
            whole.add(tower);
        }
        for seed in 0..6 {
            let source = whole.scattered(seed, 1 + seed as usize);
            let checkpoint = Checkpoint::read(&source).expect("a checkpoint");
            source.reads.borrow_mut().clear();
            assert_eq!(
                payload(&installed(&source)),
                expected,
                "{path}, seed {seed}"
            );
            // Not a byte of what is skipped was asked for.
            for tensor in checkpoint.tensors.values() {
                let overlaps = |(file, offset, len): &(String, u64, usize)| {
                    *file == tensor.shard
                        && *offset < tensor.info.end
                        && tensor.info.start < offset + *len as u64
                };
                let was_read = source.reads.borrow().iter().any(overlaps);
                assert_eq!(
                    was_read,
                    is_kept(&tensor.info.name),
                    "{path}, seed {seed}: {}",
                    tensor.info.name
                );
            }
        }
    }
}

#[test]
fn the_test_models_have_what_real_ones_have() {
    for path in ["testdata/tiny-a/mlx", "testdata/tiny-b/mlx"] {
        let model = Synthetic::from(path);
        let negative = model
            .tensors
            .iter()
            .filter(|tensor| tensor.name.ends_with(".scales"))
            .flat_map(|tensor| tensor.bytes.chunks_exact(2))
            .filter(|scale| scale[1] & 0x80 != 0);
        assert!(negative.count() > 0, "{path} has no negative scale");
    }
    let split = checkpoint("testdata/tiny-b/mlx");
    let split = Checkpoint::read(&split).expect("a checkpoint");
    let odd = split.tensors.values().filter(|t| t.info.start % 2 == 1);
    assert!(odd.count() > 0, "tiny-b has no tensor at an odd offset");
}

#[test]
fn a_single_file_needs_no_index() {
    let disk = disk();
    let source = Synthetic::from("testdata/tiny-a/mlx").single();
    let manifest = install_on(&disk, &source).manifest;
    assert_eq!(manifest.source_snapshot_hash, None);
    verify_dir(&disk, &output(), &mut |_| {}).expect("a model");
}

static CONFIG: &[u8] = include_bytes!("../../../../testdata/tiny-a/mlx/config.json");
static FILES: [(&str, &[u8]); 3] = [
    ("config.json", CONFIG),
    (
        "model.safetensors",
        include_bytes!("../../../../testdata/tiny-a/mlx/model.safetensors"),
    ),
    (
        "model.safetensors.index.json",
        include_bytes!("../../../../testdata/tiny-a/mlx/model.safetensors.index.json"),
    ),
];

#[test]
fn an_embedded_checkpoint_is_the_same_as_its_folder() {
    let embedded = Embedded::new(&FILES);
    assert_eq!(embedded.files().len(), 3);
    let (one, two) = (disk(), disk());
    let one_installed = install_on(&one, &embedded);
    let two_installed = install_on(&two, &checkpoint("testdata/tiny-a/mlx"));
    assert_eq!(one_installed.manifest, two_installed.manifest);
    assert_eq!(payload(&one), payload(&two));
    let mut buf = [0; 4];
    for (name, offset) in [
        ("absent", 0),
        ("config.json", CONFIG.len() as u64 - 3),
        ("config.json", u64::MAX),
    ] {
        let error = embedded
            .read_at(name, offset, &mut buf)
            .expect_err("no bytes");
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// A download cache keeps its snapshots as links to files named by their hash.
#[cfg(unix)]
#[test]
fn a_folder_of_links_is_a_checkpoint() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/tiny-a/mlx");
    for name in [
        "config.json",
        "model.safetensors",
        "model.safetensors.index.json",
    ] {
        std::os::unix::fs::symlink(root.join(name), dir.path().join(name)).expect("a link");
    }
    std::os::unix::fs::symlink("nowhere", dir.path().join("tokenizer.json")).expect("a link");
    let source = ouzel_install::LocalFolder::open(dir.path()).expect("a checkpoint");
    assert_eq!(
        payload(&installed(&source)),
        payload(&installed(&checkpoint("testdata/tiny-a/mlx")))
    );
}
