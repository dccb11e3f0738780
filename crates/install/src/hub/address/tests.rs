use super::*;

#[test]
fn addresses_are_read_and_others_refused() {
    for (text, expected) in [
        ("https://huggingface.co", "https://huggingface.co/"),
        (
            "HTTPS://Hub.example:8443/a?b=c#d",
            "https://hub.example:8443/a",
        ),
        ("http://127.0.0.1:80/x", "http://127.0.0.1/x"),
        ("http://[::1]:8080/x", "http://[::1]:8080/x"),
        ("http://localhost:9?q", "http://localhost:9/"),
    ] {
        let address = Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(address.shown(), expected, "{text}");
    }
    for text in [
        "",
        "huggingface.co",
        "ftp://huggingface.co",
        "http://huggingface.co",
        "http://127.0.0.1.example",
        "https://",
        "https://user:secret@host/",
        "https://host:0/",
        "https://host:65536/",
        "https://host:/",
        "https://ho st/",
        "https://host/a b",
        "https://host/a\r\nX: y",
        "https://[::1/",
        "https://[::g]/",
    ] {
        let error = Address::parse(text).expect_err(text).to_string();
        assert!(
            !error.contains("secret") && error.lines().count() == 1,
            "{error}"
        );
    }
}

#[test]
fn a_location_leads_where_it_says() {
    let here = Address::parse("https://hub.example/a/b?c").expect("an address");
    for (location, expected) in [
        ("https://cdn.example/x?sig=1", "https://cdn.example/x"),
        ("//cdn.example/x", "https://cdn.example/x"),
        ("/api/x?y=https://z", "https://hub.example/api/x"),
        ("c", "https://hub.example/a/c"),
    ] {
        assert_eq!(here.join(location).expect(location).shown(), expected);
    }
    for downgrade in ["http://cdn.example/x", "http://127.0.0.1:8080/x"] {
        assert!(here.join(downgrade).is_err(), "{downgrade}");
    }
}

#[test]
fn any_name_stays_one_part() {
    assert_eq!(encode("a b/c?d#é%"), "a%20b%2Fc%3Fd%23%C3%A9%25");
    assert_eq!(
        encode("model-00001-of-00003.safetensors"),
        "model-00001-of-00003.safetensors"
    );
}
