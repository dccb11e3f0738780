use ouzel_storage::Sha256;

use super::*;
use crate::ranges::{Range, Segment};

fn transfer() -> Transfer {
    let range = |i: usize| Range {
        source: 0,
        offset: 100 * i as u64,
        len: 100,
        segments: 2 * i..2 * i + 2,
    };
    let segment = |i: u64| Segment {
        file: 0,
        at: 50 * i,
        len: 50,
    };
    Transfer {
        ranges: (0..3).map(range).collect(),
        segments: (0..6).map(segment).collect(),
        range_bytes: 100,
    }
}

fn fingerprint(text: &str) -> Sha256Hex {
    Sha256Hex::from_bytes(Sha256::digest(text.as_bytes()))
}

fn journal(records: &[Record]) -> Vec<u8> {
    let mut bytes = header(&fingerprint("plan"));
    encode(records, &mut bytes);
    bytes
}

fn records() -> Vec<Record> {
    [2, 0]
        .map(|range| Record {
            range,
            digests: vec![range as u64, u64::MAX],
        })
        .into()
}

#[test]
fn a_journal_of_any_length_gives_the_records_that_are_whole() {
    let whole = journal(&records());
    let read = |bytes: &[u8]| decode(bytes, &fingerprint("plan"), &transfer());
    assert_eq!(read(&whole), Some(records()));
    let empty = header(&fingerprint("plan")).len();
    let each = (whole.len() - empty) / 2;
    for len in 0..=whole.len() {
        let expected = len
            .checked_sub(empty)
            .map(|rest| records()[..rest / each].to_vec());
        assert_eq!(read(&whole[..len]), expected, "{len} bytes");
    }
    assert_eq!(decode(&whole, &fingerprint("other"), &transfer()), None);
}

#[test]
fn a_flipped_bit_is_never_believed() {
    let whole = journal(&records());
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        let read = decode(&bytes, &fingerprint("plan"), &transfer());
        let believed = read.unwrap_or_default();
        assert!(records().starts_with(&believed), "byte {at}");
        assert!(believed.len() < 2, "byte {at}");
    }
}

#[test]
fn records_of_other_ranges_end_it() {
    for record in [
        Record {
            range: 3,
            digests: vec![0; 2],
        },
        Record {
            range: 1,
            digests: vec![0; 3],
        },
    ] {
        let bytes = journal(&[record]);
        let read = decode(&bytes, &fingerprint("plan"), &transfer());
        assert_eq!(read, Some(Vec::new()));
    }
}
