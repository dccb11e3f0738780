//! `packed_experts/checksums.bin`.

use ouzel_format::{Checksums, FormatError};
use xxhash_rust::xxh3::xxh3_64;

fn sample() -> Checksums {
    Checksums {
        layers: 2,
        experts: 3,
        stride: 16_384,
        sums: vec![1, 2, 3, u64::MAX, 5, 6],
    }
}

/// `bytes` with a seal that fits them, so that what is wrong is not the seal.
fn sealed(bytes: &[u8]) -> Vec<u8> {
    let body = &bytes[..bytes.len() - 8];
    [body, &xxh3_64(body).to_le_bytes()].concat()
}

fn refusal_with(at: usize, bytes: &[u8]) -> FormatError {
    let mut file = sample().encode();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    Checksums::parse(&sealed(&file)).expect_err("this has to be refused")
}

#[test]
fn sums_are_layer_major_and_sealed() {
    let bytes = sample().encode();
    assert_eq!(bytes.len(), 24 + 6 * 8 + 8);
    assert_eq!(&bytes[..8], b"OUZC\x01\0\0\0");
    assert_eq!(&bytes[24..32], &1_u64.to_le_bytes());
    assert_eq!(&bytes[72..], &xxh3_64(&bytes[..72]).to_le_bytes());
    let read = Checksums::parse(&bytes).expect("valid");
    assert_eq!(read, sample());
    assert_eq!((read.get(0, 2), read.get(1, 0)), (3, u64::MAX));
}

#[test]
#[should_panic(expected = "no expert 3 in layer 0")]
fn an_expert_past_the_last_is_a_mistake() {
    sample().get(0, 3);
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = sample().encode();
    for bit in 0..8 * bytes.len() {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Checksums::parse(&flipped).is_err(), "bit {bit}");
    }
    let mut flipped = bytes;
    flipped[30] ^= 1;
    assert!(matches!(
        Checksums::parse(&flipped),
        Err(FormatError::ChecksumMismatch { .. })
    ));
}

#[test]
fn other_files_are_refused() {
    assert!(
        matches!(refusal_with(0, b"OUZB"), FormatError::WrongMagic { actual, .. } if actual == "OUZB")
    );
    assert!(matches!(
        refusal_with(4, &[2]),
        FormatError::UnsupportedVersion {
            expected: 1,
            actual: 2,
            ..
        }
    ));
    assert!(matches!(
        refusal_with(16, &[1]),
        FormatError::StrideNotAligned { .. }
    ));
    assert!(matches!(
        refusal_with(8, &[255; 8]),
        FormatError::Overflow { .. }
    ));
    assert!(matches!(
        refusal_with(8, &[3]),
        FormatError::Truncated {
            expected: 104,
            actual: 80,
            ..
        }
    ));
    assert!(matches!(
        refusal_with(8, &[1]),
        FormatError::TooLarge {
            limit: 56,
            actual: 80,
            ..
        }
    ));
    let none = sealed(
        &[
            &sample().encode()[..8],
            &[0; 8],
            &16_384_u64.to_le_bytes(),
            &[0; 8],
        ]
        .concat(),
    );
    assert!(matches!(
        Checksums::parse(&none),
        Err(FormatError::NotPositive { .. })
    ));
    for len in 0..80 {
        let cut = Checksums::parse(&sample().encode()[..len]);
        assert!(matches!(cut, Err(FormatError::Truncated { actual, .. }) if actual == len as u64));
    }
    let mut odd = sample();
    odd.sums.pop();
    assert!(matches!(
        odd.check(),
        Err(FormatError::SizeMismatch {
            expected: 6,
            actual: 5,
            ..
        })
    ));
}
