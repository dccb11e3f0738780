//! Damage is found file by file and expert by expert, and only that comes again.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use ouzel_format::paths;
use ouzel_hub::{COMMIT, Hub as Loopback, Options, REPOSITORY};
use ouzel_install::{
    Event, Hub, HubOptions, InstallError, InstallOptions, discard, find_damage, install, remove,
    repair, verify_dir,
};
use ouzel_storage::Disk;
use ouzel_storage::sim::SimDisk;

use crate::{checkpoint, disk, install_on, output};

const DEMO: &str = "models/demo";
/// One expert of the demo model in each of its tensors' ranges, and a margin.
const FEW_BYTES: u64 = 2 << 20;

/// A hub that serves the demo's checkpoint, and its client.
fn hub() -> (Loopback, Hub) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let loopback = Loopback::serve(&root.join(DEMO), Options::default()).expect("a port");
    let hub = Hub::open(&HubOptions {
        endpoint: loopback.endpoint(),
        ..HubOptions::new(REPOSITORY, COMMIT)
    });
    (loopback, hub.expect("a hub"))
}

fn flip(disk: &SimDisk, file: &str, byte: usize) {
    disk.flip_bit(&output().join(file), byte);
}

#[test]
fn every_damage_is_named_and_only_that_comes_again() {
    let (loopback, hub) = hub();
    let disk = disk();
    let options = InstallOptions::default();
    install(&hub, &disk, &output(), &options, &mut |_| {}).expect("a model");
    let healthy = disk.files_below(&output());
    let whole = repair(&hub, &disk, &output(), &options, &mut |_| {}).expect("a model");
    assert!(whole.is_none(), "nothing is damaged");

    let stride = 16_384;
    flip(&disk, "packed_experts/layer_03.bin", 5 * stride + 77);
    flip(&disk, "packed_experts/layer_03.bin", 9 * stride + 1);
    flip(&disk, "packed_experts/layer_00.bin", 9);
    let paused = find_damage(&disk, &output(), &AtomicBool::new(true), &mut |_| {});
    assert!(matches!(paused, Err(InstallError::Paused)), "{paused:?}");
    let found = find_damage(&disk, &output(), &AtomicBool::new(false), &mut |_| {});
    let found = found.expect("a model");
    let named: Vec<String> = found
        .damages
        .iter()
        .map(|damage| format!("{} {}", damage.path.display(), damage.expected))
        .collect();
    assert!(named.len() >= 3, "{named:?}");
    assert!(named[0].contains("layer_00.bin") && named[0].ends_with("for expert 0"));
    assert!(named[1].contains("layer_03.bin"), "{named:?}");
    let before = loopback.bytes_sent();
    let repaired = repair(&hub, &disk, &output(), &options, &mut |_| {}).expect("a hub");
    let came = loopback.bytes_sent() - before;
    println!("{came} bytes came for {} damaged experts", named.len());
    assert!(came < FEW_BYTES, "{came} bytes came");
    assert!(repaired.expect("it was damaged").resumed_bytes > 0);
    let same = |disk: &SimDisk| {
        let mut files = disk.files_below(&output());
        files.remove(Path::new(paths::RECEIPT));
        let mut expected = healthy.clone();
        expected.remove(Path::new(paths::RECEIPT));
        assert!(files == expected);
    };
    same(&disk);
    for file in [
        paths::WEIGHTS,
        paths::LAYOUT,
        paths::CHECKSUMS,
        paths::MANIFEST,
        "tokenizer/tokenizer.json",
    ] {
        flip(&disk, file, 100);
        repair(&hub, &disk, &output(), &options, &mut |_| {})
            .unwrap_or_else(|error| panic!("{file}: {error}"))
            .unwrap_or_else(|| panic!("{file}: the damage was not seen"));
        same(&disk);
        if file != paths::MANIFEST {
            disk.remove_file(&output().join(file)).expect("healthy");
            repair(&hub, &disk, &output(), &options, &mut |_| {}).expect(file);
            same(&disk);
        }
    }
}

