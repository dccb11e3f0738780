//! Random texts against the reference library, which takes 280 MB and seconds to load: once here.

use crate::data::{DEMO, REAL, Random, bytes, path, real_json};
use ouzel_tokenizer::Tokenizer;
use sha2::{Digest, Sha256};

/// As many as the issue asks for, for each tokenizer.
const N_TEXTS: usize = 30_000;

fn check(name: &str, ours: &Tokenizer, oracle: &tokenizers::Tokenizer) {
    let mut random = Random::new(name);
    let mut n_ids = 0;
    for i in 0..N_TEXTS {
        let text = random.text(ours);
        let expected = oracle
            .encode_fast(text.as_str(), false)
            .expect("the oracle encodes");
        let ids = ours.encode(&text);
        assert_eq!(ids, expected.get_ids(), "{name}, text {i}: {text:?}");
        // Every tenth is decoded too, and with it ids that no text gives.
        if i % 10 == 0 {
            for skip in [false, true] {
                let expected = oracle.decode(&ids, skip).expect("the oracle decodes");
                assert_eq!(
                    ours.decode(&ids, skip),
                    expected,
                    "{name}, text {i}: {text:?}"
                );
                let ids: Vec<u32> = (0..20).map(|_| strange_id(&mut random, ours)).collect();
                let expected = oracle.decode(&ids, skip).expect("the oracle decodes");
                assert_eq!(ours.decode(&ids, skip), expected, "{name}: {ids:?}");
            }
        }
        n_ids += ids.len();
    }
    println!("{name}: {N_TEXTS} texts, {n_ids} ids, 0 mismatches");
}

/// Mostly byte tokens, some specials, some others, some beyond the vocabulary.
pub fn strange_id(random: &mut Random, tokenizer: &Tokenizer) -> u32 {
    let first_byte = tokenizer.id_of("<0x00>").expect("byte tokens");
    match random.below(8) {
        0 => random.below(tokenizer.vocab_size() + 5) as u32,
        1 => tokenizer.specials()[random.below(tokenizer.specials().len())],
        2..=4 => first_byte + 0xc2 + random.below(0x30) as u32,
        _ => first_byte + 0x80 + random.below(0x40) as u32,
    }
}

#[test]
fn the_real_tokenizer_equals_the_oracle() {
    let oracle = tokenizers::Tokenizer::from_bytes(real_json()).expect("the oracle loads");
    assert_eq!(oracle.get_vocab_size(true), REAL.vocab_size());
    check("real", &REAL, &oracle);
}

#[test]
fn the_demo_tokenizer_equals_the_oracle() {
    let oracle = tokenizers::Tokenizer::from_file(path("models/demo/tokenizer.json"))
        .expect("the oracle loads");
    check("demo", &DEMO, &oracle);
}

#[test]
fn the_real_tokenizer_is_the_real_one_and_stays_small() {
    let json = real_json();
    let digest = Sha256::digest(&json)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect::<String>();
    assert_eq!(
        digest,
        "cc8d3a0ce36466ccc1278bf987df5f71db1719b9ca6b4118264f45cb627bfe0f"
    );
    assert_eq!((REAL.vocab_size(), REAL.specials().len()), (262_144, 24));
    // Its memory comes out of the expert slots: the issue allows 32 MiB.
    assert!(
        REAL.resident_bytes() <= 32 << 20,
        "{}",
        REAL.resident_bytes()
    );
    println!("real tokenizer: {} resident bytes", REAL.resident_bytes());
}

#[test]
fn compiling_is_deterministic() {
    let json = bytes("models/demo/tokenizer.json");
    let images = [(); 2].map(|()| Tokenizer::compile(json.as_slice()).expect("the demo compiles"));
    assert!(images[0] == images[1]);
}
