//! Positioned reads in every mode against the whole file.

use std::fs;
use std::path::PathBuf;

use ouzel_storage::{AlignedBuf, IoMode, PositionedFile, ReadMode, StorageError};

const BLOCK: usize = 4096;

/// A file of `len` bytes that differ, in a folder that goes away.
fn file(len: usize) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("bytes.bin");
    let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + i / 251) as u8).collect();
    fs::write(&path, &bytes).expect("a write");
    (dir, path, bytes)
}

/// Opens in `mode`; says which modes this file system lacks.
fn open(path: &std::path::Path, mode: IoMode) -> Option<PositionedFile> {
    match PositionedFile::open(path, mode) {
        Ok(file) => Some(file),
        Err(error) if mode == IoMode::Direct => {
            println!("skipped: no direct reads here: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn every_mode_reads_the_same_bytes() {
    let (_dir, path, bytes) = file(5 * BLOCK + 123);
    for mode in [IoMode::Auto, IoMode::Direct, IoMode::Buffered] {
        let Some(file) = open(&path, mode) else {
            continue;
        };
        assert_eq!(file.len(), bytes.len() as u64);
        match mode {
            IoMode::Auto => assert_ne!(file.mode(), ReadMode::Buffered),
            IoMode::Direct => assert_eq!(file.mode(), ReadMode::Direct),
            IoMode::Buffered => assert_eq!(file.mode(), ReadMode::Buffered),
        }
        for (start, len) in [
            (0, BLOCK),
            (BLOCK, 3 * BLOCK),
            (4 * BLOCK, BLOCK),
            (0, 5 * BLOCK),
        ] {
            let mut buf = AlignedBuf::new(len).expect("memory");
            file.read_exact_at(&mut buf, start as u64).expect("a read");
            assert_eq!(&buf[..], &bytes[start..start + len], "{mode:?} {start}");
        }
        // The last block is short, and that is no error as long as the bytes asked for are there.
        let mut buf = AlignedBuf::new(2 * BLOCK).expect("memory");
        file.read_at_least(&mut buf, 4 * BLOCK as u64, BLOCK + 123)
            .expect("the tail");
        assert_eq!(&buf[..BLOCK + 123], &bytes[4 * BLOCK..]);
    }
}

#[test]
fn buffered_reads_may_start_anywhere() {
    let (_dir, path, bytes) = file(1000);
    let file = open(&path, IoMode::Buffered).expect("buffered reads are everywhere");
    let mut buf = vec![0; 333];
    file.read_exact_at(&mut buf, 77).expect("a read");
    assert_eq!(buf, bytes[77..410]);
}

#[test]
fn a_file_that_was_cut_short_says_where_it_ends() {
    let (_dir, path, _) = file(3 * BLOCK);
    for mode in [IoMode::Auto, IoMode::Direct, IoMode::Buffered] {
        let Some(file) = open(&path, mode) else {
            continue;
        };
        let handle = fs::OpenOptions::new().write(true).open(&path);
        let resize = |len| handle.as_ref().expect("the file").set_len(len as u64);
        for (left, actual) in [(2 * BLOCK + 10, BLOCK + 10), (2 * BLOCK, BLOCK), (7, 0)] {
            resize(left).expect("cut");
            let mut buf = AlignedBuf::new(2 * BLOCK).expect("memory");
            let error = file
                .read_exact_at(&mut buf, BLOCK as u64)
                .expect_err("too short");
            match &error {
                StorageError::Truncated {
                    path: named,
                    offset,
                    expected,
                    actual: found,
                } => {
                    assert_eq!(named, &path);
                    assert_eq!(
                        (*offset, *expected, *found),
                        (BLOCK as u64, 2 * BLOCK, actual)
                    );
                }
                other => panic!("{mode:?}: {other}"),
            }
            assert!(error.to_string().contains("offset 4096"), "{error}");
        }
        resize(3 * BLOCK).expect("grown again");
    }
}

#[test]
fn what_cannot_be_opened_is_named() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let absent = dir.path().join("absent.bin");
    for mode in [IoMode::Auto, IoMode::Direct, IoMode::Buffered] {
        let error = PositionedFile::open(&absent, mode).expect_err("absent");
        assert!(error.to_string().contains("absent.bin"), "{error}");
    }
}

#[test]
#[should_panic(expected = "a direct read of")]
fn a_direct_read_at_an_odd_place_is_a_mistake_of_the_program() {
    let (_dir, path, _) = file(3 * BLOCK);
    let Some(file) = open(&path, IoMode::Direct) else {
        panic!("a direct read of nothing: this file system has none");
    };
    let mut buf = AlignedBuf::new(BLOCK).expect("memory");
    let _ = file.read_exact_at(&mut buf, 512);
}

#[test]
fn threads_share_a_file() {
    let (_dir, path, bytes) = file(64 * BLOCK);
    let file = open(&path, IoMode::Auto).expect("some mode works");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                let mut buf = AlignedBuf::new(BLOCK).expect("memory");
                for block in (thread..64).step_by(4) {
                    let start = block * BLOCK;
                    file.read_exact_at(&mut buf, start as u64).expect("a read");
                    assert_eq!(&buf[..], &bytes[start..start + BLOCK]);
                }
            });
        }
    });
}
