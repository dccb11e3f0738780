//! `/v1/messages` and its count of tokens.

use serde_json::{Value, json};

use crate::tool::{Served, steady};

const PATH: &str = "/v1/messages";

fn message(text: &str, more: Value) -> Value {
    let mut request = json!({ "model": "scripted", "max_tokens": 100, "messages": [{ "role": "user", "content": text }] });
    request
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    request
}

#[test]
fn an_answer_is_one_object() {
    let served = Served::new();
    let answer = served.ok(
        PATH,
        &message("think hm\nsay one two\ncall look {\"at\":1}", json!({})),
    );
    assert_eq!(
        steady(answer),
        json!({
            "id": "msg…", "type": "message", "role": "assistant", "model": "scripted",
            "content": [
                { "type": "thinking", "thinking": "hm", "signature": "unsigned" },
                { "type": "text", "text": "one two" },
                { "type": "tool_use", "id": "toolu…", "name": "look", "input": { "at": 1 } },
            ],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": { "input_tokens": 44, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 4 },
        })
    );
}

#[test]
fn events_come_in_their_order() {
    let served = Served::new();
    let events = served.events(
        PATH,
        &message(
            "think hm\nsay one two\ncall look {\"at\":1}",
            json!({ "stream": true }),
        ),
    );
    for event in &events {
        assert_eq!(
            event.json()["type"].as_str(),
            event.name.as_deref(),
            "an event repeats its name"
        );
    }
    let events: Vec<Value> = events.iter().map(|event| steady(event.json())).collect();
    let usage = |input: u32, output: u32| json!({ "input_tokens": input, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": output });
    assert_eq!(
        events,
        [
            json!({ "type": "message_start", "message": {
                "id": "msg…", "type": "message", "role": "assistant", "model": "scripted", "content": [], "stop_reason": null,
                "stop_sequence": null, "usage": usage(44, 0),
            } }),
            json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "thinking", "thinking": "", "signature": "" } }),
            json!({ "type": "ping" }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "thinking_delta", "thinking": "hm" } }),
            json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "signature_delta", "signature": "unsigned" } }),
            json!({ "type": "content_block_stop", "index": 0 }),
            json!({ "type": "content_block_start", "index": 1, "content_block": { "type": "text", "text": "" } }),
            json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "text_delta", "text": "one " } }),
            json!({ "type": "content_block_delta", "index": 1, "delta": { "type": "text_delta", "text": "two" } }),
            json!({ "type": "content_block_stop", "index": 1 }),
            json!({ "type": "content_block_start", "index": 2, "content_block": { "type": "tool_use", "id": "toolu…", "name": "look", "input": {} } }),
            json!({ "type": "content_block_delta", "index": 2, "delta": { "type": "input_json_delta", "partial_json": "{\"at\":1}" } }),
            json!({ "type": "content_block_stop", "index": 2 }),
            json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use", "stop_sequence": null }, "usage": usage(44, 4) }),
            json!({ "type": "message_stop" }),
        ]
    );
}

#[test]
fn an_answer_ends_for_a_reason() {
    let served = Served::new();
    for (text, more, reason, sequence) in [
        ("say one two", json!({}), "end_turn", Value::Null),
        (
            "say one two",
            json!({ "max_tokens": 1 }),
            "max_tokens",
            Value::Null,
        ),
        (
            "say one two",
            json!({ "stop_sequences": ["w"] }),
            "stop_sequence",
            json!("w"),
        ),
        ("call a {}", json!({}), "tool_use", Value::Null),
    ] {
        let answer = served.ok(PATH, &message(text, more.clone()));
        assert_eq!(
            (&answer["stop_reason"], &answer["stop_sequence"]),
            (&json!(reason), &sequence),
            "{more}"
        );
    }
}

