//! What compiles, what is refused and under which name. Each case changes one thing in a tokenizer that compiles.

use crate::error::TokenizerError;
use crate::tokenizer::Tokenizer;
use serde_json::{Value, json};

/// All byte tokens, a few letters and their merges, one control token.
pub(crate) fn small() -> Value {
    let mut vocabulary = serde_json::Map::new();
    for byte in 0..=255u8 {
        vocabulary.insert(format!("<0x{byte:02X}>"), json!(byte));
    }
    for text in [
        "a",
        "b",
        "c",
        "ab",
        "abc",
        "bc",
        "\u{2581}",
        "\u{2581}a",
        "\n",
        "\n\n",
        "<eos>",
    ] {
        vocabulary.insert(text.to_owned(), json!(vocabulary.len()));
    }
    let added = json!({"id": 266, "content": "<eos>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true});
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u{2581}"},
        "pre_tokenizer": null,
        "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u{2581}"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}
        ]},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
            "fuse_unk": true, "byte_fallback": true, "ignore_merges": false,
            "vocab": vocabulary,
            "merges": [["b", "c"], ["a", "b"], ["ab", "c"], ["a", "bc"], ["\u{2581}", "a"], ["\n", "\n"]]
        }
    })
}

pub(crate) fn open(json: &Value) -> Result<Tokenizer, TokenizerError> {
    Tokenizer::from_image(Tokenizer::compile(json.to_string().as_bytes())?)
}

fn changed(pointer: &str, value: Value) -> Value {
    let mut json = small();
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = json.pointer_mut(parent).expect("the parent exists");
    match parent {
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value,
        _ => parent[key] = value,
    }
    json
}

#[test]
fn a_small_tokenizer_compiles_and_follows_ranks() {
    let tokenizer = open(&small()).expect("it compiles");
    let ids = |texts: &[&str]| {
        texts
            .iter()
            .map(|text| tokenizer.id_of(text).expect("a token"))
            .collect::<Vec<_>>()
    };
    // "b c" ranks before "a b".
    assert_eq!(
        tokenizer.encode("abc ab\n\n\nx<eos>"),
        ids(&["abc", "\u{2581}", "ab", "\n\n", "\n", "<0x78>", "<eos>"])
    );
    assert_eq!(tokenizer.encode_plain("<eos>")[0], u32::from(b'<'));
    assert!(tokenizer.encode("").is_empty());
    assert!(tokenizer.is_special(266) && !tokenizer.is_special(256));
    assert_eq!(
        (
            tokenizer.token(266),
            tokenizer.token(267),
            tokenizer.vocab_size()
        ),
        (Some("<eos>"), None, 267)
    );
}

#[test]
fn features_that_would_change_ids_are_refused_by_name() {
    for (json, name) in features() {
        match open(&json) {
            Err(TokenizerError::UnsupportedFeature { feature, .. }) => assert_eq!(feature, name),
            other => panic!("{name}: {other:?}"),
        }
    }
}

/// Files with one feature each that this tokenizer lacks, and the feature's name.
fn features() -> Vec<(Value, &'static str)> {
    let added = |key: &str, value: Value| {
        let mut json = small();
        json["added_tokens"][0][key] = value;
        json
    };
    vec![
        (changed("/version", json!("2.0")), "version"),
        (
            changed("/truncation", json!({"max_length": 5})),
            "truncation",
        ),
        (
            changed("/padding", json!({"strategy": "BatchLongest"})),
            "padding",
        ),
        (
            changed("/normalizer", json!({"type": "NFKC"})),
            "normalizer",
        ),
        (changed("/normalizer", Value::Null), "normalizer"),
        (
            changed("/pre_tokenizer", json!({"type": "ByteLevel"})),
            "pre_tokenizer",
        ),
        (
            changed(
                "/post_processor",
                json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}]}),
            ),
            "post_processor",
        ),
        (changed("/decoder", json!({"type": "ByteLevel"})), "decoder"),
        (changed("/model/type", json!("Unigram")), "model.type"),
        (changed("/model/dropout", json!(0.1)), "model.dropout"),
        (
            changed("/model/continuing_subword_prefix", json!("##")),
            "model.continuing_subword_prefix",
        ),
        (
            changed("/model/end_of_word_suffix", json!("</w>")),
            "model.end_of_word_suffix",
        ),
        (
            changed("/model/ignore_merges", json!(true)),
            "model.ignore_merges",
        ),
        (
            changed("/model/byte_fallback", json!(false)),
            "model.byte_fallback",
        ),
        (changed("/model/score", json!(1)), "model.score"),
        (changed("/extra", json!(1)), "extra"),
        (added("lstrip", json!(true)), "added_tokens.lstrip"),
        (added("rstrip", json!(true)), "added_tokens.rstrip"),
        (
            added("single_word", json!(true)),
            "added_tokens.single_word",
        ),
        (added("normalized", json!(true)), "added_tokens.normalized"),
        (added("content", json!("")), "added_tokens.content"),
        (added("content", json!("a")), "added_tokens.content"),
        (
            added("content", json!("<\u{fdd0}>")),
            "added_tokens.content",
        ),
    ]
}

