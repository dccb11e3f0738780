//! A disk that dies at its nth change, for every n: what is left is nothing, a partial that the next run completes, or a
//! complete directory; and never a directory that looks complete and is not.

use std::path::Path;

use ouzel_format::paths;
use ouzel_install::{InstallError, InstallOptions, Installed, Source, install, verify_dir};
use ouzel_storage::sim::SimDisk;
use ouzel_storage::{Disk, StorageError};

use crate::synthetic::Synthetic;
use crate::{checkpoint, disk, install_on, output};

const CHECKPOINT: &str = "testdata/tiny-a/mlx";
/// Changes of a whole installation of the test model, at most; the loop ends earlier, when an installation survives.
const MAX_CHANGES: u64 = 2000;
/// Seeds of what a power cut leaves; the number of the change is added. A failure prints their sum.
const SEEDS: [u64; 2] = [7, 100_007];

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
        let survived = try_install(&source, &dying, &InstallOptions::default()).is_ok();
        for seed in SEEDS.map(|seed| seed + n) {
            let left = dying.after_power_cut(seed);
            let looks_complete = left.exists(&output().join(paths::MANIFEST));
            assert!(
                looks_complete || !survived,
                "change {n}, seed {seed}: a finished installation is gone"
            );
            if looks_complete {
                verify_dir(&left, &output(), &mut |_| {})
                    .unwrap_or_else(|error| panic!("change {n}, seed {seed}: {error}"));
            }
            let again = try_install(&source, &left, &overwrite())
                .unwrap_or_else(|error| panic!("change {n}, seed {seed}: {error}"));
            n_resumed += u64::from(again.resumed_bytes > 0);
            assert_eq!(payload(&left), expected, "change {n}, seed {seed}");
            assert_only_the_model(&left, n);
        }
        if survived {
            println!("{n} changes, {n_resumed} installations resumed");
            assert!(n_resumed > 0, "no run went on where another had stopped");
            return;
        }
    }
    panic!("an installation makes more than {MAX_CHANGES} changes");
}

/// Changes at the end of an installation among which the old model is touched.
const SWAP_CHANGES: u64 = 100;
/// Before them every so many-th change stands for its neighbours.
const STEP: usize = 7;

#[test]
fn replacing_a_model_never_loses_it() {
    let source = checkpoint(CHECKPOINT);
    let before = disk();
    install_on(&before, &checkpoint("testdata/tiny-b/mlx"));
    // All of it is durable, so that a power cut takes nothing.
    let copy = || before.after_power_cut(0);
    let whole = copy().dying_at(u64::MAX);
    try_install(&source, &whole, &overwrite()).expect("healthy");
    let n_changes = whole.n_changes();
    let late = n_changes - SWAP_CHANGES;
    for n in (0..late).step_by(STEP).chain(late..=n_changes) {
        let dying = copy().dying_at(n);
        let survived = try_install(&source, &dying, &overwrite()).is_ok();
        assert_eq!(survived, n == n_changes);
        for seed in SEEDS.map(|seed| seed + n) {
            let left = dying.after_power_cut(seed);
            // The old one or the new one is whole, in its place or one rename away from it.
            let aside = Path::new("models/model.gturbo.old");
            let whole = [output().as_path(), aside]
                .iter()
                .any(|dir| verify_dir(&left, dir, &mut |_| {}).is_ok());
            assert!(whole, "change {n}, seed {seed}");
            try_install(&source, &left, &overwrite())
                .unwrap_or_else(|error| panic!("change {n}, seed {seed}: {error}"));
            verify_dir(&left, &output(), &mut |_| {}).expect("the new model");
            assert_only_the_model(&left, n);
        }
    }
}

#[test]
fn after_one_failed_change_the_same_call_goes_on() {
    let source = checkpoint(CHECKPOINT);
    let healthy = disk();
    install_on(&healthy, &source);
    let expected = payload(&healthy);
    for n in 0..MAX_CHANGES {
        let failing = disk().failing_at(n);
        let options = InstallOptions::default();
        let outcome = try_install(&source, &failing, &options);
        if outcome.is_err() {
            try_install(&source, &failing, &overwrite())
                .unwrap_or_else(|error| panic!("change {n}: {error}"));
        }
        assert_eq!(payload(&failing), expected, "change {n}");
        assert_only_the_model(&failing, n);
        if outcome.is_ok() {
            return;
        }
    }
    panic!("an installation makes more than {MAX_CHANGES} changes");
}

