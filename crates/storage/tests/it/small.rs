//! Buffers, maps, locks, hashes, and what the system says about itself.

use std::fs;

use ouzel_storage::counting::{Counts, count};
use ouzel_storage::{
    AlignedBuf, DirLock, Mmap, Region, Sha256, StorageError, Xxh3, free_memory, free_space,
    peak_memory, program_file_bytes, xxh3_64,
};

#[test]
fn buffers_are_aligned_and_zero() {
    for len in [0, 1, 16_383, 16_384, 16_385, 1 << 20] {
        let mut buf = AlignedBuf::new(len).expect("memory");
        assert_eq!(buf.len(), len);
        assert!(buf.as_ptr().addr().is_multiple_of(AlignedBuf::ALIGNMENT));
        assert!(buf.iter().all(|&byte| byte == 0));
        buf.fill(1);
        assert!(buf.iter().all(|&byte| byte == 1));
    }
    for len in [usize::MAX, usize::MAX / 2 - 20_000] {
        let error = AlignedBuf::new(len).expect_err("no machine has this");
        assert!(matches!(error, StorageError::NoMemory { bytes } if bytes == len));
    }
}

#[test]
fn maps_hold_the_file() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("mapped");
    for bytes in [&b""[..], b"x", &[7; 10_000]] {
        fs::write(&path, bytes).expect("a write");
        assert_eq!(&*Mmap::open(&path).expect("a map"), bytes);
    }
    let error = Mmap::open(&dir.path().join("absent")).expect_err("absent");
    assert!(error.to_string().contains("absent"), "{error}");
}

#[test]
fn a_lock_is_held_once_and_released_when_dropped() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = DirLock::path_for(&dir.path().join("model.gturbo"));
    assert_eq!(path.file_name().expect("a name"), "model.gturbo.lock");
    let held = DirLock::try_acquire(&path).expect("free");
    let error = DirLock::try_acquire(&path).expect_err("held");
    assert!(matches!(error, StorageError::Locked { .. }), "{error}");
    drop(held);
    drop(DirLock::acquire(&path).expect("free again"));
    let error = DirLock::try_acquire(&dir.path().join("no/such/lock")).expect_err("no folder");
    assert!(matches!(error, StorageError::Io { .. }), "{error}");
}

#[test]
fn whoever_lets_go_of_a_shared_lock_refuses_it_to_nobody() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = DirLock::path_for(&dir.path().join("model.gturbo"));
    // Letting go takes the lock alone for an instant.
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let lock = DirLock::try_share(&path).expect("nobody works on it alone");
                    lock.release();
                }
            });
        }
    });
}

#[test]
fn a_lock_is_shared_by_many_or_held_by_one() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = DirLock::path_for(&dir.path().join("model.gturbo"));
    assert!(
        DirLock::try_acquire_existing(&path)
            .expect("nothing")
            .is_none()
    );
    let (one, two) = (DirLock::try_share(&path), DirLock::try_share(&path));
    let (one, two) = (one.expect("free"), two.expect("shared"));
    assert!(DirLock::try_acquire(&path).is_err());
    one.release();
    assert!(
        DirLock::try_acquire(&path).is_err(),
        "the other one still holds it"
    );
    two.release();
    #[cfg(unix)]
    assert!(!path.exists(), "the last one takes the file away");
    let alone = DirLock::try_acquire(&path).expect("free");
    assert!(DirLock::try_share(&path).is_err());
    alone.release();
}

/// FIPS 180-2's example, and XXH3's published value for no input; `abc` as the `xxhsum` program prints it.
#[test]
fn hashes_have_the_published_values() {
    let hex = |bytes: [u8; 32]| bytes.map(|byte| format!("{byte:02x}")).concat();
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    assert_eq!(hex(Sha256::digest(b"abc")), abc);
    let mut pieces = Sha256::new();
    pieces.update(b"a");
    pieces.update(b"bc");
    assert_eq!(hex(pieces.finish()), abc);
    assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    assert_eq!(xxh3_64(b"abc"), 0x78af_5f94_892f_3950);
    let bytes: Vec<u8> = (0..5000).map(|i| (i % 253) as u8).collect();
    let mut pieces = Xxh3::new();
    for piece in bytes.chunks(333) {
        pieces.update(piece);
    }
    assert_eq!(pieces.take(), xxh3_64(&bytes));
    pieces.update(b"abc");
    assert_eq!(
        pieces.take(),
        xxh3_64(b"abc"),
        "taking a hash starts a fresh one"
    );
}