#[test]
fn every_block_reaches_the_model() {
    let served = Served::new();
    let request = json!({
        "model": "scripted", "max_tokens": 100,
        "system": [
            { "type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1a2b;" },
            { "type": "text", "text": "S", "cache_control": { "type": "ephemeral" } },
        ],
        "messages": [
            { "role": "user", "content": [{ "type": "text", "text": "U", "cache_control": { "type": "ephemeral" } }] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": "T", "signature": "unsigned" },
                { "type": "redacted_thinking", "data": "?" },
                { "type": "text", "text": "A" },
                { "type": "tool_use", "id": "t1", "name": "look", "input": { "at": null } },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t1", "content": [{ "type": "text", "text": "R" }] },
                { "type": "tool_result", "tool_use_id": "t1", "content": "E", "is_error": true },
                { "type": "text", "text": "say" },
            ] },
        ],
        "tools": [{ "name": "look", "description": "d", "input_schema": { "type": "object" }, "cache_control": { "type": "ephemeral" } }],
        "tool_choice": { "type": "auto", "disable_parallel_tool_use": true },
        "thinking": { "type": "enabled", "budget_tokens": 1024 }, "metadata": { "user_id": "u" },
        "temperature": 1, "top_k": 5, "top_p": 0.9, "service_tier": "auto", "context_management": { "edits": [] },
    });
    let answer = served.ok(PATH, &request);
    let text = answer["content"][0]["text"]
        .as_str()
        .expect("a text")
        .replace('\u{1}', " ");
    assert_eq!(
        text,
        "tool look\nsystem S\nuser U\nassistant A [look {\"at\":null}]\nuser result of ?: R\nuser result of ?: {\"error\":\"E\"}\nuser say"
    );
}

#[test]
fn who_pays_does_not_change_the_prompt() {
    let served = Served::new();
    let count = |nonce: &str| {
        let system = format!("x-anthropic-billing-header: cc_version=2; cch={nonce};\nBe brief.");
        served.ok(
            "/v1/messages/count_tokens",
            &json!({ "system": system, "messages": [{ "role": "user", "content": "say" }] }),
        )
    };
    assert_eq!(count("1"), count("a longer one"));
    let plain =
        json!({ "system": "Be brief.", "messages": [{ "role": "user", "content": "say" }] });
    assert_eq!(count("1"), served.ok("/v1/messages/count_tokens", &plain));
}

/// The refusal in Anthropic's envelope.
#[track_caller]
fn refused(served: &Served, body: Value, status: u16, kind: &str, says: &str) {
    let response = served.post(PATH, &body);
    assert_eq!(response.status, status, "{}", response.text());
    let error = response.json();
    assert_eq!(
        (&error["type"], &error["error"]["type"]),
        (&json!("error"), &json!(kind)),
        "{error}"
    );
    let message = error["error"]["message"].as_str().expect("a message");
    assert!(message.contains(says), "{says}: {message}");
}

#[test]
fn a_field_that_cannot_be_honoured_is_named() {
    let served = Served::new();
    let image = json!([{ "role": "user", "content": [{ "type": "image", "source": {} }] }]);
    let search = json!([{ "type": "web_search_20250305", "name": "web_search" }]);
    for (field, value, says) in [
        ("temperature", json!(1.5), "temperature"),
        ("wings", json!(1), "wings"),
        ("mcp_servers", json!([{}]), "mcp_servers"),
        ("container", json!("c"), "container"),
        ("thinking", json!({ "type": "deep" }), "thinking.type"),
        ("tools", search, "tools[0].type"),
        (
            "tool_choice",
            json!({ "type": "tool", "name": "y" }),
            "tool_choice",
        ),
        ("messages", json!([]), "messages"),
        (
            "messages",
            json!([{ "role": "assistant", "content": "x" }]),
            "messages",
        ),
        ("messages", image, "messages[0].content[0]"),
        ("max_tokens", Value::Null, "max_tokens"),
    ] {
        let body = message("x", json!({ field: value }));
        refused(&served, body, 400, "invalid_request_error", says);
    }
}

#[test]
fn errors_have_their_own_envelope() {
    let served = Served::new();
    refused(
        &served,
        message("x", json!({ "model": "claude" })),
        404,
        "not_found_error",
        "claude",
    );
    refused(&served, message("fail x", json!({})), 500, "api_error", "x");
    let events = served.events(
        PATH,
        &message("say one\nfail badly", json!({ "stream": true })),
    );
    let last = events.last().expect("events");
    assert_eq!(last.name.as_deref(), Some("error"));
    assert_eq!(
        last.json(),
        json!({ "type": "error", "error": { "type": "api_error", "message": "badly" } })
    );
}