#[test]
fn a_repair_that_is_cut_short_goes_on() {
    let source = checkpoint("testdata/tiny-a/mlx");
    let healthy = disk();
    install_on(&healthy, &source);
    flip(&healthy, "packed_experts/layer_02.bin", 40_000);
    let options = InstallOptions::default();
    for n in (0..).step_by(3) {
        let dying = healthy.after_power_cut(0).dying_at(n);
        let result = repair(&source, &dying, &output(), &options, &mut |_| {});
        let left = dying.after_power_cut(n);
        // Damaged as before, unfinished, or good; then good.
        let _ = repair(&source, &left, &output(), &options, &mut |_| {})
            .unwrap_or_else(|error| panic!("change {n}: {error}"));
        verify_dir(&left, &output(), &mut |_| {})
            .unwrap_or_else(|error| panic!("change {n}: {error}"));
        if result.is_ok() {
            assert!(n > 0, "the damage was not seen");
            println!("{n} changes");
            return;
        }
    }
}

/// Where the manifest is lost, the receipt of the same commit says what is good; without a receipt the manifest does, and a receipt
/// is written again.
#[test]
fn a_lost_manifest_or_receipt_costs_no_weights() {
    let (loopback, hub) = hub();
    let disk = disk();
    let options = InstallOptions {
        repository: Some(REPOSITORY.to_owned()),
        revision: Some(COMMIT.to_owned()),
        model_id: Some("bird".to_owned()),
        ..InstallOptions::default()
    };
    install(&hub, &disk, &output(), &options, &mut |_| {}).expect("a model");
    let manifest = |disk: &SimDisk| disk.files_below(&output())[Path::new(paths::MANIFEST)].clone();
    let expected = manifest(&disk);
    for (file, is_lost) in [
        (paths::MANIFEST, true),
        (paths::MANIFEST, false),
        (paths::RECEIPT, true),
        (paths::RECEIPT, false),
    ] {
        match is_lost {
            true => disk.remove_file(&output().join(file)).expect("healthy"),
            // Its first letter: no JSON any more.
            false => flip(&disk, file, 0),
        }
        let before = loopback.bytes_sent();
        let repaired = repair(&hub, &disk, &output(), &options, &mut |_| {})
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(repaired.is_some(), "{file}");
        let came = loopback.bytes_sent() - before;
        assert!(
            came < FEW_BYTES,
            "{file}, lost {is_lost}: {came} bytes came"
        );
        assert!(manifest(&disk) == expected, "{file}");
        let verified = verify_dir(&disk, &output(), &mut |_| {}).expect(file);
        assert!(verified.has_receipt);
    }
    // Another commit's receipt vouches for nothing.
    disk.remove_file(&output().join(paths::MANIFEST))
        .expect("healthy");
    let other = InstallOptions {
        revision: Some("0".repeat(40)),
        ..options
    };
    let before = loopback.bytes_sent();
    repair(&hub, &disk, &output(), &other, &mut |_| {}).expect("everything comes again");
    assert!(loopback.bytes_sent() - before > FEW_BYTES);
}

/// A repair with the wrong checkpoint does not throw away what was fetched of another one; an installation does, and says so.
#[test]
fn what_is_unfinished_is_not_repaired_with_something_else() {
    let source = checkpoint("testdata/tiny-a/mlx");
    let options = InstallOptions::default();
    let dying = disk().dying_at(60);
    install(&source, &dying, &output(), &options, &mut |_| {}).expect_err("it dies");
    let left = dying.after_power_cut(1);
    let before = left.files_below(Path::new("models"));
    let other = checkpoint("testdata/tiny-b/mlx");
    let error = repair(&other, &left, &output(), &options, &mut |_| {}).expect_err("another one");
    assert!(
        matches!(error, InstallError::OtherCheckpoint { .. }),
        "{error}"
    );
    assert!(left.files_below(Path::new("models")) == before);
    let mut discarded = 0;
    install(&other, &left, &output(), &options, &mut |event| {
        if let Event::Discards { bytes } = event {
            discarded = bytes;
        }
    })
    .expect("a model");
    assert!(discarded > 0, "it is told of");
}

