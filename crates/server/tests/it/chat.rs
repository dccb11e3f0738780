//! `/v1/chat/completions`.

use serde_json::{Value, json};

use crate::tool::{Served, chat, steady};

const PATH: &str = "/v1/chat/completions";

fn chunk(choices: Value) -> Value {
    json!({
        "id": "chatcmpl…", "object": "chat.completion.chunk", "created": 0, "model": "scripted", "system_fingerprint": null, "choices": choices,
    })
}

fn delta(delta: Value, reason: Value) -> Value {
    chunk(json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }]))
}

#[test]
fn an_answer_is_one_object() {
    let served = Served::new();
    let answer = served.ok(PATH, &chat("think hm so\nsay one two", json!({})));
    assert_eq!(
        steady(answer),
        json!({
            "id": "chatcmpl…",
            "object": "chat.completion",
            "created": 0,
            "model": "scripted",
            "system_fingerprint": null,
            "choices": [{
                "index": 0,
                "message": { "role": "assistant", "content": "one two", "refusal": null, "reasoning_content": "hm so" },
                "logprobs": null,
                "finish_reason": "stop",
            }],
            "usage": {
                "prompt_tokens": 28, "completion_tokens": 4, "total_tokens": 32,
                "prompt_tokens_details": { "cached_tokens": 0 },
                "completion_tokens_details": { "reasoning_tokens": 2 },
            },
        })
    );
}

