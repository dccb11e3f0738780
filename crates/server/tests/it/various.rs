//! Small doors: health, models, metrics, tokens, descriptions, and what is not there.

use serde_json::json;

use crate::tool::{Served, chat};

#[test]
fn the_model_is_described() {
    let served = Served::new();
    let health = served.get("/health").json();
    assert_eq!(
        (
            &health["status"],
            &health["model"],
            &health["context_length"]
        ),
        (&json!("ok"), &json!("scripted"), &json!(4096))
    );
    let list = served.get("/v1/models").json();
    assert_eq!(
        (
            &list["object"],
            &list["data"][0]["id"],
            &list["data"][1]["id"]
        ),
        (&json!("list"), &json!("scripted"), &json!("alias"))
    );
    let model = served.get("/v1/models/scripted").json();
    assert_eq!(model, list["data"][0]);
    assert_eq!(
        (
            &model["object"],
            &model["context_length"],
            &model["max_output_tokens"]
        ),
        (&json!("model"), &json!(4096), &json!(1024))
    );
    // What is no text names nothing.
    served
        .get("/v1/models/%ff%00")
        .refused(404, None, "not_found");
    served
        .get("/v1/models/org/other")
        .refused(404, Some("model"), "model_not_found");
}

#[test]
fn text_becomes_ids_and_back() {
    let served = Served::new();
    assert_eq!(
        served.ok("/tokenize", &json!({ "content": "abc" })),
        json!({ "tokens": [97, 98, 99] })
    );
    assert_eq!(
        served.ok("/detokenize", &json!({ "tokens": [97, 98, 99] })),
        json!({ "content": "abc" })
    );
    served
        .post("/detokenize", &json!({ "tokens": [256] }))
        .refused(400, Some("tokens"), "invalid_value");
    served
        .post("/tokenize", &json!({ "text": "x" }))
        .refused(400, Some("text"), "invalid_value");
    served
        .post("/tokenize", &json!({}))
        .refused(400, Some("content"), "invalid_value");
}

#[test]
fn everything_is_counted() {
    let served = Served::new();
    served.ok("/v1/chat/completions", &chat("think a\nsay b c", json!({})));
    served.post("/v1/chat/completions", &json!({}));
    for (name, value) in [
        ("ouzel_tokens_total{kind=\"prompt\"}", 20.0),
        ("ouzel_tokens_total{kind=\"new\"}", 3.0),
        ("ouzel_tokens_total{kind=\"reasoning\"}", 1.0),
        ("ouzel_turns_total{end=\"finished\"}", 1.0),
        ("ouzel_requests_total{status=\"4xx\"}", 1.0),
        ("ouzel_model_loaded", 1.0),
        ("ouzel_queue_waiting", 0.0),
        ("ouzel_turns_live", 0.0),
        ("ouzel_read_bytes_total", 0.0),
    ] {
        assert_eq!(served.metric(name), value, "{name}");
    }
}

#[test]
fn the_description_has_every_door() {
    let served = Served::new();
    let description = served.get("/openapi.json").json();
    assert_eq!(description["openapi"], "3.1.0");
    let paths = description["paths"].as_object().expect("paths");
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/tokenize",
        "/detokenize",
    ] {
        let schema =
            &paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"];
        let name = schema
            .as_str()
            .and_then(|text| text.strip_prefix("#/components/schemas/"))
            .expect("a reference");
        let properties = &description["components"]["schemas"][name]["properties"];
        assert!(
            properties
                .as_object()
                .is_some_and(|properties| !properties.is_empty()),
            "{path}: {name}"
        );
    }
    // Every reference leads somewhere.
    let text = description.to_string();
    for name in text
        .split("\"#/components/schemas/")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        assert!(
            description["components"]["schemas"].get(name).is_some(),
            "{name}"
        );
    }
}

#[test]
fn what_is_not_there_says_so() {
    let served = Served::new();
    served
        .post("/v1/embeddings", &json!({ "input": "x" }))
        .refused(501, None, "not_supported");
    served.get("/v1/wings").refused(404, None, "not_found");
    served
        .get("/v1/chat/completions")
        .refused(405, None, "method_not_allowed");
    let response = served.get("/v1/messages/batches");
    assert_eq!(
        (response.status, response.json()["type"].clone()),
        (404, json!("error"))
    );
}

#[test]
fn one_connection_serves_many_requests() {
    let served = Served::new();
    let mut connection = served.connect();
    for i in 0..3 {
        connection.post(
            "/v1/chat/completions",
            &chat(&format!("say number{i}"), json!({})),
        );
        connection.read_until(&format!("number{i}"));
    }
}