/// A fine-tune has its base's shapes, so its headers are the same; only its bytes and its version differ.
#[test]
fn two_checkpoints_are_never_mixed() {
    let model = Synthetic::from("testdata/tiny-a/mlx");
    let mut tuned = model.clone();
    for tensor in &mut tuned.tensors {
        tensor.bytes.reverse();
    }
    let (mut base, mut tuned) = (model.single(), tuned.single());
    (base.version, tuned.version) = ("monday".to_owned(), "tuesday".to_owned());
    let healthy = disk();
    install_on(&healthy, &tuned);
    for n in 0..MAX_CHANGES {
        let dying = disk().dying_at(n);
        let survived = try_install(&base, &dying, &InstallOptions::default()).is_ok();
        let left = dying.after_power_cut(SEEDS[0] + n);
        try_install(&tuned, &left, &overwrite()).expect("healthy");
        assert_eq!(payload(&left), payload(&healthy), "change {n}");
        if survived {
            return;
        }
    }
    panic!("an installation makes more than {MAX_CHANGES} changes");
}

#[test]
fn what_landed_is_compared_before_it_is_trusted() {
    let source = checkpoint(CHECKPOINT);
    let healthy = disk();
    install_on(&healthy, &source);
    // Everything has landed and is recorded; what is left is records and renames.
    let dying = disk().dying_at(healthy.n_changes() - 20);
    try_install(&source, &dying, &InstallOptions::default()).expect_err("it died");
    let partial = Path::new("models/model.gturbo.partial");
    let resume = |flips: &[(&str, usize)]| {
        let left = dying.after_power_cut(SEEDS[0]);
        for &(file, byte) in flips {
            left.flip_bit(&partial.join(file), byte);
        }
        let again = try_install(&source, &left, &InstallOptions::default()).expect("healthy");
        assert_eq!(payload(&left), payload(&healthy), "{flips:?}");
        again.resumed_bytes
    };
    let all = resume(&[]);
    assert!(all > 900 << 10, "{all} bytes were recorded");
    // Each costs its own range and no other.
    let one = resume(&[(paths::WEIGHTS, 20_000)]);
    let two = resume(&[(paths::WEIGHTS, 20_000), ("packed_experts/layer_01.bin", 9)]);
    let range = 32 << 10;
    assert!(all - range <= one && one < all, "{one} of {all}");
    assert!(all - 2 * range <= two && two < one, "{two} of {all}");
    // What no checkpoint has lands anew in every run.
    assert_eq!(resume(&[(paths::LAYOUT, 5), (paths::WEIGHTS, 3)]), all);
}

/// The folders above the output are new, and as durable as what is in them.
#[test]
fn a_finished_installation_in_new_folders_survives_a_power_cut() {
    let disk = disk();
    let output = Path::new("models/of/mine/model.gturbo");
    let source = checkpoint(CHECKPOINT);
    install(
        &source,
        &disk,
        output,
        &InstallOptions::default(),
        &mut |_| {},
    )
    .expect("healthy");
    for seed in 0..20 {
        let left = disk.after_power_cut(seed);
        verify_dir(&left, output, &mut |_| {})
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

fn try_install(
    source: &dyn Source,
    disk: &SimDisk,
    options: &InstallOptions,
) -> Result<Installed, InstallError> {
    install(source, disk, &output(), options, &mut |_| {})
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
    assert!(
        matches!(error, InstallError::NoRoom { needed, reserve, .. } if reserve <= needed / 8),
        "a small model keeps a small reserve: {error}"
    );
    assert!(small.files_below(Path::new("models")).is_empty());

    // A disk whose free space was overstated fills up on the way, and the next run goes on.
    let lying = Lying(disk().with_capacity(600 << 10));
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
    let healthy = lying.0.after_power_cut(SEEDS[0]);
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
    fn open_write(
        &self,
        path: &Path,
    ) -> Result<Box<dyn ouzel_storage::WriteFile + '_>, StorageError> {
        self.0.open_write(path)
    }
    fn read_at(&self, path: &Path, offset: u64, buf: &mut [u8]) -> Result<usize, StorageError> {
        self.0.read_at(path, offset, buf)
    }
    fn file_len(&self, path: &Path) -> Result<Option<u64>, StorageError> {
        self.0.file_len(path)
    }
    fn taken(&self, path: &Path) -> Result<u64, StorageError> {
        self.0.taken(path)
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
