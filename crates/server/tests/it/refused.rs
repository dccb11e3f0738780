//! What a chat request may not say: each refusal names its field.

use serde_json::{Value, json};

use crate::tool::{Served, chat, options};
use ouzel_server::script::Script;

const PATH: &str = "/v1/chat/completions";

/// Numbers and words beside the conversation: field, value, what is named.
fn sampling() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("n", json!(2), "n"),
        ("temperature", json!(2.1), "temperature"),
        ("temperature", json!("hot"), "temperature"),
        ("top_p", json!(0), "top_p"),
        ("top_p", json!(1.1), "top_p"),
        ("top_k", json!(-1), "top_k"),
        ("min_p", json!(1.5), "min_p"),
        ("presence_penalty", json!(-2.5), "presence_penalty"),
        ("frequency_penalty", json!(2.5), "frequency_penalty"),
        ("repetition_penalty", json!(0), "repetition_penalty"),
        ("seed", json!(1.5), "seed"),
        ("stop", json!(""), "stop"),
        ("stop", json!(["a", ""]), "stop"),
        ("stop", json!(vec!["a"; 17]), "stop"),
        ("stop", json!(1), "stop"),
        ("logit_bias", json!({ "x": 1 }), "logit_bias.x"),
        ("logit_bias", json!({ "1": 101 }), "logit_bias.1"),
        ("logit_bias", json!({ "256": 1 }), "logit_bias.256"),
        ("top_logprobs", json!(1), "top_logprobs"),
        ("top_logprobs", json!(21), "top_logprobs"),
        ("max_tokens", json!(0), "max_tokens"),
        ("max_completion_tokens", json!(0), "max_completion_tokens"),
        ("max_tokens", json!(-1), "max_tokens"),
        ("stream", json!("yes"), "stream"),
        ("stream_options", json!([]), "stream_options"),
        (
            "stream_options",
            json!({ "wings": 1 }),
            "stream_options.wings",
        ),
        ("tools", json!([{ "type": "web_search" }]), "tools[0].type"),
    ]
}

/// Tools, and what has no place of its own.
fn offers() -> Vec<(&'static str, Value, &'static str)> {
    let function = |function: Value| json!([{ "type": "function", "function": function }]);
    vec![
        (
            "tools",
            json!([{ "type": "function" }]),
            "tools[0].function",
        ),
        ("tools", function(json!({})), "tools[0].function.name"),
        (
            "tools",
            function(json!({ "name": "" })),
            "tools[0].function.name",
        ),
        (
            "tools",
            function(json!({ "name": "x", "wings": 1 })),
            "tools[0].function.wings",
        ),
        ("tool_choice", json!("required"), "tool_choice"),
        ("tool_choice", json!("sometimes"), "tool_choice"),
        (
            "tool_choice",
            json!({ "type": "function", "function": { "name": "x" } }),
            "tool_choice",
        ),
        (
            "tool_choice",
            json!({ "type": "allowed_tools" }),
            "tool_choice",
        ),
        ("reasoning_effort", json!("extreme"), "reasoning_effort"),
        (
            "chat_template_kwargs",
            json!([null]),
            "chat_template_kwargs",
        ),
        (
            "chat_template_kwargs",
            json!({ "wings": 1 }),
            "chat_template_kwargs.wings",
        ),
        ("modalities", json!(["text", "audio"]), "modalities"),
        ("audio", json!({}), "audio"),
        ("functions", json!([]), "functions"),
        ("function_call", json!("auto"), "function_call"),
        ("prediction", json!({}), "prediction"),
        ("web_search_options", json!({}), "web_search_options"),
        ("verbosity", json!("low"), "verbosity"),
        ("wings", json!(2), "wings"),
    ]
}

/// Formats of the answer.
fn formats() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        (
            "response_format",
            json!({ "type": "xml" }),
            "response_format.type",
        ),
        (
            "response_format",
            json!({ "type": "json_schema" }),
            "response_format.json_schema",
        ),
        (
            "response_format",
            json!({ "type": "json_schema", "json_schema": "x" }),
            "response_format.json_schema",
        ),
        (
            "response_format",
            json!({ "type": "json_schema", "json_schema": {} }),
            "response_format.json_schema.schema",
        ),
        (
            "response_format",
            json!({ "type": "json_schema", "schema": 1 }),
            "response_format.schema",
        ),
    ]
}

/// Messages.
fn conversations() -> Vec<(&'static str, Value, &'static str)> {
    vec![
        ("messages", json!([]), "messages"),
        ("messages", json!("hello"), "messages"),
        (
            "messages",
            json!([{ "role": "user" }]),
            "messages[0].content",
        ),
        ("messages", json!([{ "content": "x" }]), "messages[0].role"),
        ("messages", json!([["user", "x"]]), "messages[0]"),
        (
            "messages",
            json!([{ "role": "robot", "content": "x" }]),
            "messages[0].role",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": 1 }]),
            "messages[0].content",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": "x", "wings": 1 }]),
            "messages[0].wings",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "x" } }] }]),
            "messages[0].content[0]",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": [{ "type": "input_audio" }] }]),
            "messages[0].content[0].type",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": [{ "type": "text" }] }]),
            "messages[0].content[0].text",
        ),
        (
            "messages",
            json!([{ "role": "tool", "content": "x" }]),
            "messages[0].tool_call_id",
        ),
        (
            "messages",
            json!([{ "role": "user", "content": "x" }, { "role": "assistant", "content": "y" }]),
            "messages[1].role",
        ),
        (
            "messages",
            json!([{ "role": "assistant", "tool_calls": [{ "id": "1", "function": { "name": "x", "arguments": "[1" } }] }, { "role": "user", "content": "x" }]),
            "messages[0].tool_calls[0].function.arguments",
        ),
        (
            "messages",
            json!([{ "role": "assistant", "audio": { "id": "1" } }, { "role": "user", "content": "x" }]),
            "messages[0].audio",
        ),
    ]
}

