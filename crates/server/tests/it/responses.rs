//! `/v1/responses`.

use serde_json::{Value, json};

use crate::tool::{Served, steady};

const PATH: &str = "/v1/responses";
const SCRIPT: &str = "think hm\nsay one two\ncall look {\"at\":1}";

fn response(status: &str, output: Value, usage: Value) -> Value {
    json!({
        "id": "resp…", "object": "response", "created_at": 0, "status": status, "background": false, "error": null,
        "incomplete_details": null, "model": "scripted", "output": output, "usage": usage, "instructions": null,
        "max_output_tokens": null, "max_tool_calls": null, "metadata": {}, "parallel_tool_calls": true, "previous_response_id": null,
        "reasoning": { "effort": null, "summary": null }, "store": false, "temperature": 0.5, "text": { "format": { "type": "text" } },
        "tool_choice": "auto", "tools": [], "top_p": 0.95, "top_logprobs": 0, "truncation": "disabled",
    })
}

fn request(input: &str, more: Value) -> Value {
    let mut request =
        json!({ "model": "scripted", "input": input, "temperature": 0.5, "top_p": 0.95 });
    request
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    request
}

fn output() -> [Value; 3] {
    let part =
        json!({ "type": "output_text", "text": "one two", "annotations": [], "logprobs": [] });
    [
        json!({
            "id": "rs…", "type": "reasoning", "summary": [], "content": [{ "type": "reasoning_text", "text": "hm" }],
            "encrypted_content": null, "status": "completed",
        }),
        json!({ "id": "msg…", "type": "message", "status": "completed", "role": "assistant", "content": [part] }),
        json!({
            "id": "fc…", "type": "function_call", "status": "completed", "arguments": "{\"at\":1}", "call_id": "call…", "name": "look",
        }),
    ]
}

fn usage() -> Value {
    json!({
        "input_tokens": 44, "input_tokens_details": { "cached_tokens": 0 }, "output_tokens": 4,
        "output_tokens_details": { "reasoning_tokens": 1 }, "total_tokens": 48,
    })
}

#[test]
fn an_answer_is_one_object() {
    let served = Served::new();
    let answer = served.ok(PATH, &request(SCRIPT, json!({})));
    assert_eq!(
        steady(answer),
        response("completed", json!(output()), usage())
    );
}

/// An event about an item, or about a part of it.
fn of(kind: &str, item: &Value, index: usize, more: Value) -> Value {
    let mut event = json!({ "type": kind, "output_index": index });
    if !kind.starts_with("response.output_item") {
        event["item_id"] = item["id"].clone();
    }
    event
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    event
}

/// The events of an item: it is added, what is between, it is done.
fn item_events(
    item: &Value,
    index: usize,
    field: &str,
    empty: Value,
    between: &[(&str, Value)],
) -> Vec<Value> {
    let mut begun = item.clone();
    begun["status"] = json!("in_progress");
    begun[field] = empty;
    let mut events = vec![of(
        "response.output_item.added",
        item,
        index,
        json!({ "item": begun }),
    )];
    events.extend(
        between
            .iter()
            .map(|(kind, more)| of(&format!("response.{kind}"), item, index, more.clone())),
    );
    events.push(of(
        "response.output_item.done",
        item,
        index,
        json!({ "item": item }),
    ));
    events
}

/// The events of the script, without their numbers.
fn expected_events() -> Vec<Value> {
    let begun = response("in_progress", json!([]), Value::Null);
    let [thought, message, call] = output();
    let text = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] });
    let thinking = |text: &str| json!({ "type": "reasoning_text", "text": text });
    let of_thought = [
        (
            "content_part.added",
            json!({ "content_index": 0, "part": thinking("") }),
        ),
        (
            "reasoning_text.delta",
            json!({ "content_index": 0, "delta": "hm" }),
        ),
        (
            "reasoning_text.done",
            json!({ "content_index": 0, "text": "hm" }),
        ),
        (
            "content_part.done",
            json!({ "content_index": 0, "part": thinking("hm") }),
        ),
    ];
    let of_message = [
        (
            "content_part.added",
            json!({ "content_index": 0, "part": text("") }),
        ),
        (
            "output_text.delta",
            json!({ "content_index": 0, "delta": "one ", "logprobs": [] }),
        ),
        (
            "output_text.delta",
            json!({ "content_index": 0, "delta": "two", "logprobs": [] }),
        ),
        (
            "output_text.done",
            json!({ "content_index": 0, "text": "one two", "logprobs": [] }),
        ),
        (
            "content_part.done",
            json!({ "content_index": 0, "part": text("one two") }),
        ),
    ];
    let of_call = [
        (
            "function_call_arguments.delta",
            json!({ "delta": "{\"at\":1}" }),
        ),
        (
            "function_call_arguments.done",
            json!({ "arguments": "{\"at\":1}", "name": "look" }),
        ),
    ];
    let mut events = vec![
        json!({ "type": "response.created", "response": begun }),
        json!({ "type": "response.in_progress", "response": begun }),
    ];
    events.extend(item_events(&thought, 0, "content", json!([]), &of_thought));
    events.extend(item_events(&message, 1, "content", json!([]), &of_message));
    events.extend(item_events(&call, 2, "arguments", json!(""), &of_call));
    let whole = response("completed", json!(output()), usage());
    events.push(json!({ "type": "response.completed", "response": whole }));
    events
}