#[test]
fn the_system_knows_its_memory_and_its_disk() {
    assert!(free_space(&std::env::temp_dir()).expect("free space") > 0);
    assert!(free_space(std::path::Path::new("/no/such/folder")).is_err());
    if let Some(bytes) = free_memory() {
        assert!(bytes > 1 << 20);
    }
    let before = peak_memory().expect("every supported system says");
    let mut block = AlignedBuf::new(64 << 20).expect("memory");
    block.fill(1);
    let after = peak_memory().expect("every supported system says");
    assert!(
        after > 64 << 20 && after >= before,
        "{before}, then {after}"
    );
}

#[test]
fn allocations_are_counted() {
    let ((), none) = count(|| ());
    assert_eq!(
        none,
        Counts {
            n_allocations: 0,
            peak_bytes: 0
        }
    );
    let (kept, counts) = count(|| {
        drop(vec![0_u8; 1000]);
        vec![0_u8; 600]
    });
    assert_eq!(counts.n_allocations, 2);
    assert_eq!(counts.peak_bytes, 1000);
    let ((), counts) = count(|| drop(kept));
    assert_eq!(
        counts.peak_bytes, 0,
        "releasing what was held before is no use of memory"
    );
}

#[test]
fn regions_are_disjoint_and_cover_what_they_were_cut_from() {
    let mut rest = Region::new(5 << 20).expect("memory");
    assert!(rest.as_ptr().addr().is_multiple_of(AlignedBuf::ALIGNMENT));
    let start = rest.as_ptr().addr();
    let mut pieces = Vec::new();
    for (i, len) in [16_384, 1, 3 << 20, 0].into_iter().enumerate() {
        let tail = rest.split_off(len);
        let mut piece = std::mem::replace(&mut rest, tail);
        assert!(piece.iter().all(|&byte| byte == 0), "zero at first");
        piece.fill(i as u8 + 1);
        pieces.push((piece, len));
    }
    let mut at = start;
    for (i, (piece, len)) in pieces.iter().enumerate() {
        assert_eq!((piece.as_ptr().addr(), piece.len()), (at, *len));
        assert!(piece.iter().all(|&byte| byte == i as u8 + 1), "piece {i}");
        at += len;
    }
    assert_eq!(at + rest.len(), start + (5 << 20));
    // A piece outlives the others, and may be filled by another thread.
    drop(rest);
    let (mut piece, _) = pieces.swap_remove(2);
    drop(pieces);
    std::thread::spawn(move || piece.fill(9))
        .join()
        .expect("no panic");
}

#[test]
fn the_program_has_a_file_and_is_no_longer_than_it() {
    let program = std::env::current_exe().expect("a program");
    let whole = std::fs::metadata(&program).expect("its file").len();
    let mapped = program_file_bytes(&program).expect("every supported system says");
    assert!(mapped > 0, "nothing of the program is mapped");
    // The last mapping ends with a page.
    assert!(
        mapped <= whole.next_multiple_of(4096),
        "{mapped} of {whole}"
    );
}

#[cfg(unix)]
#[test]
fn a_private_folder_lets_nobody_else_in() {
    use std::os::unix::fs::PermissionsExt;

    let dir = tempfile::tempdir().expect("a folder");
    let private = dir.path().join("a/b");
    ouzel_storage::create_private_dir(&private).expect("made");
    ouzel_storage::create_private_dir(&private).expect("there already");
    let mode = std::fs::metadata(&private)
        .expect("there")
        .permissions()
        .mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let file = private.join("file");
    for _ in 0..2 {
        ouzel_storage::create_private_file(&file).expect("a file");
        let mode = std::fs::metadata(&file)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        std::fs::write(&file, "kept").expect("a write");
    }
}
