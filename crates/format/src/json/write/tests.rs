use super::*;

#[test]
fn numbers_are_written_as_swift_writes_them() {
    for (value, expected) in [
        (30.0, "30"),
        (0.25, "0.25"),
        (1e6, "1000000"),
        (-2.5, "-2.5"),
        (0.0, "0"),
        (1e-4, "0.0001"),
        (1e-5, "1e-05"),
        (1.5e-7, "1.5e-07"),
        (1e-100, "1e-100"),
        (1e16, "10000000000000000"),
        (1e17, "1e+17"),
        (1.25e300, "1.25e+300"),
    ] {
        assert_eq!(number(value), expected);
        assert_eq!(number(value).parse(), Ok(value));
    }
}

#[test]
fn texts_escape_only_what_json_demands() {
    let text = "a/b\\c\"d\u{8}\u{c}\n\r\t\u{1}\u{7f}é🐦";
    let written = encode(&text);
    assert_eq!(
        String::from_utf8_lossy(&written),
        "\"a/b\\\\c\\\"d\\b\\f\\n\\r\\t\\u0001\u{7f}é🐦\""
    );
    assert_eq!(
        serde_json::from_slice::<String>(&written).ok().as_deref(),
        Some(text)
    );
}

#[test]
fn empty_containers_hold_an_empty_line() {
    assert_eq!(encode(&Vec::<u32>::new()), b"[\n\n]");
    assert_eq!(encode(&BTreeMap::<String, u32>::new()), b"{\n\n}");
}

#[test]
fn keys_are_sorted_without_regard_to_case_and_stably() {
    let map: BTreeMap<String, u32> = ["expertStride", "expertsPerLayer", "a", "A", "b_c", "b"]
        .map(|key| (key.to_owned(), 0))
        .into();
    let written = String::from_utf8(encode(&map)).expect("JSON is UTF-8");
    let keys: Vec<&str> = written.split('"').skip(1).step_by(2).collect();
    assert_eq!(
        keys,
        ["A", "a", "b", "b_c", "expertsPerLayer", "expertStride"]
    );
}
