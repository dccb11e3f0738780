//! Every tensor in memory is the file's, at a cache line of its own, however the file is cut.

use std::path::PathBuf;

use ouzel_format::{Dtype, ResidentEntry};
use ouzel_storage::IoMode;

use super::*;

/// Sizes of pieces, back to back: small and odd numbers of words, one larger than a span, and a file that ends within a page.
const SIZES: [usize; 9] = [2, 64, 6, 130, 40_000, 62, 16_384, 2, 30_010];
/// What lies before the pieces, as the index does.
const START: usize = 16_384;

/// A file of bytes that tell where they are, and the index of one tensor with scales and biases and of vectors.
fn file(dir: &tempfile::TempDir) -> (PathBuf, Vec<u8>, ResidentIndex) {
    let mut offset = START as u64;
    let mut extents = SIZES.map(|size| {
        let extent = Extent {
            offset,
            size: size as u64,
        };
        offset += extent.size;
        extent
    });
    // The index need not be in the order of the file.
    extents.reverse();
    let entry = |name: &str, at: Extent, scales, biases| ResidentEntry {
        name: name.to_owned(),
        dtype: Dtype::BF16,
        offset: at.offset,
        size: at.size,
        shape: vec![1],
        scales,
        biases,
    };
    let [a, b, c, vectors @ ..] = extents;
    let mut entries = vec![entry("matrix", a, Some(b), Some(c))];
    let names = ["t", "u", "v", "w", "x", "y"];
    let vectors = names.iter().zip(vectors);
    entries.extend(vectors.map(|(name, at)| entry(name, at, None, None)));
    let bytes: Vec<u8> = (0..offset as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    let path = dir.path().join("weights.bin");
    std::fs::write(&path, &bytes).expect("a file");
    let payload_size = offset - START as u64;
    let index = ResidentIndex {
        entries,
        payload_size,
    };
    (path, bytes, index)
}

fn extents(index: &ResidentIndex) -> Vec<Extent> {
    let of_entry = |entry: &ResidentEntry| [Some(entry.extent()), entry.scales, entry.biases];
    let all = index.entries.iter().flat_map(of_entry);
    all.flatten().collect()
}

#[test]
fn every_tensor_is_aligned_and_the_files() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, bytes, index) = file(&dir);
    let residents = Residents::new(&index);
    let padding = residents.n_bytes() - SIZES.iter().sum::<usize>();
    assert!(padding < SIZES.len() * ALIGNMENT);
    for mode in [IoMode::Auto, IoMode::Buffered] {
        let file = PositionedFile::open(&path, mode).expect("the file");
        for (span, n_threads) in [(16_384, 1), (16_384, 3), (32_768, 2), (READ_BYTES, 4)] {
            let memory = residents.read_in(&file, span, n_threads).expect("a read");
            for extent in extents(&index) {
                let place = &memory[residents.place(extent)];
                assert!(
                    place.as_ptr().addr().is_multiple_of(ALIGNMENT),
                    "{extent:?}"
                );
                assert!(
                    place == &bytes[file_range(extent)],
                    "{extent:?} in spans of {span}"
                );
            }
        }
    }
}

#[test]
fn spans_cover_file_and_memory_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let (_, bytes, index) = file(&dir);
    let residents = Residents::new(&index);
    let mut memory = vec![0; residents.n_bytes()];
    let jobs = residents.jobs(&mut memory, 16_384);
    let (mut at, mut memory_at) = (START, 0);
    for job in &jobs {
        assert_eq!((job.file.start, job.memory), (at, memory_at));
        at = job.file.end;
        memory_at += job.bytes.len();
    }
    assert_eq!((at, memory_at), (bytes.len(), residents.n_bytes()));
}

#[test]
fn a_file_that_ends_too_early_is_named() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, bytes, index) = file(&dir);
    std::fs::write(&path, &bytes[..bytes.len() - 1]).expect("a shorter file");
    let file = PositionedFile::open(&path, IoMode::Auto).expect("the file");
    let residents = Residents::new(&index);
    let error = residents
        .read_in(&file, 16_384, 2)
        .expect_err("the last piece is cut");
    assert!(
        matches!(&error, StorageError::Truncated { path: at, .. } if *at == path),
        "{error}"
    );
}

#[test]
fn no_tensors_are_no_bytes() {
    let dir = tempfile::tempdir().expect("a folder");
    let (path, ..) = file(&dir);
    let file = PositionedFile::open(&path, IoMode::Auto).expect("the file");
    let index = ResidentIndex {
        entries: Vec::new(),
        payload_size: 0,
    };
    let memory = Residents::new(&index).read(&file).expect("nothing to read");
    assert!(memory.is_empty());
}
