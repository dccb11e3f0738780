//! The disk probe reads what it is given, leaves nothing behind, and says what went wrong; how fast it is, no test asks.

use std::fs;
use std::time::Duration;

use ouzel_storage::probe::{DepthRate, DiskProbe, ProbeFiles, best};
use ouzel_storage::{IoMode, StorageError};

const PROBE: DiskProbe = DiskProbe {
    block_bytes: 16_384,
    time: Duration::from_millis(20),
    seed: 1,
};

#[test]
fn a_scratch_file_is_read_at_every_depth_and_is_nowhere_to_be_seen() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let files = ProbeFiles::scratch(dir.path(), 1 << 20, IoMode::Auto).expect("room for 1 MiB");
    let names = fs::read_dir(dir.path()).expect("the folder").count();
    assert_eq!(names, 0, "the scratch file has lost its name");
    let rates = files.rates(PROBE, &[1, 2, 4]).expect("reads");
    let depths: Vec<usize> = rates.iter().map(|rate| rate.depth).collect();
    assert_eq!(depths, [1, 2, 4]);
    assert!(rates.iter().all(|rate| rate.bytes_per_s > 0.0), "{rates:?}");
    assert!(best(&rates).is_some_and(|best| rates.contains(&best)));
}

#[test]
fn existing_files_are_read_as_far_as_they_hold_whole_blocks() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    // Only the first and the last have a block; one of them also has a rest.
    let paths: Vec<_> = [16_384, 100, 0, 40_000]
        .iter()
        .enumerate()
        .map(|(i, &len)| {
            let path = dir.path().join(i.to_string());
            fs::write(&path, vec![7; len]).expect("a small file");
            path
        })
        .collect();
    let files = ProbeFiles::open(&paths, IoMode::Auto).expect("they are there");
    let rates = files
        .rates(PROBE, &[2])
        .expect("no read goes beyond an end");
    assert!(rates[0].bytes_per_s > 0.0);
}

#[test]
fn the_best_depth_is_the_one_where_most_came() {
    let rate = |depth, bytes_per_s| DepthRate { depth, bytes_per_s };
    assert_eq!(best(&[]), None);
    let rates = [rate(1, 1.0), rate(2, 3.0), rate(4, 2.0)];
    assert_eq!(best(&rates), Some(rates[1]));
}

#[test]
fn no_room_and_no_file_are_errors() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let room = ProbeFiles::scratch(dir.path(), u64::MAX / 4, IoMode::Auto);
    assert!(
        matches!(room, Err(StorageError::NoSpace { .. })),
        "{room:?}"
    );
    let none = ProbeFiles::open(&[dir.path().join("none")], IoMode::Auto);
    assert!(matches!(none, Err(StorageError::Io { .. })), "{none:?}");
}
