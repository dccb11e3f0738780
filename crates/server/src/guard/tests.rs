use super::*;

#[test]
fn hosts_have_ports_and_brackets() {
    for (host, expected) in [
        ("localhost", "localhost"),
        ("localhost:8080", "localhost"),
        ("127.0.0.1:1", "127.0.0.1"),
        ("[::1]:8080", "::1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
    ] {
        assert_eq!(without_port(host), expected, "{host}");
    }
}

#[test]
fn without_a_key_only_loopback_is_answered_to() {
    let options = ServerOptions::default();
    for (host, expected) in [
        ("localhost:8080", true),
        ("LOCALHOST", true),
        ("127.0.0.1", true),
        ("127.8.9.1:80", true),
        ("[::1]:8080", true),
        ("evil.example", false),
        ("localhost.evil.example", false),
        ("127.0.0.1.evil.example", false),
        ("192.168.1.7", false),
        ("", false),
    ] {
        assert_eq!(is_local(&options, host), expected, "{host}");
    }
}

#[test]
fn keys_come_in_two_headers() {
    let check = |name: &'static str, value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        says_key(&headers, "secret")
    };
    assert!(check("authorization", "Bearer secret"));
    assert!(check("authorization", "bearer  secret"));
    assert!(check("x-api-key", "secret"));
    for (name, value) in [
        ("authorization", "secret"),
        ("authorization", "Basic secret"),
        ("authorization", "Bearer secrets"),
        ("authorization", "Bearer "),
        ("x-api-key", "secre"),
        ("x-api-key", ""),
        ("cookie", "secret"),
    ] {
        assert!(!check(name, value), "{name}: {value}");
    }
}