#[test]
fn a_field_that_cannot_be_honoured_is_named() {
    let served = Served::new();
    let cases = [sampling(), offers(), formats(), conversations()].concat();
    for (field, value, param) in cases {
        let mut request = chat("say x", json!({}));
        request[field] = value.clone();
        if param == "top_logprobs" && value == json!(21) {
            request["logprobs"] = json!(true);
        }
        let response = served.post(PATH, &request);
        assert_eq!(response.status, 400, "{field} {value}: {}", response.text());
        assert_eq!(
            response.json()["error"]["param"],
            param,
            "{field} {value}: {}",
            response.text()
        );
        assert_eq!(response.header("x-should-retry"), Some("false"));
        response.refused(400, Some(param), "invalid_value");
    }
    assert_eq!(served.metric("ouzel_turns_live"), 0.0);
}

/// What SDKs and agents send beside what is meant is no reason to refuse them; docs/server.md says where.
#[test]
fn beside_what_is_meant_there_may_be_more() {
    let served = Served::new();
    let text = json!({ "type": "text", "text": "say x", "cache_control": { "type": "ephemeral" } });
    let look = json!({ "name": "look" });
    let more = json!({
        "messages": [
            { "role": "assistant", "tool_calls": [{ "id": "1", "index": 0, "function": { "name": "look", "output": 1 } }] },
            { "role": "tool", "tool_call_id": "1", "content": "x" },
            { "role": "user", "content": [text] },
        ],
        "tools": [{ "type": "function", "function": look, "cache_control": {} }],
        "tool_choice": { "type": "function", "function": { "name": "look", "x": 1 }, "x": 1 },
        "response_format": { "type": "json_schema", "x": 1, "json_schema": { "name": "n", "strict": true, "x": 1, "schema": {} } },
    });
    served.ok(PATH, &chat("", more));
}

#[test]
fn a_conversation_has_a_limit_of_messages() {
    let served = Served::with_script(options(), Script::new(1 << 20));
    let messages = |n: usize| json!(vec![json!({ "role": "user", "content": "x" }); n]);
    let most = chat("", json!({ "messages": messages(10_000) }));
    assert_eq!(served.post(PATH, &most).status, 200);
    let beyond = chat("", json!({ "messages": messages(10_001) }));
    let refused = served.post(PATH, &beyond);
    refused.refused(400, Some("messages"), "invalid_value");
    assert!(refused.text().contains("10000 are the most"));
    for (path, body, param) in [
        (
            "/v1/messages/count_tokens",
            json!({ "messages": messages(10_001) }),
            None,
        ),
        (
            "/v1/responses",
            json!({ "input": messages(10_001) }),
            Some("input"),
        ),
    ] {
        let refused = served.post(path, &body);
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.text().contains("10001 messages"), "{path}");
        if param.is_some() {
            refused.refused(400, param, "invalid_value");
        }
    }
}

#[test]
fn an_unknown_model_is_not_found() {
    let served = Served::new();
    served
        .post(PATH, &chat("x", json!({ "model": "gpt-5" })))
        .refused(404, Some("model"), "model_not_found");
    for name in ["scripted", "alias"] {
        assert_eq!(
            served.ok(PATH, &chat("say x", json!({ "model": name })))["model"],
            "scripted"
        );
    }
}

#[test]
fn a_body_that_is_no_json_is_refused() {
    let served = Served::new();
    for body in [
        "",
        "{",
        "[]",
        "null",
        "{\"messages\": [}",
        "{} {}",
        "\u{1}",
        "{\"model\": \"\\ud800\"}",
    ] {
        let response = served.post_text(PATH, body);
        assert_eq!(response.status, 400, "{body:?}: {}", response.text());
        assert_eq!(response.json()["error"]["type"], "invalid_request_error");
    }
    let deep = "[".repeat(100_000);
    assert_eq!(served.post_text(PATH, &deep).status, 400);
}

#[test]
fn a_prompt_that_is_too_long_says_what_would_do() {
    let served = Served::with_script(options(), Script::new(50));
    // "user", a mark, and so many letters.
    let request = |n: usize| chat(&"x".repeat(n), json!({}));
    assert_eq!(served.post(PATH, &request(44)).status, 200);
    let response = served.post(PATH, &request(45));
    response.refused(400, Some("messages"), "context_length_exceeded");
    let message = response.json()["error"]["message"]
        .as_str()
        .expect("a message")
        .to_owned();
    for part in [
        "prompt is too long: 50 tokens > 49 maximum",
        "holds 50 tokens",
        "--memory 1MiB",
        "--max-context",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    served
        .post("/v1/completions", &json!({ "prompt": "x".repeat(50) }))
        .refused(400, Some("prompt"), "context_length_exceeded");
    served
        .post("/v1/responses", &json!({ "input": "x".repeat(45) }))
        .refused(400, Some("input"), "context_length_exceeded");
}