#[test]
fn events_come_in_their_order() {
    let served = Served::new();
    let events = served.events(PATH, &request(SCRIPT, json!({ "stream": true })));
    for (i, event) in events.iter().enumerate() {
        let value = event.json();
        assert_eq!(
            value["type"].as_str(),
            event.name.as_deref(),
            "an event repeats its name"
        );
        assert_eq!(value["sequence_number"], i);
    }
    let events: Vec<Value> = events
        .iter()
        .map(|event| {
            let mut event = steady(event.json());
            event
                .as_object_mut()
                .expect("an object")
                .remove("sequence_number");
            event
        })
        .collect();
    let expected = expected_events();
    for (actual, expected) in events.iter().zip(&expected) {
        assert_eq!(actual, expected);
    }
    assert_eq!(events.len(), expected.len());
}

#[test]
fn a_cut_answer_is_incomplete_and_a_broken_one_failed() {
    let served = Served::new();
    let answer = served.ok(
        PATH,
        &request("say one two", json!({ "max_output_tokens": 1 })),
    );
    assert_eq!(
        (&answer["status"], &answer["incomplete_details"]),
        (
            &json!("incomplete"),
            &json!({ "reason": "max_output_tokens" })
        )
    );
    // What was begun is not whole either; what came before it is.
    let status = |items: &Value| -> Vec<Value> {
        let items = items.as_array().expect("items").iter();
        items.map(|item| item["status"].clone()).collect()
    };
    let cut = |script: &str, n: u32| {
        let request =
            |stream: bool| request(script, json!({ "max_output_tokens": n, "stream": stream }));
        let whole = served.ok(PATH, &request(false));
        let events = served.events(PATH, &request(true));
        let done = |event: &&crate::tool::Event| {
            event.name.as_deref() == Some("response.output_item.done")
        };
        let done: Vec<Value> = events
            .iter()
            .filter(done)
            .map(|event| event.json()["item"]["status"].clone())
            .collect();
        let last = events.last().expect("events").json();
        assert_eq!(status(&last["response"]["output"]), done, "{script}");
        assert_eq!(status(&whole["output"]), done, "{script}");
        done
    };
    assert_eq!(cut("say one two", 1), ["incomplete"]);
    assert_eq!(cut("think hm hm", 1), ["incomplete"]);
    assert_eq!(cut("think hm\nsay one two", 2), ["completed", "incomplete"]);
    assert_eq!(cut("call look {}\nsay one", 1), ["completed"]);
    let last = |input: &str, more: Value| {
        let events = served.events(PATH, &request(input, more));
        events.last().expect("events").json()
    };
    assert_eq!(
        last(
            "say one two",
            json!({ "stream": true, "max_output_tokens": 1 })
        )["type"],
        "response.incomplete"
    );
    let failed = last("say one\nfail badly", json!({ "stream": true }));
    assert_eq!(failed["type"], "response.failed");
    assert_eq!(status(&failed["response"]["output"]), ["incomplete"]);
    assert_eq!(
        failed["response"]["error"],
        json!({ "code": "internal_error", "message": "badly" })
    );
}

#[test]
fn every_item_reaches_the_model() {
    let served = Served::new();
    let more = json!({
        "instructions": "I",
        "input": [
            { "role": "developer", "content": "D" },
            { "type": "message", "role": "user", "content": [{ "type": "input_text", "text": "U" }] },
            { "type": "reasoning", "id": "rs_1", "summary": [{ "type": "summary_text", "text": "T" }], "encrypted_content": null },
            { "type": "message", "role": "assistant", "content": [{ "type": "output_text", "text": "A", "annotations": [] }] },
            { "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": "{\"at\":null}" },
            { "type": "function_call", "call_id": "c2", "name": "look", "arguments": "" },
            { "type": "function_call_output", "call_id": "c1", "output": "R" },
            { "type": "function_call_output", "call_id": "c2", "output": [{ "type": "input_text", "text": "R2" }] },
            { "role": "user", "content": "say" },
        ],
        "tools": [
            { "type": "function", "name": "look", "parameters": { "type": "object" }, "strict": false },
            { "type": "web_search", "search_context_size": "low" },
        ],
        "tool_choice": "auto", "store": false, "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "stream": false,
        "text": { "verbosity": "low" }, "client_metadata": {}, "reasoning": { "effort": "medium", "summary": "auto" },
    });
    let answer = served.post(PATH, &request("", more));
    assert!(
        answer
            .header("x-ouzel-warning")
            .is_some_and(|warning| warning.contains("web_search")),
        "{answer:?}"
    );
    let answer = answer.json();
    let text = answer["output"][0]["content"][0]["text"]
        .as_str()
        .expect("a text")
        .replace('\u{1}', " ");
    assert_eq!(
        text,
        "tool look\nsystem I\nsystem D\nuser U\nassistant A [look {\"at\":null}] [look {}]\nuser result of ?: R\nuser result of ?: R2\nuser say"
    );
}

#[test]
fn what_needs_a_memory_is_refused() {
    let served = Served::new();
    for (field, value) in [
        ("previous_response_id", json!("resp_1")),
        ("conversation", json!("conv_1")),
        ("prompt", json!({ "id": "p" })),
        ("background", json!(true)),
        ("truncation", json!("auto")),
        ("max_tool_calls", json!(1)),
        ("include", json!(["file_search_call.results"])),
        ("top_logprobs", json!(1)),
        ("wings", json!(1)),
        ("tool_choice", json!("required")),
        ("input", json!([])),
        ("input", json!([{ "role": "assistant", "content": "x" }])),
        (
            "tools[0].wings",
            json!([{ "type": "function", "name": "x", "wings": 1 }]),
        ),
        ("tools[0].name", json!([{ "type": "function" }])),
        (
            "text.format.schema",
            json!({ "format": { "type": "json_schema" } }),
        ),
        ("reasoning", json!([])),
    ] {
        let mut body = request("x", json!({}));
        let name = field.split(['.', '[']).next().unwrap_or(field);
        body[name] = value;
        served
            .post(PATH, &body)
            .refused(400, Some(field), "invalid_value");
    }
}