#[test]
fn contradictions_are_refused() {
    let added = small()["added_tokens"][0].clone();
    let mut late = added.clone();
    late["content"] = json!("<late>");
    let mut many = small()["model"]["vocab"].clone();
    many["d"] = json!(300);
    let mut again = small()["model"]["vocab"].clone();
    again["d"] = json!(3);
    let mut short = small()["model"]["vocab"].clone();
    short.as_object_mut().expect("a map").shift_remove("<0x41>");
    short["A"] = json!(65);
    let cases = [
        (
            changed("/model/merges/0", json!(["a", "z"])),
            "outside the vocabulary",
        ),
        (
            changed("/model/merges/0", json!(["c", "a"])),
            "outside the vocabulary",
        ),
        (
            changed("/model/merges/0", json!(["a", "b"])),
            "are the same",
        ),
        (changed("/added_tokens", json!([late])), "added token"),
        (
            changed("/added_tokens", json!([added, added])),
            "listed twice",
        ),
        (changed("/model/vocab", many), "but id 300"),
        (changed("/model/vocab", again), "have id 3"),
        (changed("/model/vocab", short), "byte_fallback without"),
    ];
    for (json, words) in cases {
        match open(&json) {
            Err(TokenizerError::Inconsistent(what)) => {
                assert!(what.contains(words), "{what} for {words}")
            }
            other => panic!("{words}: {other:?}"),
        }
    }
    // serde_json's maps hold a key once; a file may not.
    let twice = small()
        .to_string()
        .replacen("\"a\":256", "\"a\":256,\"a\":267", 1);
    assert!(matches!(
        Tokenizer::compile(twice.as_bytes()),
        Err(TokenizerError::Inconsistent(_))
    ));
}

#[test]
fn missing_parts_and_other_shapes_are_refused() {
    for (pointer, name) in [
        ("normalizer", "normalizer"),
        ("decoder", "decoder"),
        ("model/type", "model.type"),
        ("model/byte_fallback", "model.byte_fallback"),
        ("model/vocab", "model.vocab"),
        ("model/merges", "model.merges"),
    ] {
        let mut json = small();
        let (parent, key) = pointer
            .rsplit_once('/')
            .map_or(("", pointer), |(_, key)| ("/model", key));
        json.pointer_mut(parent)
            .and_then(Value::as_object_mut)
            .expect("a map")
            .shift_remove(key);
        match open(&json) {
            Err(TokenizerError::Missing(what)) => assert_eq!(what, name),
            // Merges need the vocabulary before them.
            Err(TokenizerError::Inconsistent(what)) => {
                assert!(name == "model.vocab" && what.contains("before"))
            }
            other => panic!("{name}: {other:?}"),
        }
    }
    let text = small().to_string();
    let cases = [
        text[..text.len() - 1].to_owned(),
        text.clone() + "x",
        "[]".to_owned(),
        changed("/model/merges/0", json!("b c")).to_string(),
        changed("/model/merges/0", json!(["b", "c", "d"])).to_string(),
        changed("/model/merges/0", json!(["b"])).to_string(),
        changed("/model/vocab", json!({"a": -1})).to_string(),
    ];
    for case in cases {
        assert!(
            matches!(
                Tokenizer::compile(case.as_bytes()),
                Err(TokenizerError::Json(_))
            ),
            "{case}"
        );
    }
}

#[test]
fn a_failing_reader_is_told_apart_from_bad_json() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("unplugged"))
        }
    }
    assert!(matches!(
        Tokenizer::compile(Broken),
        Err(TokenizerError::Io(_))
    ));
}

#[test]
fn an_endless_file_ends_at_the_limit() {
    struct Spaces;
    impl std::io::Read for Spaces {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            buf.fill(b' ');
            Ok(buf.len())
        }
    }
    assert!(matches!(
        Tokenizer::compile(Spaces),
        Err(TokenizerError::TooLarge { .. })
    ));
}

#[test]
fn added_tokens_may_extend_the_vocabulary() {
    let mut json = small();
    let mut token = json["added_tokens"][0].clone();
    token["id"] = json!(267);
    token["content"] = json!("<eos>2");
    token["special"] = json!(false);
    json["added_tokens"]
        .as_array_mut()
        .expect("a list")
        .push(token);
    let tokenizer = open(&json).expect("it compiles");
    // The longest literal wins.
    assert_eq!(tokenizer.encode("<eos>2<eos><eos>2"), [267, 266, 267]);
    assert_eq!(
        (tokenizer.vocab_size(), tokenizer.is_special(267)),
        (268, false)
    );
}

#[test]
fn text_is_cut_only_where_no_merge_reaches() {
    // "a\n" and "c b" become tokens: both cuts would now be wrong at these places.
    let mut json = small();
    let next = json["model"]["vocab"].as_object().expect("a map").len();
    for (i, text) in ["a\n", "c\u{2581}", "c\u{2581}b"].iter().enumerate() {
        json["model"]["vocab"][*text] = json!(next + i);
    }
    let merges = json["model"]["merges"].as_array_mut().expect("a list");
    merges.splice(
        0..0,
        [
            json!(["a", "\n"]),
            json!(["c", "\u{2581}"]),
            json!(["c\u{2581}", "b"]),
        ],
    );
    let tokenizer = open(&json).expect("it compiles");
    let tokens = |text| {
        tokenizer
            .encode(text)
            .iter()
            .map(|id| tokenizer.token(*id).expect("a token"))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        tokens("a\nbc bc a"),
        ["a\n", "b", "c\u{2581}b", "c\u{2581}", "a"]
    );
}
