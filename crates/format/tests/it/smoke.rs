//! Arbitrary bytes against every parser: real files with flipped bits, cuts, splices, foreign numbers, and noise.
//!
//! `OUZEL_TEST_SEED` chooses other bytes than the usual ones; the seed is printed.

use std::panic::{AssertUnwindSafe, catch_unwind};

use ouzel_format::{Checksums, FileRecord, Receipt, Sha256Hex, timestamp};

use crate::{doors, frozen};

/// Inputs for each parser; all together take about two seconds on one core.
const ROUNDS: u64 = 20_000;
const DEFAULT_SEED: u64 = 0x0A5E1;

/// Numbers at which arithmetic breaks, and texts that mean something to a path or to JSON.
const WORDS: [&str; 20] = [
    "0",
    "-1",
    "1.5",
    "1e999",
    "16384",
    "4294967295",
    "4294967296",
    "18446744073709551615",
    "18446744073709551616",
    "null",
    "true",
    "\"\"",
    "\"..\"",
    "\"\\u0000\"",
    "\"\\ud800\"",
    "[]",
    "{}",
    ",",
    "\"",
    "[[[[",
];

/// The seed of every random test of this suite.
pub fn seed() -> u64 {
    let seed = match std::env::var("OUZEL_TEST_SEED") {
        Ok(text) => text.parse().expect("OUZEL_TEST_SEED is a whole number"),
        Err(_) => DEFAULT_SEED,
    };
    println!("OUZEL_TEST_SEED={seed}");
    seed
}

/// SplitMix64 (Steele, Lea, Flood 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero.
    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A position in `0..=len`; half of the time among the first 200, where binary files have their structure.
    fn position(&mut self, len: usize) -> usize {
        let near = self.next().is_multiple_of(2);
        self.below(if near { len.min(200) } else { len } + 1)
    }
}

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..=random.below(4) {
        let at = random.position(bytes.len());
        match random.below(7) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 if at < bytes.len() => bytes[at] = random.next() as u8,
            2 => bytes.truncate(at),
            3 => {
                let from = random.position(bytes.len());
                let to = (from + random.below(400)).min(bytes.len());
                let piece = bytes[from..to].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => {
                let to = (at + random.below(40)).min(bytes.len());
                bytes.drain(at..to);
            }
            5 => replace_word(random, bytes, at),
            6 => {
                let value =
                    [0, 1, u64::MAX, u64::MAX / 72, 1 << 63, 16_384, 1 << 24][random.below(7)];
                let to = (at + 8).min(bytes.len());
                bytes.splice(at..to, value.to_le_bytes());
            }
            _ => bytes.push(random.next() as u8),
        }
    }
}

/// Puts another word in the place of the number or the text after position `at`, so that the document stays valid.
fn replace_word(random: &mut Random, bytes: &mut Vec<u8>, at: usize) {
    let is_word =
        |byte: &u8| !matches!(byte, b' ' | b'\n' | b',' | b':' | b'[' | b']' | b'{' | b'}');
    let start = at + bytes[at..].iter().position(is_word).unwrap_or(0);
    let end = start
        + bytes[start..]
            .iter()
            .take_while(|&byte| is_word(byte))
            .count();
    let word = WORDS[random.below(WORDS.len())];
    bytes.splice(start..end, word.bytes());
}

/// Feeds `door` with every sample as it is, then with what becomes of them.
fn check(name: &str, door: fn(&[u8]), samples: &[&[u8]]) {
    let seed = seed();
    for sample in samples {
        door(sample);
    }
    for round in 0..ROUNDS {
        let mut random = Random(seed ^ round.wrapping_mul(0xD134_2543_DE82_EF95));
        let mut bytes = match random.below(16) {
            0 => Vec::new(),
            _ => samples[random.below(samples.len())].to_vec(),
        };
        if bytes.is_empty() {
            bytes.resize_with(random.below(300), || random.next() as u8);
        } else {
            mutate(&mut random, &mut bytes);
        }
        let outcome = catch_unwind(AssertUnwindSafe(|| door(&bytes)));
        assert!(
            outcome.is_ok(),
            "{name} panicked in round {round} of OUZEL_TEST_SEED={seed} on {} bytes",
            bytes.len()
        );
    }
}

#[test]
fn manifests() {
    check("manifest", doors::manifest, &[frozen::MANIFEST]);
}

#[test]
fn layouts() {
    check("layout", doors::layout, &[frozen::LAYOUT]);
}

#[test]
fn resident_indexes() {
    check("resident_index", doors::resident_index, &[frozen::INDEX]);
}

#[test]
fn checksums() {
    let sample = Checksums {
        layers: 2,
        experts: 2,
        stride: 16_384,
        sums: vec![1, 2, 3, 4],
    }
    .encode();
    check("checksums", doors::checksums, &[&sample]);
}

#[test]
fn receipts() {
    let manifest = FileRecord {
        size: 1,
        sha256: Sha256Hex::from_bytes([7; 32]),
    };
    let sample = Receipt {
        manifest_sha256: manifest.sha256,
        model_directory_path: "/a".into(),
        verification_timestamp: timestamp(0),
        tool_version: "ouzel".into(),
        files: [("manifest.json".into(), manifest)].into(),
        source_repo_id: Some("a/b".into()),
        source_revision: Some("main".into()),
    };
    check("receipt", doors::receipt, &[&sample.encode()]);
}

#[test]
fn safetensors_headers() {
    let real = &include_bytes!("../../../../testdata/tiny-a/golden.safetensors")[..1_720];
    let small = br#"{"a":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},"__metadata__":{"format":"mlx"}}    "#;
    let small = [&(small.len() as u64).to_le_bytes(), &small[..]].concat();
    check(
        "safetensors_header",
        doors::safetensors_header,
        &[real, &small],
    );
}

#[test]
fn safetensors_indexes() {
    let real = include_bytes!("../../../../testdata/tiny-a/mlx/model.safetensors.index.json");
    let small = br#"{"metadata": {"total_size": 7}, "weight_map": {"a.weight": "model.safetensors", "b": "c"}}"#;
    check(
        "safetensors_index",
        doors::safetensors_index,
        &[real, small],
    );
}

#[test]
fn checkpoint_configs() {
    let samples: [&[u8]; 2] = [
        include_bytes!("../../../../testdata/tiny-a/mlx/config.json"),
        include_bytes!("../../../../testdata/tiny-b/mlx/config.json"),
    ];
    check("checkpoint_config", doors::checkpoint_config, &samples);
}

#[test]
fn generation_configs() {
    let real = include_bytes!("../../../../models/demo/generation_config.json");
    check("generation_config", doors::generation_config, &[real]);
}

#[test]
fn tensor_names() {
    let samples: [&[u8]; 3] = [
        b"language_model.model.layers.10.experts.switch_glu.gate_proj.weight",
        b"model.vision_tower.a",
        b"packed_experts/layer_00.bin",
    ];
    check("name", doors::name, &samples);
}
