//! The fuzz target's body on seeded bytes: nothing a file of kept rows can hold may panic.

use std::fs;

use ouzel::{Message, Options, PrefixOptions, fuzz};

use crate::demo::{ask, greedy, model, options};

/// Bytes of a head with few ids.
const HEAD_BYTES: usize = 16 << 10;
/// Of which so many are fields and ids.
const USED_BYTES: usize = 300;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn from_seed() -> Random {
        let seed = std::env::var("OUZEL_TEST_SEED").ok();
        let seed = seed.and_then(|text| text.parse().ok()).unwrap_or(11);
        println!("OUZEL_TEST_SEED={seed}");
        Random(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// The heads that a session writes: of full layers and of sliding ones.
fn heads() -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().expect("a folder");
    let kept = dir.path().join("kept");
    let options = Options {
        prefixes: Some(PrefixOptions {
            dir: Some(kept.clone()),
            ..PrefixOptions::default()
        }),
        ..options()
    };
    let mut session = model().session(&options).expect("the demo loads");
    ask(
        &mut session,
        &[Message::user("What is a thrush?")],
        &greedy(),
    );
    drop(session);
    let files = fs::read_dir(kept).expect("the folder");
    files
        .map(|entry| {
            let mut bytes = fs::read(entry.expect("a file").path()).expect("a file");
            bytes.truncate(HEAD_BYTES);
            bytes
        })
        .collect()
}

fn mutated(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(USED_BYTES.min(bytes.len()));
        match random.below(6) {
            0 => bytes[at] = random.next() as u8,
            1 => bytes[at] ^= 1 << random.below(8),
            2 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            3 => {
                // A whole number, as large as it gets.
                let field = at / 8 * 8;
                let number = u64::MAX - random.next() % 4 * (random.next() % 1000);
                if let Some(field) = bytes.get_mut(field..field + 8) {
                    field.copy_from_slice(&number.to_le_bytes());
                }
            }
            4 => bytes.truncate(at + 1),
            _ => bytes.insert(at, random.next() as u8),
        }
    }
    bytes
}

#[test]
fn arbitrary_heads_of_kept_rows_do_not_panic() {
    let mut random = Random::from_seed();
    let heads = heads();
    assert!(heads.len() >= 2, "full layers and sliding layers");
    let mut n_read = 0;
    for head in &heads {
        assert!(fuzz::prefix_head(head, false), "what was written is read");
        for _ in 0..2_000 {
            let noise: Vec<u8> = (0..random.below(400))
                .map(|_| random.next() as u8)
                .collect();
            fuzz::prefix_head(&noise, true);
            let bytes = mutated(&mut random, head);
            assert!(!fuzz::prefix_head(&bytes, false) || bytes == *head);
            n_read += u32::from(fuzz::prefix_head(&bytes, true));
        }
    }
    assert!(n_read > 0, "the fields are reached");
}
