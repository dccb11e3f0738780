//! The resident index: every rule by its own error.

use ouzel_format::{Dtype, Extent, FormatError, ResidentEntry, ResidentIndex};

use crate::frozen::INDEX;

/// Where the fields of the frozen file's one entry lie.
const ENTRY: usize = 24;
const NAME: usize = 96;

fn refusal_with(at: usize, bytes: &[u8]) -> FormatError {
    let mut index = INDEX.to_vec();
    index[at..at + bytes.len()].copy_from_slice(bytes);
    ResidentIndex::parse(&index).expect_err("this has to be refused")
}

fn u64_refusal(at: usize, value: u64) -> FormatError {
    refusal_with(at, &value.to_le_bytes())
}

/// An entry with a payload of its own kind, at `offset`.
fn entry(name: &str, offset: u64, size: u64) -> ResidentEntry {
    ResidentEntry {
        name: name.into(),
        dtype: Dtype::BF16,
        offset,
        size,
        shape: vec![2],
        scales: None,
        biases: None,
    }
}

fn check(entries: Vec<ResidentEntry>, payload_size: u64) -> Result<u64, FormatError> {
    ResidentIndex {
        entries,
        payload_size,
    }
    .check()
}

#[test]
fn the_header_is_checked_before_anything_is_read() {
    let head = |index_size: u64, n_entries: u64| {
        let mut head = INDEX[..24].to_vec();
        head[..8].copy_from_slice(&index_size.to_le_bytes());
        head[16..].copy_from_slice(&n_entries.to_le_bytes());
        ResidentIndex::index_size(&head)
    };
    assert_eq!(head(16 << 20, 0), Ok(16 << 20));
    for size in [(16 << 20) + 1, (16 << 20) + 16_384, u64::MAX] {
        assert_eq!(
            head(size, 0),
            Err(FormatError::IndexTooLarge {
                limit: 16 << 20,
                actual: size
            })
        );
    }
    for size in [0, 1, 16_383, 16_385] {
        assert!(
            matches!(head(size, 0), Err(FormatError::IndexSize { actual, .. }) if actual == size)
        );
    }
    // 227 entries of 72 bytes and the header are 16,368 bytes.
    assert_eq!(head(16_384, 227), Ok(16_384));
    for n in [228, u64::MAX / 72 + 1, u64::MAX] {
        assert_eq!(
            head(16_384, n),
            Err(FormatError::TooManyEntries {
                n_entries: n,
                index_size: 16_384
            })
        );
    }
    let short = ResidentIndex::index_size(&INDEX[..23]);
    assert!(matches!(
        short,
        Err(FormatError::Truncated {
            expected: 24,
            actual: 23,
            ..
        })
    ));
    let short = ResidentIndex::parse(&INDEX[..16_383]);
    assert!(matches!(
        short,
        Err(FormatError::Truncated {
            expected: 16_384,
            actual: 16_383,
            ..
        })
    ));
}

#[test]
fn bytes_behind_the_index_are_left_alone() {
    let mut file = INDEX.to_vec();
    file.resize(file.len() + 32, 0xaa);
    assert_eq!(ResidentIndex::parse(&file), ResidentIndex::parse(INDEX));
}

#[test]
fn the_index_has_the_smallest_size_that_fits() {
    let mut file = INDEX.to_vec();
    file.resize(2 * 16_384, 0);
    file[..8].copy_from_slice(&(2_u64 * 16_384).to_le_bytes());
    // The entry's payload has to move along, or that is what would be found first.
    for at in [ENTRY + 8, ENTRY + 40, ENTRY + 56] {
        let moved = u64::from_le_bytes(std::array::from_fn(|i| file[at + i])) + 16_384;
        file[at..at + 8].copy_from_slice(&moved.to_le_bytes());
    }
    let error = ResidentIndex::parse(&file).expect_err("16,384 bytes would do");
    assert!(
        matches!(
            error,
            FormatError::OutOfBounds { .. }
                | FormatError::IndexSize {
                    expected: 16_384,
                    ..
                }
        ),
        "{error}"
    );
    let empty = ResidentIndex {
        entries: Vec::new(),
        payload_size: 0,
    };
    let mut file = empty.encode();
    assert_eq!(file.len(), 16_384);
    file.resize(2 * 16_384, 0);
    file[..8].copy_from_slice(&(2_u64 * 16_384).to_le_bytes());
    assert_eq!(
        ResidentIndex::parse(&file),
        Err(FormatError::IndexSize {
            expected: 16_384,
            actual: 32_768
        })
    );
}

#[test]
fn names_follow_the_entries_back_to_back() {
    for at in [0, 95, 97, u32::MAX] {
        let expected = FormatError::NamePosition {
            entry: 0,
            expected: 96,
            actual: at.into(),
        };
        assert_eq!(refusal_with(ENTRY, &at.to_le_bytes()), expected);
    }
    assert_eq!(
        refusal_with(ENTRY + 4, &[0, 0]),
        FormatError::NameLength {
            entry: 0,
            actual: 0
        }
    );
    assert!(matches!(
        refusal_with(ENTRY + 4, &[39, 0]),
        FormatError::ReservedNotZero { offset: 135, .. }
    ));
    assert!(matches!(
        refusal_with(ENTRY + 4, &[255, 255]),
        FormatError::OutOfBounds { .. }
    ));
    assert_eq!(
        refusal_with(NAME + 3, &[0xff]),
        FormatError::NameNotUtf8 { entry: 0 }
    );
}

