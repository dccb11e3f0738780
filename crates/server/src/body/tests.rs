use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, default)]
struct Outer {
    inner: Option<Inner>,
    list: Vec<Inner>,
    size: Option<u32>,
    tiny: Option<u8>,
    warmth: Option<f32>,
    flag: Option<bool>,
    name: Option<String>,
    rest: Option<Value>,
}

#[derive(Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields)]
struct Inner {
    a: i64,
}

/// The field and the message of what is refused.
#[track_caller]
fn refused(text: &str) -> (Option<String>, String) {
    match parse::<Outer>(text.as_bytes()) {
        Err(Refusal::Invalid { param, message }) => (param, message),
        other => panic!("{text}: {other:?}"),
    }
}

/// It is refused by this field, and the message says so.
#[track_caller]
fn check(text: &str, param: &str, message: &str) {
    let (named, said) = refused(text);
    assert_eq!(named.as_deref(), Some(param), "{text}: {said}");
    assert!(said.starts_with(&format!("{param}: ")), "{text}: {said}");
    assert!(said.contains(message), "{text}: {said}");
}

#[test]
fn what_is_right_is_read() {
    let outer: Outer = parse(
        br#" {"inner": {"a": -1}, "list": [{"a": 2}], "size": 7, "warmth": 1, "flag": true, "name": "x", "rest": [{"b": [null, 1.5]}]} "#,
    )
    .expect("it is right");
    let expected = Outer {
        inner: Some(Inner { a: -1 }),
        list: vec![Inner { a: 2 }],
        size: Some(7),
        tiny: None,
        warmth: Some(1.0),
        flag: Some(true),
        name: Some("x".to_owned()),
        rest: Some(json!([{ "b": [null, 1.5] }])),
    };
    assert_eq!(outer, expected);
    assert_eq!(parse::<Outer>(br#"{"inner": null}"#), Ok(Outer::default()));
}

#[test]
fn what_is_wrong_is_said_in_the_words_of_json() {
    for (text, param, message) in [
        (
            r#"{"inner": [1]}"#,
            "inner",
            "found an array, expected an object",
        ),
        (
            r#"{"list": [[1]]}"#,
            "list[0]",
            "found an array, expected an object",
        ),
        (
            r#"{"list": {}}"#,
            "list",
            "found an object, expected an array",
        ),
        (
            r#"{"size": -1}"#,
            "size",
            "found number `-1`, expected a whole number from 0 to 4294967295",
        ),
        (
            r#"{"size": 1.5}"#,
            "size",
            "found number `1.5`, expected a whole number from 0 to 4294967295",
        ),
        (
            r#"{"tiny": 256}"#,
            "tiny",
            "found number `256`, expected a whole number from 0 to 255",
        ),
        (
            r#"{"warmth": "hot"}"#,
            "warmth",
            "found string \"hot\", expected a number",
        ),
        (
            r#"{"flag": 1}"#,
            "flag",
            "found number `1`, expected true or false",
        ),
        (
            r#"{"name": true}"#,
            "name",
            "found `true`, expected a string",
        ),
        (
            r#"{"name": null, "name": "x"}"#,
            "name",
            "this field is there twice",
        ),
        (r#"{"inner": {}}"#, "inner.a", "this field is needed"),
        (
            r#"{"inner": {"b": 1}}"#,
            "inner.b",
            "does not know this field",
        ),
    ] {
        check(text, param, message);
    }
}

#[test]
fn what_is_json_beyond_a_limit_is_not_called_something_else() {
    let number = "this number is out of range (line 1, column ";
    check(r#"{"warmth": 1e999}"#, "warmth", number);
    check(r#"{"rest": [1e999]}"#, "rest[0]", number);
    let deep = format!("{{\"rest\": {}", "[".repeat(200));
    check(&deep, "rest", "deeper than 128 levels");
}

#[test]
fn what_is_no_object_is_said_to_be_none() {
    for text in ["[]", "null", " \"x\"", "-1", "7", "true", "false", "[[[["] {
        let expected = (None, "the body must be a JSON object".to_owned());
        assert_eq!(refused(text), expected, "{text}");
    }
    for (text, says) in [
        ("", "the body is empty"),
        (" \n", "the body is empty"),
        ("{", "not JSON"),
        ("{\"size\": }", "not JSON"),
        ("{} {}", "not JSON"),
        ("hello", "not JSON"),
    ] {
        let (param, said) = refused(text);
        assert!(param.is_none() && said.contains(says), "{text}: {said}");
    }
}

#[test]
fn a_part_is_named_by_its_path() {
    let refused = |part: Value| match parse_part::<Inner>("tools[0]", part) {
        Err(Refusal::Invalid { param, message }) => (param.expect("a field"), message),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(json!({})).0, "tools[0].a");
    assert_eq!(refused(json!({ "a": 1, "b": 2 })).0, "tools[0].b");
    assert_eq!(refused(json!({ "a": [] })).0, "tools[0].a");
    let (param, message) = refused(json!([1]));
    assert_eq!(param, "tools[0]");
    assert!(message.contains("expected an object"), "{message}");
    assert_eq!(
        parse_part::<Inner>("x", json!({ "a": 1 })),
        Ok(Inner { a: 1 })
    );
}
