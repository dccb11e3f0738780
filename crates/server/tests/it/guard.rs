//! Who may ask.

use ouzel_server::{MAX_BODY_BYTES, ServeError, ServerOptions, Stop, serve};
use serde_json::json;
use std::io::{Read, Write};
use std::sync::Arc;

use crate::tool::{Served, chat, opened, options};

const PATH: &str = "/v1/chat/completions";

#[test]
fn beyond_loopback_a_key_is_needed() {
    let start = |host: &str, api_key: Option<&str>| {
        let options = ServerOptions {
            host: host.to_owned(),
            api_key: api_key.map(str::to_owned),
            ..options()
        };
        let stop = Stop::new();
        stop.advance();
        serve(
            options,
            opened(ouzel_server::script::Script::default(), &["scripted"]),
            Arc::new(ouzel_server::log::Silent),
            &stop,
            |_| (),
        )
    };
    assert!(matches!(
        start("0.0.0.0", None),
        Err(ServeError::NeedsKey(_))
    ));
    assert!(matches!(start("0.0.0.0", Some("k")), Ok(())));
    assert!(matches!(start("localhost", None), Ok(())));
    assert!(matches!(
        start("nowhere.invalid", Some("k")),
        Err(ServeError::Listen { .. })
    ));
}

#[test]
fn with_a_key_nothing_else_gets_in() {
    let served = Served::with(ServerOptions {
        api_key: Some("secret".to_owned()),
        ..options()
    });
    let status = |path: &str, headers: &str| {
        let headers = format!("Host: example.org\r\n{headers}");
        let response = served.request("GET", path, &headers, b"");
        (
            response.status,
            response.header("www-authenticate").map(str::to_owned),
        )
    };
    let refused = (401, Some("Bearer".to_owned()));
    assert_eq!(status("/v1/models", ""), refused);
    assert_eq!(
        status("/v1/models", "Authorization: Bearer secre\r\n"),
        refused
    );
    assert_eq!(status("/v1/models", "x-api-key: SECRET\r\n"), refused);
    assert_eq!(status("/metrics", ""), refused);
    assert_eq!(status("/nowhere", ""), refused);
    for headers in [
        "Authorization: Bearer secret\r\n",
        "x-api-key: secret\r\n",
        "authorization: bearer secret\r\nx-api-key: no\r\n",
    ] {
        assert_eq!(status("/v1/models", headers), (200, None), "{headers}");
    }
    assert_eq!(status("/health", ""), (200, None));
}

#[test]
fn names_and_pages_of_others_are_refused() {
    let served = Served::new();
    let own = format!("127.0.0.1:{}", served.address.port());
    let status = |host: &str, origin: Option<&str>| {
        let origin = origin.map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
        served
            .request("GET", "/health", &format!("Host: {host}\r\n{origin}"), b"")
            .status
    };
    assert_eq!(status(&own, None), 200);
    assert_eq!(status("localhost:1", None), 200);
    assert_eq!(status("rebound.example", None), 403);
    assert_eq!(status("10.0.0.1", None), 403);
    assert_eq!(status(&own, Some(&format!("http://{own}"))), 200);
    assert_eq!(status(&own, Some("https://evil.example")), 403);
    assert_eq!(status(&own, Some("null")), 403);
    assert_eq!(
        status("rebound.example", Some("http://rebound.example")),
        403
    );
}

