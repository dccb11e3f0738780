//! `ouzel tokenize` and `ouzel detokenize`.

use serde_json::{Value, json};

use crate::tool::{User, repository, tiny};

#[test]
fn text_comes_back() {
    let user = User::with_demo();
    let text = "What is a thrush?\n\u{e9} \u{1f426}\n";
    let ids = user.run_with(&["tokenize", "demo"], text.as_bytes()).ok();
    assert_eq!(
        user.run_with(&["detokenize", "demo"], ids.as_bytes()).ok(),
        text
    );
}

#[test]
fn a_conversation_becomes_what_the_model_reads() {
    let user = User::with_demo();
    let golden = std::fs::read(repository("testdata/demo/golden.json")).expect("golden values");
    let golden: Value = serde_json::from_slice(&golden).expect("JSON");
    let prompt = &golden["prompts"][0];
    let path = user.file(
        "thrush.json",
        br#"[{"role": "user", "content": "What is a thrush?"}]"#,
    );
    let out = user.run(&["tokenize", "demo", "--chat", &path]).ok();
    let out: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(out, json!({"text": prompt["prompt"], "ids": prompt["ids"]}));
}

#[test]
fn tools_and_variables_come_in_an_object() {
    let user = User::with_demo();
    let golden = std::fs::read(repository("testdata/chat-template/chat-golden.json"))
        .expect("golden values");
    let golden: Value = serde_json::from_slice(&golden).expect("JSON");
    for case in golden["cases"].as_array().expect("cases") {
        let Some(expected) = case["rendered"]["gemma4-chat_template.jinja"].as_str() else {
            continue;
        };
        let mut input = json!({
            "messages": case["messages"],
            "add_generation_prompt": case["add_generation_prompt"],
            "kwargs": case["kwargs"],
        });
        if !case["tools"].is_null() {
            input["tools"] = case["tools"].clone();
        }
        let out = user
            .run_with(
                &["tokenize", "demo", "--chat", "-"],
                input.to_string().as_bytes(),
            )
            .ok();
        let out: Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(out["text"], expected, "{}", case["name"]);
    }
}

#[test]
fn input_that_is_none() {
    let user = User::with_demo();
    let detokenize = |stdin: &[u8]| user.run_with(&["detokenize", "demo"], stdin);
    detokenize(b"[1, 2").refused(2, &["line 1 column"]);
    detokenize(b"[-1]").refused(2, &["line 1 column"]);
    detokenize(b"[99999999]").refused(2, &["99999999", "8192"]);
    user.run_with(&["tokenize", "demo"], b"caf\xe9")
        .refused(2, &["byte 3", "UTF-8"]);
    user.run_with(&["tokenize", "demo", "--chat", "-"], b"{\"tools\": []}")
        .refused(2, &["missing field `messages`"]);
    user.run_with(&["tokenize", tiny()], b"Hello")
        .refused(3, &["tokenizer/tokenizer.json"]);
}
