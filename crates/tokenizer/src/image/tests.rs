//! Damage to an image, at every byte of its header and in every table.

use super::*;
use crate::compile::tests::{open, small};
use crate::tokenizer::Tokenizer;

fn image() -> Vec<u8> {
    Tokenizer::compile(small().to_string().as_bytes()).expect("the small tokenizer compiles")
}

/// Opens after changing the word at an index of a table, with a checksum that fits.
fn with_word(table: usize, index: usize, word: u32) -> Result<Tokenizer, TokenizerError> {
    let mut image = image();
    image[table + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
    seal(&mut image);
    Tokenizer::from_image(image)
}

#[test]
fn every_cut_and_every_flipped_byte_is_noticed() {
    let whole = image();
    for len in 0..whole.len() {
        assert!(
            Tokenizer::from_image(whole[..len].to_vec()).is_err(),
            "{len} bytes"
        );
    }
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        assert!(Tokenizer::from_image(bytes).is_err(), "byte {at}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(matches!(
        Tokenizer::from_image(longer),
        Err(TokenizerError::ImageSize { .. })
    ));
    assert!(Tokenizer::from_image(whole).is_ok());
}

#[test]
fn another_version_is_told_apart_from_damage() {
    let mut bytes = image();
    bytes[8] = VERSION as u8 + 1;
    seal(&mut bytes);
    assert!(matches!(
        Tokenizer::from_image(bytes),
        Err(TokenizerError::NotAnImage { .. })
    ));
    let mut bytes = image();
    bytes[CHECKSUM_AT] ^= 1;
    assert!(matches!(
        Tokenizer::from_image(bytes),
        Err(TokenizerError::ImageChecksum { .. })
    ));
}

#[test]
fn each_table_is_validated() {
    let bytes = image();
    let layout = Tables::open(&bytes).expect("it opens");
    let n = layout.n_tokens as u32;
    let last_slot = layout.char_slots - 1;
    let slot = (0..=last_slot)
        .find(|slot| u32_at(&bytes, layout.chars + 8 * slot) != EMPTY_SLOT)
        .expect("a character");
    let cases = [
        ("text_ends", layout.text_ends, 0, 0x1000_0000),
        ("text_ends", layout.text_ends, layout.n_tokens - 1, 0),
        ("text", layout.text, 0, 0xffff_ffff),
        ("by_text", layout.by_text, 3, n),
        ("added", layout.added, 0, n),
        ("bytes", layout.bytes, 7, 8),
        ("bytes", layout.bytes, 7, n),
        ("chars", layout.chars, 2 * slot + 1, n),
        ("merge_ends", layout.merge_ends, layout.n_tokens - 1, 0),
        (
            "merge_ends",
            layout.merge_ends,
            0,
            layout.n_merges as u32 + 1,
        ),
        ("merges", layout.merges, 0, n),
        ("merges", layout.merges, 2, n),
    ];
    for (name, table, index, word) in cases {
        match with_word(table, index, word) {
            Err(TokenizerError::ImageTable { table, .. }) => {
                assert_eq!(table, name, "word {index}")
            }
            other => panic!("{name}, word {index}: {other:?}"),
        }
    }
    // A rank may be any number.
    assert!(with_word(layout.merges, 1, u32::MAX).is_ok());
}

#[test]
fn counts_that_do_not_fit_are_refused_before_anything_is_read() {
    for at in (16..CHECKSUM_AT).step_by(4) {
        for count in [0, 1, u32::MAX] {
            let mut bytes = image();
            if u32_at(&bytes, at) == count {
                continue;
            }
            bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
            seal(&mut bytes);
            assert!(Tokenizer::from_image(bytes).is_err(), "{count} at {at}");
        }
    }
}

#[test]
fn a_full_character_table_does_not_loop() {
    let mut bytes = image();
    let layout = Tables::open(&bytes).expect("it opens");
    for slot in 0..layout.char_slots {
        bytes[layout.chars + 8 * slot..][..8].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    }
    seal(&mut bytes);
    let tokenizer = Tokenizer::from_image(bytes).expect("it opens");
    assert_eq!(tokenizer.encode("b"), [u32::from(b'b')]);
    assert!(open(&small()).is_ok());
}

#[test]
fn byte_tokens_are_recognised_as_the_reference_does() {
    for (text, byte) in [
        ("<0x00>", Some(0)),
        ("<0xFF>", Some(255)),
        ("<0xab>", Some(171)),
        ("<0x0>", None),
        ("<0x000>", None),
        ("0x00", None),
        ("<0xGG>", None),
        ("<0x\u{e9}>", None),
    ] {
        assert_eq!(byte_of(text), byte, "{text}");
    }
}