#[test]
fn origins_may_be_let_in() {
    let served = Served::with(ServerOptions {
        cors_origins: vec!["https://app.example".to_owned()],
        ..options()
    });
    let ask = |method: &str, origin: &str, more: &str| {
        served.request(
            method,
            "/v1/models",
            &format!("Host: localhost\r\nOrigin: {origin}\r\n{more}"),
            b"",
        )
    };
    let response = ask("GET", "https://app.example", "");
    assert_eq!(
        (
            response.status,
            response.header("access-control-allow-origin")
        ),
        (200, Some("https://app.example"))
    );
    assert_eq!(response.header("vary"), Some("origin"));
    let preflight = "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, content-type\r\n";
    let response = ask("OPTIONS", "https://app.example", preflight);
    assert_eq!(response.status, 204);
    assert_eq!(
        response.header("access-control-allow-headers"),
        Some("authorization, content-type")
    );
    assert_eq!(
        response.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    for method in ["GET", "OPTIONS"] {
        let response = ask(method, "https://other.example", preflight);
        assert_eq!(
            (
                response.status,
                response.header("access-control-allow-origin")
            ),
            (403, None)
        );
    }
}

#[test]
fn bodies_and_heads_have_limits() {
    let served = Served::new();
    let fits = chat(&format!("say {}", "x".repeat(1000)), json!({})).to_string();
    let padded = format!("{fits}{}", " ".repeat(MAX_BODY_BYTES - fits.len()));
    assert_eq!(served.post_text(PATH, &padded).status, 200);
    served
        .post_text(PATH, &format!("{padded} "))
        .refused(413, None, "request_too_large");

    let form = "Host: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    served
        .request("POST", PATH, form, b"{}")
        .refused(415, None, "unsupported_media_type");

    // A head is refused while it is being sent, so that the refusal may be lost with the connection.
    let is_refused = |headers: String| {
        let mut connection = served.connect();
        connection.send(
            "GET",
            "/health",
            &format!("Host: localhost\r\n{headers}"),
            b"",
        );
        let mut head = Vec::new();
        let _ = connection.stream.read_to_end(&mut head);
        head.is_empty() || head.starts_with(b"HTTP/1.1 431")
    };
    assert!(is_refused(format!("X-Long: {}\r\n", "x".repeat(300_000))));
    assert!(is_refused(
        (0..200).map(|i| format!("X-{i}: 1\r\n")).collect()
    ));
    let few: String = (0..50).map(|i| format!("X-{i}: 1\r\n")).collect();
    assert!(!is_refused(format!("Connection: close\r\n{few}")));
}

#[test]
fn a_body_without_its_length_has_the_same_limit() {
    let served = Served::new();
    let mut connection = served.connect();
    let head = "Host: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n";
    let _ = write!(connection.stream, "POST {PATH} HTTP/1.1\r\n{head}\r\n");
    let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
    for _ in 0..(MAX_BODY_BYTES >> 20) + 1 {
        // The server may have hung up.
        let _ = connection.stream.write_all(chunk.as_bytes());
    }
    let _ = connection.stream.write_all(b"0\r\n\r\n");
    connection
        .response()
        .refused(413, None, "request_too_large");
}

#[test]
fn a_body_without_end_is_refused_where_it_is_too_long() {
    let served = Served::new();
    for framing in [
        "Transfer-Encoding: chunked".to_owned(),
        format!("Content-Length: {}", MAX_BODY_BYTES + 1),
        "Content-Length: 1000000000000".to_owned(),
    ] {
        let mut connection = served.connect();
        let head = format!("Host: localhost\r\nContent-Type: application/json\r\n{framing}\r\n");
        let _ = write!(connection.stream, "POST {PATH} HTTP/1.1\r\n{head}\r\n");
        if framing.starts_with("Transfer") {
            let chunk = format!("100000\r\n{}\r\n", " ".repeat(1 << 20));
            for _ in 0..(MAX_BODY_BYTES >> 20) + 1 {
                let _ = connection.stream.write_all(chunk.as_bytes());
            }
        }
        // Neither the end of the body nor the end of the connection is the client's.
        let response = connection.response();
        assert_eq!(response.header("connection"), Some("close"), "{framing}");
        response.refused(413, None, "request_too_large");
    }
    // Whoever asks before it sends hears no "go on".
    let mut connection = served.connect();
    let head = "Host: localhost\r\nExpect: 100-continue\r\nContent-Length: 99999999\r\n";
    let _ = write!(connection.stream, "POST {PATH} HTTP/1.1\r\n{head}\r\n");
    connection
        .response()
        .refused(413, None, "request_too_large");
}

#[test]
fn a_request_has_one_host() {
    let served = Served::new();
    let ask = |version: &str, path: &str, headers: &str| {
        let mut connection = served.connect();
        let head = format!("GET {path} HTTP/{version}\r\nConnection: close\r\n{headers}\r\n");
        let _ = connection.stream.write_all(head.as_bytes());
        connection.response()
    };
    assert_eq!(ask("1.1", "/health", "Host: localhost\r\n").status, 200);
    assert_eq!(ask("1.0", "/health", "").status, 200);
    for (version, headers) in [
        ("1.1", ""),
        ("1.1", "Host: localhost\r\nHost: localhost\r\n"),
        ("1.1", "Host: localhost\r\nHost: evil.example\r\n"),
        ("1.0", "Host: localhost\r\nHost: localhost\r\n"),
    ] {
        ask(version, "/health", headers).refused(400, None, "invalid_value");
        let refused = ask(version, "/v1/messages", headers);
        assert_eq!(refused.json()["type"], "error", "{headers}");
    }
}