#[test]
fn reserved_bytes_are_zero() {
    assert_eq!(
        refusal_with(ENTRY + 7, &[1]),
        FormatError::ReservedNotZero {
            offset: 31,
            actual: 1
        }
    );
    assert_eq!(
        refusal_with(16_383, &[7]),
        FormatError::ReservedNotZero {
            offset: 16_383,
            actual: 7
        }
    );
}

#[test]
fn types_and_shapes_are_known() {
    for code in [4, 255] {
        assert!(
            matches!(refusal_with(ENTRY + 6, &[code]), FormatError::UnknownDtype { dtype, .. } if dtype == code.to_string())
        );
    }
    // The frozen shape is 1, 1, 0, 0.
    let third = ENTRY + 24 + 12;
    assert!(
        matches!(refusal_with(third, &[1]), FormatError::BadShape { shape, .. } if shape == [1, 1, 0, 1])
    );
    let mut bad = entry("a", 16_384, 4);
    bad.shape = vec![1; 5];
    assert!(matches!(
        check(vec![bad.clone()], 4),
        Err(FormatError::BadShape { .. })
    ));
    bad.shape = vec![2, 0];
    assert!(matches!(
        check(vec![bad], 4),
        Err(FormatError::BadShape { .. })
    ));
}

#[test]
fn a_companion_is_there_or_not() {
    for (companion, at) in [("scales", ENTRY + 40), ("biases", ENTRY + 56)] {
        let found = |error| matches!(error, FormatError::HalfCompanion { companion: c, .. } if c == companion);
        assert!(found(u64_refusal(at, 0)));
        assert!(found(u64_refusal(at + 8, 0)));
    }
}

#[test]
fn ranges_lie_inside_the_payload() {
    // The payload is 16,384..16,416: 16 bytes of words, 8 of scales, 8 of biases.
    for (offset, size) in [
        (ENTRY + 8, ENTRY + 16),
        (ENTRY + 40, ENTRY + 48),
        (ENTRY + 56, ENTRY + 64),
    ] {
        assert!(matches!(
            u64_refusal(offset, 16_383),
            FormatError::OutOfBounds { from: 16_384, .. }
        ));
        assert!(matches!(
            u64_refusal(offset, 16_416),
            FormatError::OutOfBounds { to: 16_416, .. }
        ));
        assert!(matches!(
            u64_refusal(size, 33),
            FormatError::OutOfBounds { .. }
        ));
        assert!(matches!(
            u64_refusal(offset, u64::MAX),
            FormatError::Overflow { .. }
        ));
        assert!(matches!(
            u64_refusal(size, u64::MAX),
            FormatError::Overflow { .. }
        ));
    }
    assert!(matches!(
        u64_refusal(8, 31),
        FormatError::OutOfBounds { to: 16_415, .. }
    ));
    assert!(matches!(
        u64_refusal(8, u64::MAX),
        FormatError::Overflow { .. }
    ));
    assert!(matches!(
        u64_refusal(ENTRY + 16, 0),
        FormatError::EmptyTensor { .. }
    ));
}

#[test]
fn ranges_do_not_overlap() {
    // Words over scales, scales over words, biases over scales.
    for (at, value) in [(ENTRY + 16, 17), (ENTRY + 40, 16_399), (ENTRY + 56, 16_407)] {
        assert!(matches!(
            u64_refusal(at, value),
            FormatError::Overlap { .. }
        ));
    }
    assert_eq!(
        check(vec![entry("a", 16_384, 4), entry("b", 16_388, 4)], 8),
        Ok(16_384)
    );
    let overlap = check(vec![entry("b", 16_387, 4), entry("a", 16_384, 4)], 8);
    assert_eq!(
        overlap,
        Err(FormatError::Overlap {
            name: "b".into(),
            other: "a".into(),
            offset: 16_387
        })
    );
}

#[test]
fn names_are_unique_and_of_some_length() {
    let twice = check(vec![entry("a", 16_384, 4), entry("a", 16_388, 4)], 8);
    assert_eq!(twice, Err(FormatError::DuplicateName { name: "a".into() }));
    let longest = "n".repeat(65_535);
    assert_eq!(ResidentIndex::size_for([longest.as_str()]), Ok(81_920));
    let longer = "n".repeat(65_536);
    assert_eq!(
        ResidentIndex::size_for([longer.as_str()]),
        Err(FormatError::NameLength {
            entry: 0,
            actual: 65_536
        })
    );
    assert_eq!(
        ResidentIndex::size_for([""]),
        Err(FormatError::NameLength {
            entry: 0,
            actual: 0
        })
    );
    let many = std::iter::repeat_n(longest.as_str(), 256);
    assert!(matches!(
        ResidentIndex::size_for(many),
        Err(FormatError::IndexTooLarge { .. })
    ));
}

#[test]
fn companions_survive_a_round_trip() {
    let mut first = entry("first.weight", 16_384, 8);
    first.dtype = Dtype::U32;
    first.shape = vec![3, 1, 2, 9];
    first.scales = Some(Extent {
        offset: 16_392,
        size: 2,
    });
    first.biases = Some(Extent {
        offset: 16_394,
        size: 2,
    });
    let index = ResidentIndex {
        entries: vec![first, entry("zweite", 16_396, 3)],
        payload_size: 15,
    };
    let bytes = index.encode();
    assert_eq!(bytes.len(), 16_384);
    assert_eq!(ResidentIndex::parse(&bytes), Ok(index));
}
