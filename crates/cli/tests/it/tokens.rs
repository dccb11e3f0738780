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
    detokenize(b"[-1]").refused(2, &["from 0 to 4294967295", "line 1 column"]);
    detokenize(b"{}").refused(2, &["found an object, expected an array"]);
    detokenize(b"[5, 99999999]").refused(2, &["99999999 at place 1", "from 0 to 8191"]);
    user.run_with(&["tokenize", "demo"], b"caf\xe9")
        .refused(2, &["byte 3", "UTF-8"]);
    user.run_with(&["tokenize", "demo", "--chat", "-"], b"{\"tools\": []}")
        .refused(2, &["missing field `messages`"]);
    user.run_with(&["tokenize", tiny()], b"Hello")
        .refused(3, &["tokenizer/tokenizer.json"]);
}

#[cfg(unix)]
#[test]
fn an_input_that_never_ends() {
    let user = User::with_demo();
    for args in [
        ["detokenize", "demo"].as_slice(),
        &["tokenize", "demo"],
        &["tokenize", "demo", "--chat", "-"],
        &["generate", "--messages-file", "/dev/zero"],
        &["eval", "demo", "--token-ids", "/dev/zero"],
        &["eval", "demo", "--text", "-"],
        &["chat", "--model", "demo", "--quiet"],
    ] {
        let zeros = std::fs::File::open("/dev/zero").expect("every Unix has it");
        let output = user.command().args(args).stdin(zeros).output();
        let output = output.expect("the program ends");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(
            err.contains("64 MiB") && err.lines().count() == 1,
            "{args:?}: {err}"
        );
        assert_eq!(output.status.code(), Some(2), "{args:?}: {err}");
    }
}

#[test]
fn an_input_at_its_limit_and_above() {
    let user = User::with_demo();
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let detokenize = |len: u64| {
        file.as_file().set_len(len).expect("room for a hole");
        let stdin = std::fs::File::open(file.path()).expect("it is there");
        let mut command = user.command();
        let output = command.args(["detokenize", "demo"]).stdin(stdin).output();
        String::from_utf8_lossy(&output.expect("the program ends").stderr).into_owned()
    };
    let at_limit = detokenize(64 << 20);
    assert!(at_limit.contains("expected value at line 1"), "{at_limit}");
    let above = detokenize((64 << 20) + 1);
    assert!(above.contains("larger than 64 MiB"), "{above}");
}
