//! Heads: what is written is read, and whatever else is read breaks nothing.

use super::{Header, is_ours, seal};
use crate::prefix::Kind;
use crate::prefix::tree::Key;

fn header(kind: Kind, n_ids: usize) -> Header {
    Header {
        kind,
        identity: [7; 32],
        key: Key([8; 32]),
        parent: (n_ids % 2 == 1).then_some(Key([9; 32])),
        start: 1000,
        rows: 1000..1000 + n_ids.max(1),
        row_bytes: 20_480,
        piece_rows: 163,
        ids: (0..n_ids as u32).collect(),
    }
}

#[test]
fn a_head_comes_back_at_every_length_around_a_block() {
    // 16 KiB less 160 bytes of fields and 8 of checksum are 4,054 ids.
    for n_ids in [0, 1, 4053, 4054, 4055, 20_000] {
        for kind in [Kind::Full, Kind::Sliding] {
            let header = header(kind, n_ids);
            let bytes = header.encode().expect("memory");
            assert_eq!(bytes.len(), header.head_bytes());
            assert_eq!(bytes.len() > 16 << 10, n_ids > 4054, "{n_ids}");
            assert_eq!(Header::parse(&bytes), Some(header));
        }
    }
}

#[test]
fn no_head_with_a_sound_checksum_breaks_anything() {
    let good = header(Kind::Full, 5).encode().expect("memory").to_vec();
    let mut n_parsed = 0;
    for at in 0..160 {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut bytes = good.clone();
            bytes[at] = value;
            seal(&mut bytes);
            if let Some(header) = Header::parse(&bytes) {
                let _ = header.file_bytes();
                n_parsed += 1;
            }
        }
    }
    assert!(n_parsed > 0);
    for n in [0, 7, 8, 100, 16 << 10] {
        assert_eq!(Header::parse(&vec![0; n]), None);
    }
}

#[test]
fn only_names_of_ours_are_ours() {
    let digits = "0123456789abcdef".repeat(2);
    for (name, is) in [
        (format!("{digits}.rows"), true),
        (format!("{digits}.ring"), true),
        (format!("{digits}.ring.partial"), true),
        (format!("{digits}.rows.bak"), false),
        (format!("{digits}0.rows"), false),
        (format!("x{}.rows", &digits[1..]), false),
        ("notes.txt".to_owned(), false),
        (String::new(), false),
    ] {
        assert_eq!(is_ours(&name), is, "{name}");
    }
}