/// Without room a damaged model stays what it is: it may still be good for something. What it takes already is not asked for again.
#[test]
fn a_full_disk_leaves_a_damaged_model_as_it_is() {
    let source = checkpoint("testdata/tiny-a/mlx");
    let healthy = disk();
    install_on(&healthy, &source);
    flip(&healthy, paths::WEIGHTS, 100);
    let before = healthy.files_below(Path::new("models"));
    let size: u64 = before.values().map(|bytes| bytes.len() as u64).sum();
    let options = InstallOptions::default();
    let full = healthy.after_power_cut(0).with_capacity(size + 1000);
    let error = repair(&source, &full, &output(), &options, &mut |_| {}).expect_err("full");
    assert!(matches!(error, InstallError::NoRoom { .. }), "{error}");
    assert!(full.files_below(Path::new("models")) == before);
    let enough = healthy
        .after_power_cut(0)
        .with_capacity(size + size / 8 + (1 << 20));
    repair(&source, &enough, &output(), &options, &mut |_| {}).expect("the reserve is enough");
}

#[test]
fn a_repair_can_be_cancelled_while_it_looks() {
    let source = checkpoint("testdata/tiny-a/mlx");
    let disk = disk();
    install_on(&disk, &source);
    flip(&disk, paths::WEIGHTS, 100);
    let before = disk.files_below(Path::new("models"));
    let options = InstallOptions::default();
    options
        .cancel
        .store(true, std::sync::atomic::Ordering::Relaxed);
    let error = repair(&source, &disk, &output(), &options, &mut |_| {}).expect_err("cancelled");
    assert!(matches!(error, InstallError::Paused), "{error}");
    assert!(disk.files_below(Path::new("models")) == before);
}

#[test]
fn another_checkpoint_repairs_nothing() {
    let disk = disk();
    install_on(&disk, &checkpoint("testdata/tiny-a/mlx"));
    flip(&disk, paths::WEIGHTS, 100);
    let before = disk.files_below(Path::new(""));
    let options = InstallOptions::default();
    let other = checkpoint(DEMO);
    let error = repair(&other, &disk, &output(), &options, &mut |_| {}).expect_err("another one");
    assert!(
        matches!(error, InstallError::OtherCheckpoint { .. }),
        "{error}"
    );
    assert!(
        disk.files_below(Path::new("")) == before,
        "nothing was touched"
    );
    let nothing = Path::new("models/none.gturbo");
    let error = repair(&other, &disk, nothing, &options, &mut |_| {}).expect_err("nothing there");
    assert!(matches!(error, InstallError::NotAModel { .. }), "{error}");
}

#[test]
fn what_is_removed_is_a_model_and_what_belongs_to_it() {
    let source = checkpoint("testdata/tiny-a/mlx");
    let dying = disk().dying_at(60);
    let options = InstallOptions::default();
    install(&source, &dying, &output(), &options, &mut |_| {}).expect_err("it dies");
    let left = dying.after_power_cut(1);
    assert!(discard(&left, &output()).expect("a partial"));
    assert!(!discard(&left, &output()).expect("nothing"));
    assert!(left.files_below(Path::new("models")).is_empty());
    install_on(&left, &source);
    remove(&left, &output()).expect("a model");
    assert!(left.files_below(Path::new("models")).is_empty());
    install_on(&left, &source);
    let mut file = left
        .create(&output().join("thesis.txt"))
        .expect("a healthy disk");
    file.write_at(0, b"mine").expect("a healthy disk");
    drop(file);
    let error = remove(&left, &output()).expect_err("it holds a thesis");
    assert!(error.to_string().contains("thesis.txt"), "{error}");
}
