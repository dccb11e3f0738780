//! Damage is found file by file and expert by expert, and only that comes again.

use std::path::Path;

use ouzel_format::paths;
use ouzel_hub::{COMMIT, Hub as Loopback, Options, REPOSITORY};
use ouzel_install::{
    Hub, HubOptions, InstallError, InstallOptions, discard, find_damage, install, remove, repair,
    verify_dir,
};
use ouzel_storage::Disk;
use ouzel_storage::sim::SimDisk;

use crate::{checkpoint, disk, install_on, output};

const DEMO: &str = "models/demo";
/// One expert of the demo model in each of its tensors' ranges, and a margin.
const FEW_BYTES: u64 = 2 << 20;

fn flip(disk: &SimDisk, file: &str, byte: usize) {
    disk.flip_bit(&output().join(file), byte);
}

#[test]
fn every_damage_is_named_and_only_that_comes_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let loopback = Loopback::serve(&root.join(DEMO), Options::default()).expect("a port");
    let hub = Hub::open(&HubOptions {
        endpoint: loopback.endpoint(),
        ..HubOptions::new(REPOSITORY, COMMIT)
    })
    .expect("a hub");
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
    let found = find_damage(&disk, &output(), &mut |_| {}).expect("a model");
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
            return;
        }
    }
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
    assert!(matches!(error, InstallError::Foreign { .. }), "{error}");
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
