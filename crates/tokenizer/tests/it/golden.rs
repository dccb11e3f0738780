//! The tokenizer's golden file, made with the reference library.

use crate::data::{REAL, json};
use serde_json::Value;

fn ids(value: &Value) -> Vec<u32> {
    let list = value.as_array().expect("a list of ids");
    list.iter()
        .map(|id| id.as_u64().expect("an id") as u32)
        .collect()
}

fn text<'a>(case: &'a Value, key: &str) -> &'a str {
    case[key]
        .as_str()
        .unwrap_or_else(|| panic!("{key} of {case}"))
}

fn cases(golden: &Value, key: &str, count: usize) -> Vec<Value> {
    let cases = golden[key].as_array().expect("a list of cases").clone();
    assert_eq!(cases.len(), count, "{key}");
    cases
}

fn check_decoding(case: &Value) {
    for (skip_special, key) in [
        (false, "decode_keep_special"),
        (true, "decode_skip_special"),
    ] {
        let actual = REAL.decode(&ids(&case["ids"]), skip_special);
        assert_eq!(actual, text(case, key), "{} {key}", case["name"]);
    }
}

#[test]
fn encoding_equals_the_goldens() {
    for case in cases(
        &json("testdata/tokenizer/tokenizer-golden.json"),
        "encode",
        79,
    ) {
        assert_eq!(
            REAL.encode(text(&case, "text")),
            ids(&case["ids"]),
            "{}",
            case["name"]
        );
        check_decoding(&case);
    }
}

#[test]
fn decoding_equals_the_goldens() {
    for case in cases(
        &json("testdata/tokenizer/tokenizer-golden.json"),
        "decode",
        9,
    ) {
        check_decoding(&case);
    }
}
