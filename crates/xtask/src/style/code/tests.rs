use super::*;

#[test]
fn comments_and_literals_are_blanked_and_lines_stay() {
    for (text, expected) in [
        ("a // {\nb", "a\nb"),
        ("a /* { /* } */ { */ b", "a b"),
        (r#"a("{\"}") b"#, "a() b"),
        (r##"a(r#"{ " }"#) b"##, "a() b"),
        (r#"a(br"{\") b"#, "a(b) b"),
        (r"a('{', '\'', '\u{7b}') b", "a(, , ) b"),
        ("fn a<'x>(y: &'x str) {}", "fn a<'x>(y: &'x str) {}"),
        ("r#fn(\"{\n\")", "r#fn(\n)"),
        ("a \"no end", "a"),
    ] {
        let masked = only(Kind::Code, text);
        let words = |s: &str| s.replace([' ', '\n'], "");
        assert_eq!(words(&masked), words(expected), "{text}");
        assert_eq!(
            masked.matches('\n').count(),
            text.matches('\n').count(),
            "{text}"
        );
    }
}

#[test]
fn each_kind_is_found_alone() {
    let text = "a(\"b // c\"); // d \"e\"";
    assert_eq!(only(Kind::Code, text).replace(' ', ""), "a();");
    assert_eq!(only(Kind::Literal, text).trim(), "\"b // c\"");
    assert_eq!(only(Kind::Comment, text).trim(), "// d \"e\"");
}

#[test]
fn words_are_whole_words() {
    assert!(has_word("{ unsafe { } }", "unsafe"));
    assert!(has_word("unsafe", "unsafe"));
    assert!(!has_word("forbid(unsafe_code)", "unsafe"));
    assert!(!has_word("is_unsafe", "unsafe"));
}

#[test]
fn functions_are_measured_from_signature_to_brace() {
    let text = "trait T {\n  fn declared(x: [u8; 3]);\n}\nfn one() {}\npub fn three(\n) -> [u8; 2] {\n}\ntype F = fn (u8);\n";
    let expected = [("one".to_owned(), 4, 1), ("three".to_owned(), 5, 3)];
    assert_eq!(functions(&only(Kind::Code, text)), expected);
}
