//! Large files written in blocks.

use std::fs;

use ouzel_storage::{AlignedBuf, StreamWriter};

const BLOCK: usize = AlignedBuf::ALIGNMENT;

#[test]
fn blocks_and_a_rest_make_the_file() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("streamed");
    for (n_blocks, n_rest) in [
        (0, 0),
        (0, 5),
        (1, 0),
        (1, 1),
        (3, BLOCK - 1),
        (3, 2 * BLOCK + 7),
    ] {
        // What was there before must not show.
        fs::write(&path, vec![9; 5 * BLOCK]).expect("an older file");
        let mut bytes = AlignedBuf::new(n_blocks * BLOCK).expect("memory");
        (0u8..100)
            .cycle()
            .zip(bytes.iter_mut().step_by(1000))
            .for_each(|(n, byte)| *byte = n);
        let rest = vec![7; n_rest];
        let mut writer = StreamWriter::create(&path).expect("a file");
        for block in bytes.chunks(BLOCK) {
            writer.write_block(block).expect("a write");
        }
        writer.finish(&rest).expect("the end");
        let whole = [&bytes[..], &rest].concat();
        let actual = fs::read(&path).expect("the file");
        assert!(actual == whole, "{n_blocks} blocks and {n_rest} bytes");
    }
}

#[test]
fn a_missing_folder_is_named() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let error = StreamWriter::create(&dir.path().join("absent/file")).expect_err("no folder");
    assert!(error.to_string().contains("absent"), "{error}");
}

#[test]
#[should_panic(expected = "a block of")]
fn half_a_block_is_a_mistake() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let mut writer = StreamWriter::create(&dir.path().join("file")).expect("a file");
    let bytes = AlignedBuf::new(BLOCK).expect("memory");
    let _ = writer.write_block(&bytes[..BLOCK / 2]);
}