#[test]
fn a_stream_has_its_chunks_in_order() {
    let served = Served::new();
    let request = chat(
        "think hm\nsay one two\ncall look {\"at\":\"x\",\"n\":null}\ncall stop {}",
        json!({ "stream": true, "tools": [{ "type": "function", "function": { "name": "look" } }] }),
    );
    let events = served.events(PATH, &request);
    let (last, chunks) = events.split_last().expect("events");
    assert_eq!(last.data, "[DONE]");
    assert!(events.iter().all(|event| event.name.is_none()));
    let call = |index: usize, name: &str, arguments: &str| json!({ "tool_calls": [{ "id": "call…", "type": "function", "function": { "name": name, "arguments": arguments }, "index": index }] });
    let chunks: Vec<Value> = chunks.iter().map(|event| steady(event.json())).collect();
    assert_eq!(
        chunks,
        [
            delta(json!({ "role": "assistant", "content": "" }), Value::Null),
            delta(json!({ "reasoning_content": "hm" }), Value::Null),
            delta(json!({ "content": "one " }), Value::Null),
            delta(json!({ "content": "two" }), Value::Null),
            delta(call(0, "look", r#"{"at":"x","n":null}"#), Value::Null),
            delta(call(1, "stop", "{}"), Value::Null),
            delta(json!({}), json!("tool_calls")),
        ]
    );
}

#[test]
fn usage_is_the_last_chunk_where_it_is_asked_for() {
    let served = Served::new();
    let request = chat(
        "say hello",
        json!({ "stream": true, "stream_options": { "include_usage": true } }),
    );
    let events = served.events(PATH, &request);
    let chunks: Vec<Value> = events[..events.len() - 1]
        .iter()
        .map(|event| event.json())
        .collect();
    let (last, others) = chunks.split_last().expect("chunks");
    assert_eq!(last["choices"], json!([]));
    assert_eq!(last["usage"]["completion_tokens"], 1);
    assert!(
        others
            .iter()
            .all(|chunk| chunk.get("usage") == Some(&Value::Null)),
        "{others:?}"
    );
}

#[test]
fn calls_have_no_content() {
    let served = Served::new();
    let answer = served.ok(
        PATH,
        &chat("call look {\"at\":[1,{\"b\":null}]}", json!({})),
    );
    let choice = &answer["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls");
    assert_eq!(choice["message"]["content"], Value::Null);
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(
        call["function"],
        json!({ "name": "look", "arguments": "{\"at\":[1,{\"b\":null}]}" })
    );
    assert!(
        call["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("call_"))
    );
}

#[test]
fn one_call_is_enough_where_they_may_not_be_parallel() {
    let served = Served::new();
    let request = chat(
        "call a {}\ncall b {}",
        json!({ "parallel_tool_calls": false }),
    );
    let answer = served.ok(PATH, &request);
    assert_eq!(
        answer["choices"][0]["message"]["tool_calls"]
            .as_array()
            .map(Vec::len),
        Some(1)
    );
}

#[test]
fn an_answer_ends_for_a_reason() {
    let served = Served::new();
    for (more, text, reason) in [
        (json!({ "max_tokens": 2 }), "one two ", "length"),
        (json!({ "max_completion_tokens": 1 }), "one ", "length"),
        (json!({ "stop": "wo" }), "one t", "stop"),
        (json!({ "stop": ["x", "thr"] }), "one two ", "stop"),
        (json!({}), "one two three", "stop"),
    ] {
        let answer = served.ok(PATH, &chat("say one two three", more.clone()));
        let choice = &answer["choices"][0];
        assert_eq!(
            (&choice["message"]["content"], &choice["finish_reason"]),
            (&json!(text), &json!(reason)),
            "{more}"
        );
    }
    // Without any text there is still a content.
    let answer = served.ok(PATH, &chat("wait 0", json!({})));
    assert_eq!(answer["choices"][0]["message"]["content"], "");
}

#[test]
fn log_probabilities_come_with_their_text() {
    let served = Served::new();
    let more = json!({ "logprobs": true, "top_logprobs": 2 });
    let answer = served.ok(PATH, &chat("think hm\nsay a b", more));
    let token = |text: &str| {
        let one = |text: String, logprob: f64| json!({ "token": text, "logprob": logprob, "bytes": text.as_bytes() });
        let mut value = one(text.to_owned(), -0.5);
        value["top_logprobs"] =
            json!([one(format!("{text}0"), -1.0), one(format!("{text}1"), -2.0)]);
        value
    };
    let expected = json!({ "content": [token("a "), token("b")], "refusal": null });
    assert_eq!(answer["choices"][0]["logprobs"], expected);

    let more = json!({ "logprobs": true, "top_logprobs": 2, "stream": true });
    let events = served.events(PATH, &chat("think hm\nsay a b", more));
    let streamed: Vec<Value> = events[..events.len() - 1]
        .iter()
        .filter_map(|event| {
            event.json()["choices"][0]["logprobs"]["content"]
                .as_array()
                .cloned()
        })
        .flatten()
        .collect();
    assert_eq!(json!(streamed), expected["content"]);
}

#[test]
fn streamed_or_not_the_text_is_the_same() {
    let served = Served::new();
    let text = "repeat 40 süß 😀 \\n\nthink so so\nsay the end";
    let whole = served.ok(PATH, &chat(text, json!({})));
    let events = served.events(PATH, &chat(text, json!({ "stream": true })));
    let streamed = |field: &str| -> String {
        let deltas = events[..events.len() - 1]
            .iter()
            .map(|event| event.json()["choices"][0]["delta"][field].clone());
        deltas
            .filter_map(|delta| delta.as_str().map(str::to_owned))
            .collect()
    };
    let message = &whole["choices"][0]["message"];
    assert_eq!(message["content"], streamed("content"));
    assert_eq!(message["reasoning_content"], streamed("reasoning_content"));
}

#[test]
fn every_role_and_part_reaches_the_model() {
    let served = Served::new();
    let request = json!({
        "messages": [
            { "role": "system", "content": "S1" },
            { "role": "developer", "content": [{ "type": "text", "text": "D" }, { "type": "text", "text": "2" }] },
            { "role": "user", "content": "U", "name": "me" },
            {
                "role": "assistant", "content": null, "reasoning_content": "T", "refusal": null, "annotations": [], "audio": null,
                "tool_calls": [
                    { "id": "c1", "type": "function", "function": { "name": "look", "arguments": "{\"at\": null}" } },
                    { "id": "c2", "type": "function", "function": { "name": "none", "arguments": "" } },
                ],
            },
            { "role": "tool", "tool_call_id": "c1", "name": "look", "content": [{ "type": "text", "text": "R" }] },
            { "role": "system", "content": "S3" },
            { "role": "user", "content": "say" },
        ],
        "tools": [{ "type": "function", "function": { "name": "look", "description": null, "parameters": null, "strict": null } }],
        "tool_choice": "auto", "user": "u", "metadata": {}, "store": true, "service_tier": "auto", "n": 1, "stop": null, "seed": -1,
        "logit_bias": { "65": -100 }, "response_format": { "type": "text" }, "modalities": ["text"], "prompt_cache_key": "k",
        "chat_template_kwargs": { "enable_thinking": false }, "reasoning_effort": "none", "min_p": 0.1, "top_k": 5,
        "repetition_penalty": 1.1, "presence_penalty": -2, "frequency_penalty": 2.0,
    });
    let answer = served.ok("/v1/chat/completions", &request);
    let text = answer["choices"][0]["message"]["content"]
        .as_str()
        .expect("a text")
        .replace('\u{1}', " ");
    assert_eq!(
        text,
        "tool look\nsystem S1\nsystem D2\nuser U\nassistant  [look {\"at\":null}] [none {}]\nuser result of look: R\nsystem S3\nuser say"
    );
}

#[test]
fn what_goes_wrong_in_a_stream_is_said_in_it() {
    let served = Served::new();
    let events = served.events(
        PATH,
        &chat("say one\nfail badly", json!({ "stream": true })),
    );
    let data: Vec<&str> = events.iter().map(|event| event.data.as_str()).collect();
    assert_eq!(data.last(), Some(&"[DONE]"));
    let error = events[data.len() - 2].json();
    assert_eq!(
        error["error"],
        json!({ "message": "badly", "type": "server_error", "param": null, "code": "internal_error" })
    );
    served
        .post(PATH, &chat("fail badly", json!({})))
        .refused(500, None, "internal_error");
}
