//! A disk that dies at its nth change, for every n: what is left is nothing, a partial that the next run completes, or a
//! complete directory; and never a directory that looks complete and is not.

use std::path::Path;

use ouzel_format::paths;
use ouzel_install::{InstallError, InstallOptions, install, verify_dir};
use ouzel_storage::sim::SimDisk;
use ouzel_storage::{Disk, StorageError};

use crate::{checkpoint, disk, install_on, output};

const CHECKPOINT: &str = "testdata/tiny-b/mlx";
/// Changes of a whole installation of the test model, at most; the loop ends earlier, when an installation survives.
const MAX_CHANGES: u64 = 2000;
/// The seed of what a power cut leaves, by the number of the change.
const SEED: u64 = 7;

fn payload(disk: &SimDisk) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut files = disk.files_below(&output());
    files.remove(Path::new(paths::RECEIPT));
    files.into_iter().collect()
}

fn overwrite() -> InstallOptions {
    InstallOptions {
        overwrite: true,
        ..InstallOptions::default()
    }
}

#[test]
fn a_disk_that_dies_at_any_change_leaves_something_that_the_next_run_completes() {
    let source = checkpoint(CHECKPOINT);
    let healthy = disk();
    install_on(&healthy, &source);
    let expected = payload(&healthy);
    let mut n_resumed = 0;
    for n in 0..MAX_CHANGES {
        let dying = disk().dying_at(n);
        let outcome = install(
            &source,
            &dying,
            &output(),
            &InstallOptions::default(),
            &mut |_| {},
        );
        let survived = outcome.is_ok();
        let left = dying.after_power_cut(SEED + n);
        if left.exists(&output().join(paths::MANIFEST)) {
            verify_dir(&left, &output(), &mut |_| {})
                .unwrap_or_else(|error| panic!("change {n}: {error}"));
        }
        let again = install(&source, &left, &output(), &overwrite(), &mut |_| {})
            .unwrap_or_else(|error| panic!("change {n}: {error}"));
        n_resumed += u64::from(again.resumed_bytes > 0);
        assert_eq!(payload(&left), expected, "change {n}");
        assert_only_the_model(&left, n);
        if survived {
            assert!(n_resumed > 0, "no run went on where another had stopped");
            return;
        }
    }
    panic!("an installation makes more than {MAX_CHANGES} changes");
}

#[test]
fn replacing_a_model_never_loses_it() {
    let source = checkpoint(CHECKPOINT);
    let other = checkpoint("testdata/tiny-a/mlx");
    for n in 0..MAX_CHANGES {
        let disk = disk();
        install_on(&disk, &other);
        let dying = disk.dying_at(n);
        let survived = install(&source, &dying, &output(), &overwrite(), &mut |_| {}).is_ok();
        let left = dying.after_power_cut(SEED + n);
        // The old one or the new one is whole, in its place or one rename away from it.
        let aside = Path::new("models/model.gturbo.old");
        let whole = [output().as_path(), aside]
            .iter()
            .any(|dir| verify_dir(&left, dir, &mut |_| {}).is_ok());
        assert!(whole, "change {n}");
        install(&source, &left, &output(), &overwrite(), &mut |_| {})
            .unwrap_or_else(|error| panic!("change {n}: {error}"));
        assert_only_the_model(&left, n);
        if survived {
            return;
        }
    }
    panic!("an installation makes more than {MAX_CHANGES} changes");
}

fn assert_only_the_model(disk: &SimDisk, n: u64) {
    for path in disk.files_below(Path::new("models")).keys() {
        assert!(
            path.starts_with("model.gturbo"),
            "change {n}: {} is left",
            path.display()
        );
    }
}

#[test]
fn a_full_disk_is_refused_before_anything_is_written_or_reported_as_full() {
    let source = checkpoint(CHECKPOINT);
    let small = disk().with_capacity(1 << 20);
    let error = install(
        &source,
        &small,
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect_err("too small");
    assert!(matches!(error, InstallError::NoRoom { .. }), "{error}");
    assert!(small.files_below(Path::new("models")).is_empty());

    // A disk whose free space was overstated fills up on the way, and the next run goes on.
    let lying = Lying(disk().with_capacity(2 << 20));
    let error = install(
        &source,
        &lying,
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect_err("too small");
    assert!(
        matches!(error, InstallError::Storage(StorageError::NoSpace { .. })),
        "{error}"
    );
    let healthy = lying.0.after_power_cut(SEED);
    let again = install(
        &source,
        &healthy,
        &output(),
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect("room again");
    assert!(again.manifest.files.contains_key(paths::WEIGHTS));
}

/// Says that there is room when there is none.
struct Lying(SimDisk);

impl Disk for Lying {
    fn create(&self, path: &Path) -> Result<Box<dyn ouzel_storage::WriteFile + '_>, StorageError> {
        self.0.create(path)
    }
    fn read_at(&self, path: &Path, offset: u64, buf: &mut [u8]) -> Result<usize, StorageError> {
        self.0.read_at(path, offset, buf)
    }
    fn file_len(&self, path: &Path) -> Result<Option<u64>, StorageError> {
        self.0.file_len(path)
    }
    fn exists(&self, path: &Path) -> bool {
        self.0.exists(path)
    }
    fn names(&self, path: &Path) -> Result<Option<Vec<std::ffi::OsString>>, StorageError> {
        self.0.names(path)
    }
    fn create_dir_all(&self, path: &Path) -> Result<(), StorageError> {
        self.0.create_dir_all(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<(), StorageError> {
        self.0.rename(from, to)
    }
    fn remove_file(&self, path: &Path) -> Result<(), StorageError> {
        self.0.remove_file(path)
    }
    fn remove_dir_all(&self, path: &Path) -> Result<(), StorageError> {
        self.0.remove_dir_all(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<(), StorageError> {
        self.0.sync_dir(path)
    }
    fn free_space(&self, _path: &Path) -> Result<u64, StorageError> {
        Ok(u64::MAX / 2)
    }
}
