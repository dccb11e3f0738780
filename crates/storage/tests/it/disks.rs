//! The simulated disk against the real one, and against its own word about power cuts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use ouzel_storage::sim::SimDisk;
use ouzel_storage::{Disk, OsDisk, StorageError};

/// Seeds of the random walks; a failure prints its own.
const SEEDS: std::ops::Range<u64> = 0..60;
const STEPS: usize = 60;

struct Random(u64);

impl Random {
    /// Knuth's MMIX constants; the high bits are good enough to choose steps.
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Does one random thing, chosen by `random`, below `root`, and says what it saw.
fn step(disk: &dyn Disk, root: &Path, random: &mut Random) -> String {
    const DIRS: [&str; 3] = ["a", "b", "b/c"];
    const FILES: [&str; 4] = ["x", "a/x", "b/y", "b/c/z"];
    let kind = random.below(10);
    let dir = root.join(DIRS[random.below(3) as usize]);
    let file = root.join(FILES[random.below(4) as usize]);
    let other = file.with_file_name("w");
    let n = random.below(5000);
    let seen = match kind {
        0 => disk.create_dir_all(&dir).map(|()| String::new()),
        1 | 2 => disk.create(&file).and_then(|mut open| {
            open.write_at(0, &vec![n as u8; n as usize])?;
            open.write_at(n, b"end")?;
            open.sync()?;
            Ok(String::new())
        }),
        9 => disk.open_write(&file).and_then(|mut open| {
            open.write_at(n, b"somewhere")?;
            open.begin_sync();
            open.sync()?;
            Ok(String::new())
        }),
        3 => disk.remove_file(&file).map(|()| String::new()),
        4 => disk.remove_dir_all(&dir).map(|()| String::new()),
        5 => disk.rename(&file, &other).map(|()| String::new()),
        6 => {
            let mut buf = vec![0; 100];
            disk.read_at(&file, n, &mut buf)
                .map(|n| format!("{:?}", &buf[..n]))
        }
        7 => disk.names(&dir).map(|names| {
            let mut names = names.unwrap_or_default();
            names.sort();
            format!("{names:?}")
        }),
        _ => disk
            .file_len(&file)
            .map(|len| format!("{len:?} {} {}", disk.exists(&file), disk.exists(&dir))),
    };
    seen.unwrap_or_else(|_| "refused".to_owned())
}

fn real_files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                let below = path.strip_prefix(root).expect("below the root").to_owned();
                files.insert(below, fs::read(&path).expect("a file"));
            }
        }
    }
    files
}

#[test]
fn the_simulated_disk_does_what_the_real_one_does() {
    for seed in SEEDS {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let sim = SimDisk::new();
        let (mut one, mut two) = (Random(seed), Random(seed));
        for at in 0..STEPS {
            let real = step(&OsDisk, dir.path(), &mut one);
            let simulated = step(&sim, Path::new(""), &mut two);
            assert_eq!(real, simulated, "seed {seed}, step {at}");
        }
        assert_eq!(
            real_files(dir.path()),
            sim.files_below(Path::new("")),
            "seed {seed}"
        );
    }
}

fn write(disk: &dyn Disk, path: &str, bytes: &[u8], sync: bool) -> Result<(), StorageError> {
    let mut file = disk.create(Path::new(path))?;
    file.write_at(0, bytes)?;
    if sync { file.sync() } else { Ok(()) }
}

/// What 64 power cuts leave of a file: lengths, or `None` where it is gone.
fn left_of(disk: &SimDisk, path: &str) -> Vec<Option<Vec<u8>>> {
    let mut left: Vec<_> = (0..64)
        .map(|seed| {
            let mut files = disk.after_power_cut(seed).files_below(Path::new(""));
            files.remove(Path::new(path))
        })
        .collect();
    left.sort();
    left.dedup();
    left
}

#[test]
fn a_power_cut_takes_only_what_was_not_durable() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("d")).expect("healthy");
    disk.sync_dir(Path::new("")).expect("healthy");
    write(&disk, "d/f", &[1; 40], true).expect("healthy");
    let left = left_of(&disk, "d/f");
    let whole = Some(vec![1; 40]);
    assert_eq!(
        left,
        [None, whole.clone()],
        "the bytes are durable, the name is not"
    );
    disk.sync_dir(Path::new("d")).expect("healthy");
    assert_eq!(left_of(&disk, "d/f"), std::slice::from_ref(&whole));

    // Written anew and not durable: the old bytes, or any part of the new ones, or zeros.
    write(&disk, "d/f", &[2; 40], false).expect("healthy");
    let left = left_of(&disk, "d/f");
    assert!(left.contains(&whole));
    assert!(left.len() > 10);
    for bytes in left.into_iter().flatten() {
        let torn = bytes.iter().all(|&b| b == 2) || bytes.iter().all(|&b| b == 0);
        assert!(torn || Some(bytes) == whole);
    }
}

#[test]
fn a_rename_is_taken_or_left_as_a_whole() {
    let disk = SimDisk::new();
    disk.create_dir_all(Path::new("old/in")).expect("healthy");
    write(&disk, "old/in/f", b"bytes", true).expect("healthy");
    for dir in ["old/in", "old", ""] {
        disk.sync_dir(Path::new(dir)).expect("healthy");
    }
    disk.rename(Path::new("old"), Path::new("new"))
        .expect("healthy");
    let mut seen = [false; 2];
    for seed in 0..64 {
        let left = disk.after_power_cut(seed);
        let names = ["old/in/f", "new/in/f"].map(|path| left.exists(Path::new(path)));
        assert!(names[0] ^ names[1], "seed {seed}");
        seen[usize::from(names[1])] = true;
    }
    assert_eq!(seen, [true; 2]);
}

#[test]
fn faults_come_when_they_are_due() {
    let dying = SimDisk::new().dying_at(2);
    write(&dying, "f", b"four", false).expect("changes 0 and 1");
    assert!(write(&dying, "g", b"more", false).is_err());
    assert!(
        dying.read_at(Path::new("f"), 0, &mut [0]).is_err(),
        "a dead disk does not read"
    );

    let failing = SimDisk::new().failing_at(1);
    assert!(
        write(&failing, "f", b"four", false).is_err(),
        "change 1 is the write"
    );
    assert_eq!(
        failing.file_len(Path::new("f")).expect("alive"),
        Some(2),
        "half of it was written"
    );
    write(&failing, "f", b"four", true).expect("no other change fails");

    let small = SimDisk::new().with_capacity(10);
    write(&small, "f", &[0; 8], false).expect("it fits");
    assert_eq!(small.free_space(Path::new("")).expect("alive"), 2);
    let error = write(&small, "g", &[0; 3], false).expect_err("it does not");
    assert!(matches!(error, StorageError::NoSpace { .. }), "{error}");
    small.remove_file(Path::new("f")).expect("alive");
    assert_eq!(
        small.free_space(Path::new("")).expect("alive"),
        8,
        "what is removed is free again"
    );
}
