//! What stays in the page cache.

use std::fs::{self, File};
use std::io::{IoSliceMut, Read};
use std::path::Path;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::{OnceFile, read_once};
use crate::sys;

/// More than readers take at a time, and no whole number of pages.
const LEN: usize = (5 << 20) + 123;

/// Whether a byte could be had without the disk.
fn is_cached(file: &File, offset: usize) -> bool {
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    match preadv2(file, into, offset as u64, ReadWriteFlags::NOWAIT) {
        Ok(n) => n == 1,
        Err(Errno::AGAIN) => false,
        Err(error) => panic!("a read that does not wait: {error}"),
    }
}

fn check(path: &Path, read: impl FnOnce(&Path) -> Vec<u8>) {
    let bytes: Vec<u8> = (0..LEN).map(|i| (i * 31 + i / 251) as u8).collect();
    fs::write(path, &bytes).expect("a write");
    let file = File::open(path).expect("the file");
    file.sync_all().expect("a sync");
    assert!(is_cached(&file, 0), "what was just written");
    sys::drop_pages(&file, 0, 0);
    if is_cached(&file, 0) {
        println!("skipped: this file system keeps its files in memory");
        return;
    }
    assert_eq!(fs::read(path).expect("a read"), bytes);
    assert!(is_cached(&file, LEN - 1), "a usual read keeps pages");
    assert!(read(path) == bytes, "other bytes");
    let kept = (0..LEN).step_by(4096).filter(|&at| is_cached(&file, at));
    assert_eq!(kept.count(), 0, "pages are still in the cache");
}

#[test]
fn what_is_read_once_leaves_no_page_behind() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("bytes.bin");
    check(&path, |path| read_once(path).expect("a read"));
    check(&path, |path| {
        let mut file = OnceFile::open(path).expect("the file");
        let mut bytes = vec![0; LEN];
        // As a parser does it: in pieces of no special size.
        for piece in bytes.chunks_mut(70_001) {
            file.read_exact(piece).expect("a read");
        }
        bytes
    });
}
