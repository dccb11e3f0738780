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
        assert_eq!(
            REAL.decode(&ids(&case["ids"]), false),
            text(&case, "decode_keep_special"),
            "{}",
            case["name"]
        );
        assert_eq!(
            REAL.decode(&ids(&case["ids"]), true),
            text(&case, "decode_skip_special"),
            "{}",
            case["name"]
        );
    }
}

#[test]
fn decoding_equals_the_goldens() {
    for case in cases(
        &json("testdata/tokenizer/tokenizer-golden.json"),
        "decode",
        9,
    ) {
        assert_eq!(
            REAL.decode(&ids(&case["ids"]), false),
            text(&case, "decode_keep_special"),
            "{}",
            case["name"]
        );
        assert_eq!(
            REAL.decode(&ids(&case["ids"]), true),
            text(&case, "decode_skip_special"),
            "{}",
            case["name"]
        );
    }
}
