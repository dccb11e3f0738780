//! `/v1/completions`.

use serde_json::{Value, json};

use crate::tool::{Served, steady};

const PATH: &str = "/v1/completions";

#[test]
fn an_answer_is_one_object() {
    let served = Served::new();
    let answer = served.ok(PATH, &json!({ "prompt": "say one two", "logprobs": 1 }));
    assert_eq!(
        steady(answer),
        json!({
            "id": "cmpl…", "object": "text_completion", "created": 0, "model": "scripted", "system_fingerprint": null,
            "choices": [{
                "index": 0, "text": "one two", "finish_reason": "stop",
                "logprobs": {
                    "tokens": ["one ", "two"], "token_logprobs": [-0.5, -0.5],
                    "top_logprobs": [{ "one 0": -1.0 }, { "two0": -1.0 }], "text_offset": [0, 4],
                },
            }],
            "usage": {
                "prompt_tokens": 11, "completion_tokens": 2, "total_tokens": 13,
                "prompt_tokens_details": { "cached_tokens": 0 }, "completion_tokens_details": { "reasoning_tokens": 0 },
            },
        })
    );
}

#[test]
fn a_prompt_has_several_forms() {
    let served = Served::new();
    for prompt in [
        json!("say x"),
        json!(["say x"]),
        json!([115, 97, 121, 32, 120]),
        json!([[115, 97, 121, 32, 120]]),
    ] {
        let answer = served.ok(PATH, &json!({ "prompt": prompt }));
        assert_eq!(answer["choices"][0]["text"], "x", "{prompt}");
    }
    for prompt in [
        json!(["a", "b"]),
        json!([]),
        json!([1.5]),
        json!([-1]),
        json!([[1], [2]]),
        json!([{}]),
    ] {
        served.post(PATH, &json!({ "prompt": prompt })).refused(
            400,
            Some("prompt"),
            "invalid_value",
        );
    }
    served
        .post(PATH, &json!({ "prompt": [256] }))
        .refused(400, Some("prompt"), "invalid_value");
    served
        .post(PATH, &json!({ "prompt": "" }))
        .refused(400, Some("prompt"), "invalid_value");
}

#[test]
fn sixteen_tokens_are_the_default() {
    let served = Served::new();
    let answer = served.ok(PATH, &json!({ "prompt": "repeat 99 x " }));
    assert_eq!(
        (
            &answer["usage"]["completion_tokens"],
            &answer["choices"][0]["finish_reason"]
        ),
        (&json!(16), &json!("length"))
    );
}

#[test]
fn a_stream_has_its_chunks_in_order() {
    let served = Served::new();
    let events = served.events(PATH, &json!({ "prompt": "say a b", "stream": true, "stream_options": { "include_usage": true } }));
    let (last, chunks) = events.split_last().expect("events");
    assert_eq!(last.data, "[DONE]");
    let said: Vec<Value> = chunks
        .iter()
        .map(|event| {
            let chunk = event.json();
            json!([
                chunk["choices"][0]["text"],
                chunk["choices"][0]["finish_reason"],
                chunk["usage"]["completion_tokens"]
            ])
        })
        .collect();
    assert_eq!(
        said,
        [
            json!(["a ", null, null]),
            json!(["b", null, null]),
            json!(["", "stop", null]),
            json!([null, null, 2])
        ]
    );
}
