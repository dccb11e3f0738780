//! `ouzel serve` with the bundled model, over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::tool::{Run, User, repository};

/// The program, until it is dropped.
pub struct Serving {
    pub child: Child,
    address: String,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Serving {
    pub fn new(flags: &[&str]) -> Serving {
        Serving::of(&mut User::with_demo().command(), flags)
    }

    /// The same as somebody's command.
    pub fn of(command: &mut Command, flags: &[&str]) -> Serving {
        let mut child = command
            .args(["serve", "demo", "--port", "0", "--prefix-disk", "0"])
            .args(flags)
            .spawn()
            .expect("the binary was built");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        let address = loop {
            line.clear();
            let n = stderr.read_line(&mut line).expect("messages are UTF-8");
            assert!(n > 0, "the server says where it listens");
            if let Some((_, rest)) = line.split_once(" at http://") {
                break rest.trim_end().trim_end_matches("/v1").to_owned();
            }
        };
        Serving {
            child,
            address,
            stderr,
        }
    }

    /// Status and body of an answer; HTTP/1.0, so that a stream ends with its connection.
    pub fn ask(&self, method: &str, path: &str, body: &Value) -> (u16, String) {
        let mut stream = self.request(method, path, body);
        let mut answer = String::new();
        stream
            .read_to_string(&mut answer)
            .expect("answers are UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }

    /// Posts a request and gives what comes back, head and all.
    pub fn send(&self, path: &str, body: &Value) -> TcpStream {
        self.request("POST", path, body)
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream
            .write_all(head.as_bytes())
            .expect("the server listens");
        stream
            .write_all(body.as_bytes())
            .expect("the server listens");
        stream
    }

    #[track_caller]
    pub fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, text) = self.ask("POST", path, body);
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).expect("JSON")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn chat(text: &str, more: Value) -> Value {
    let mut request = json!({ "messages": [{ "role": "user", "content": text }], "temperature": 0, "max_tokens": 40 });
    request
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    request
}

/// The text of a chat stream.
fn streamed(body: &str) -> String {
    assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    let chunks = body.lines().filter_map(|line| line.strip_prefix("data: {"));
    let text = chunks.filter_map(|json| {
        let chunk: Value = serde_json::from_str(&format!("{{{json}")).expect("JSON");
        chunk["choices"][0]["delta"]["content"]
            .as_str()
            .map(str::to_owned)
    });
    text.collect()
}

#[test]
fn greedy_answers_are_the_same_through_every_door() {
    let serving = Serving::new(&[]);
    let question = "What is a fieldfare?";
    let alone = User::with_demo()
        .run(&["generate", question, "--model", "demo", "--max-new", "40"])
        .ok();
    let alone = alone.trim_end_matches('\n');
    let whole = serving.ok("/v1/chat/completions", &chat(question, json!({})));
    assert_eq!(whole["choices"][0]["message"]["content"], alone);
    assert_eq!(whole["model"], "demo");
    let n_prompt = whole["usage"]["prompt_tokens"].as_u64().expect("a count");
    // The second time most of the prompt is held, and nothing changes.
    let again = serving.ok("/v1/chat/completions", &chat(question, json!({})));
    assert_eq!(again["choices"], whole["choices"]);
    assert_eq!(
        again["usage"]["prompt_tokens_details"]["cached_tokens"],
        n_prompt - 1
    );
    let (status, stream) = serving.ask(
        "POST",
        "/v1/chat/completions",
        &chat(question, json!({ "stream": true })),
    );
    assert_eq!((status, streamed(&stream).as_str()), (200, alone));
    let message = json!({ "max_tokens": 40, "temperature": 0, "messages": [{ "role": "user", "content": question }] });
    assert_eq!(
        serving.ok("/v1/messages", &message)["content"][0]["text"],
        alone
    );
    assert_eq!(
        serving.ok("/v1/messages/count_tokens", &message)["input_tokens"],
        n_prompt
    );
    let response = json!({ "input": question, "temperature": 0, "max_output_tokens": 40 });
    assert_eq!(
        serving.ok("/v1/responses", &response)["output"][0]["content"][0]["text"],
        alone
    );
}

#[test]
fn what_the_engine_offers_works() {
    let serving = Serving::new(&["--model-name", "tiny dictionary"]);
    let plain = serving.ok(
        "/v1/chat/completions",
        &chat(
            "What is a thrush?",
            json!({ "logprobs": true, "top_logprobs": 3 }),
        ),
    );
    let choice = &plain["choices"][0];
    assert_eq!(plain["model"], "tiny dictionary");
    let tokens = choice["logprobs"]["content"].as_array().expect("tokens");
    let text: String = tokens
        .iter()
        .filter_map(|token| token["token"].as_str())
        .collect();
    assert_eq!(choice["message"]["content"], text);
    for token in tokens {
        let top = token["top_logprobs"].as_array().expect("alternatives");
        assert_eq!(top.len(), 3);
        assert_eq!(
            top[0]["token"], token["token"],
            "a greedy answer takes the likeliest token"
        );
        assert_eq!(top[0]["logprob"], token["logprob"]);
        assert!(
            token["logprob"]
                .as_f64()
                .is_some_and(|logprob| logprob <= 0.0)
        );
    }
    // A token that is forbidden does not come.
    let first =
        serving.ok("/tokenize", &json!({ "content": tokens[0]["token"] }))["tokens"][0].clone();
    let biased = serving.ok(
        "/v1/chat/completions",
        &chat(
            "What is a thrush?",
            json!({ "logit_bias": { first.to_string(): -100 } }),
        ),
    );
    let answer = |value: &Value| {
        value["choices"][0]["message"]["content"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert!(
        !answer(&biased).starts_with(tokens[0]["token"].as_str().unwrap_or("?")),
        "{biased}"
    );
    tool_round(&serving);
    bound(&serving);
    bound_at_the_limits(&serving);
    bound_or_calling(&serving);
    raw_text(&serving);
}

/// A raw text goes on as `generate --prompt` has it.
fn raw_text(serving: &Serving) {
    let raw = User::with_demo()
        .run(&[
            "generate",
            "--prompt",
            "A thrush is",
            "--model",
            "demo",
            "--max-new",
            "12",
        ])
        .ok();
    let completion = serving.ok(
        "/v1/completions",
        &json!({ "prompt": "A thrush is", "max_tokens": 12, "temperature": 0 }),
    );
    assert_eq!(completion["choices"][0]["text"], raw.trim_end_matches('\n'));
}

/// Tools are shown, and their calls and results are read.
fn tool_round(serving: &Serving) {
    let tools = json!([{ "type": "function", "function": { "name": "look_up", "parameters": { "type": "object", "properties": { "word": { "type": "string" } } } } }]);
    let round = json!({
        "messages": [
            { "role": "user", "content": "What is a thrush?" },
            { "role": "assistant", "content": null, "tool_calls": [{ "id": "c1", "type": "function", "function": { "name": "look_up", "arguments": "{\"word\":\"thrush\"}" } }] },
            { "role": "tool", "tool_call_id": "c1", "content": "a songbird" },
        ],
        "tools": tools, "max_tokens": 10, "temperature": 0,
    });
    serving.ok("/v1/chat/completions", &round);
}

/// Answers that have the form which was asked for, whatever the model would have liked to say.
fn bound(serving: &Serving) {
    let schema = json!({
        "type": "object", "properties": { "kind": { "enum": ["bird", "fish"] } }, "required": ["kind"], "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "kind", "strict": true, "schema": schema } });
    let answer = serving.ok(
        "/v1/chat/completions",
        &chat("What is a thrush?", json!({ "response_format": format })),
    );
    let text = answer["choices"][0]["message"]["content"]
        .as_str()
        .expect("a text")
        .to_owned();
    let value: Value = serde_json::from_str(&text).expect("JSON");
    assert!(
        ["bird", "fish"].contains(&value["kind"].as_str().unwrap_or_default()),
        "{text}"
    );
    let streamed_request = chat(
        "What is a thrush?",
        json!({ "response_format": format, "stream": true }),
    );
    assert_eq!(
        streamed(
            &serving
                .ask("POST", "/v1/chat/completions", &streamed_request)
                .1
        ),
        text
    );
    let tool = json!({ "type": "function", "function": { "name": "look_up", "strict": true, "parameters": schema } });
    for choice in [
        json!("required"),
        json!({ "type": "function", "function": { "name": "look_up" } }),
    ] {
        let more = json!({ "tools": [tool], "tool_choice": choice, "parallel_tool_calls": false });
        let answer = serving.ok("/v1/chat/completions", &chat("What is a thrush?", more));
        let choice = &answer["choices"][0];
        assert_eq!(choice["finish_reason"], "tool_calls", "{answer}");
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "look_up");
        let arguments: Value =
            serde_json::from_str(function["arguments"].as_str().expect("a text")).expect("JSON");
        assert!(
            ["bird", "fish"].contains(&arguments["kind"].as_str().unwrap_or_default()),
            "{answer}"
        );
    }
    let unsupported = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": { "type": "object", "not": {} } } });
    let (status, text) = serving.ask(
        "POST",
        "/v1/chat/completions",
        &chat("x", json!({ "response_format": unsupported })),
    );
    assert_eq!(status, 400, "{text}");
    assert!(
        text.contains("response_format") && text.contains("not"),
        "{text}"
    );
}

/// Schemas that go deep, calls that are cut off, and answers that cannot be held to what was asked for: none ends the server or looks whole.
fn bound_at_the_limits(serving: &Serving) {
    let format = |schema: Value| json!({ "response_format": { "type": "json_schema", "json_schema": { "name": "x", "schema": schema } } });
    let last = 2_000;
    let links: serde_json::Map<String, Value> = (0..last)
        .map(|i| {
            (
                format!("d{i}"),
                json!({ "$ref": format!("#/$defs/d{}", i + 1) }),
            )
        })
        .chain([(format!("d{last}"), json!({ "type": "null" }))])
        .collect();
    let deep = json!({ "$defs": links, "$ref": "#/$defs/d0" });
    let answer = |more| {
        serving.ask(
            "POST",
            "/v1/chat/completions",
            &chat("What is a thrush?", more),
        )
    };
    // Whether it is one entry too many or not, somebody answers.
    let (status, text) = answer(format(deep));
    assert_eq!(status, 400, "{text}");
    assert!(text.contains("more than 1024 entries"), "{text}");
    let properties: serde_json::Map<String, Value> = (0..700)
        .map(|i| (format!("p{i}"), json!({ "type": "string" })))
        .collect();
    let (status, text) = answer(format(
        json!({ "type": "object", "properties": properties, "maxProperties": 0 }),
    ));
    assert!([200, 400].contains(&status), "{text}");
    let (status, text) = answer(format(
        json!({ "type": "string", "pattern": "(.*a.{40}){5}" }),
    ));
    assert!(status != 200 || text.contains("\"length\""), "{text}");
    let parameters = json!({ "type": "object", "properties": { "a": { "type": "array", "items": { "type": "null" }, "minItems": 5_000 } } });
    let tools =
        json!([{ "type": "function", "function": { "name": "f", "parameters": parameters } }]);
    let cut_off = json!({ "tools": tools, "tool_choice": "required", "max_tokens": 3 });
    let choice = serving.ok("/v1/chat/completions", &chat("What is a thrush?", cut_off))["choices"]
        [0]
    .clone();
    assert_eq!(choice["finish_reason"], "length", "{choice}");
    let content = choice["message"]["content"].as_str().unwrap_or_default();
    assert_eq!(content, "", "{choice}");
    assert_eq!(serving.ask("GET", "/health", &json!(null)).0, 200);
}

/// With a format and tools an answer has the format or calls; which of them is up to the model, and here to a bias.
fn bound_or_calling(serving: &Serving) {
    let mark = json!({ "content": "<|tool_call>" });
    let mark = serving.ok("/tokenize", &mark)["tokens"][0].to_string();
    let schema = json!({
        "type": "object", "properties": { "kind": { "enum": ["bird", "fish"] } }, "required": ["kind"], "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "kind", "strict": true, "schema": schema } });
    let tool = json!({ "type": "function", "function": { "name": "look_up", "strict": true, "parameters": schema } });
    let ask = |bias: i32, more: Value| {
        let mut request =
            json!({ "response_format": format, "tools": [tool], "logit_bias": { &mark: bias } });
        let fields = more.as_object().expect("an object").clone();
        request.as_object_mut().expect("an object").extend(fields);
        let request = chat("What is a thrush?", request);
        serving.ok("/v1/chat/completions", &request)["choices"][0].clone()
    };
    let of_schema = |text: &Value| {
        let text = text.as_str().expect("a text");
        let value: Value = serde_json::from_str(text).expect("JSON");
        let kind = value["kind"].as_str().unwrap_or_default();
        assert!(["bird", "fish"].contains(&kind), "{text}");
    };
    let text = ask(-100, json!({}));
    assert_eq!(text["finish_reason"], "stop", "{text}");
    of_schema(&text["message"]["content"]);
    // A call that must come leaves no room for the format.
    for (bias, more) in [
        (100, json!({ "parallel_tool_calls": false })),
        (
            0,
            json!({ "tool_choice": "required", "parallel_tool_calls": false }),
        ),
    ] {
        let call = ask(bias, more);
        assert_eq!(call["finish_reason"], "tool_calls", "{call}");
        of_schema(&call["message"]["tool_calls"][0]["function"]["arguments"]);
    }
    let text = ask(0, json!({ "tool_choice": "none" }));
    of_schema(&text["message"]["content"]);
    // What cannot be enforced is named where it stands.
    let unsupported = json!({ "type": "object", "not": {} });
    let odd_format =
        json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": unsupported } });
    let odd_tool = json!({ "type": "function", "function": { "name": "odd", "strict": true, "parameters": unsupported } });
    for (more, param) in [
        (
            json!({ "response_format": odd_format, "tools": [tool] }),
            "response_format",
        ),
        (
            json!({ "response_format": format, "tools": [odd_tool] }),
            "tools",
        ),
    ] {
        let (status, text) = serving.ask("POST", "/v1/chat/completions", &chat("x", more));
        let error = serde_json::from_str::<Value>(&text).expect("JSON")["error"].clone();
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{text}");
    }
}

/// Instructions and tools that another conversation has, too, are not computed again; answers are those of a server without a past.
#[test]
fn conversations_that_share_instructions_and_tools_continue_behind_them() {
    let system = "A thrush is a songbird. A wren is a small songbird. ".repeat(70);
    let tools = json!([{ "type": "function", "function": { "name": "look_up", "parameters": { "type": "object", "properties": { "word": { "type": "string" } } } } }]);
    let request = |question: &str| {
        json!({
            "messages": [{ "role": "system", "content": system }, { "role": "user", "content": question }],
            "tools": tools, "temperature": 0, "max_tokens": 12,
        })
    };
    let questions = ["What is a thrush?", "And what is a fieldfare?", "An owl?"];
    let warm = Serving::new(&[]);
    let answers = questions.map(|question| warm.ok("/v1/chat/completions", &request(question)));
    let cached = |answer: &Value| {
        let details = &answer["usage"]["prompt_tokens_details"];
        details["cached_tokens"].as_u64().expect("a count")
    };
    assert_eq!(cached(&answers[0]), 0);
    let shared = cached(&answers[1]);
    let n_prompt = answers[1]["usage"]["prompt_tokens"].as_u64();
    let n_prompt = n_prompt.expect("a count");
    println!("{shared} of {n_prompt} tokens are shared");
    assert!(shared > 256 && n_prompt - shared < 32, "{answers:?}");
    assert!(cached(&answers[2]).abs_diff(shared) < 4, "{answers:?}");
    for (question, answer) in questions.iter().zip(&answers) {
        let cold = Serving::new(&["--prefix-memory", "0"]);
        let expected = cold.ok("/v1/chat/completions", &request(question));
        assert_eq!(answer["choices"], expected["choices"], "{question}");
    }
}

#[test]
fn the_examples_of_the_documentation_work() {
    let page = std::fs::read_to_string(repository("docs/server.md")).expect("the page");
    let serving = Serving::new(&[]);
    let mut n_examples = 0;
    for example in page.split("\ncurl ").skip(1) {
        let path = example
            .split("localhost:8080")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .expect("an address");
        let body = example
            .split("-d '")
            .nth(1)
            .and_then(|rest| rest.split('\'').next())
            .expect("a body");
        let body: Value =
            serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"));
        let (status, text) = serving.ask("POST", path, &body);
        assert_eq!(status, 200, "{path}: {text}");
        n_examples += 1;
    }
    assert_eq!(n_examples, 4);
}

#[test]
fn what_does_not_fit_says_what_would() {
    let serving = Serving::new(&["--max-context", "64"]);
    let (status, text) = serving.ask(
        "POST",
        "/v1/chat/completions",
        &chat(&"a thrush and ".repeat(100), json!({})),
    );
    let error = serde_json::from_str::<Value>(&text).expect("JSON")["error"].clone();
    assert_eq!(
        (status, &error["code"]),
        (400, &json!("context_length_exceeded"))
    );
    let message = error["message"].as_str().expect("a message");
    assert!(
        message.contains("64 tokens") && message.contains("--memory"),
        "{message}"
    );
    let (status, _) = serving.ask("GET", "/v1/models/demo", &Value::Null);
    assert_eq!(status, 200);
}

#[test]
fn it_listens_where_it_may() {
    let user = User::with_demo();
    user.run(&[
        "serve", "demo", "--quiet", "--host", "0.0.0.0", "--port", "0",
    ])
    .refused(2, &["0.0.0.0", "API key"]);
    user.run(&["serve", "demo", "--time-limit", "soon"])
        .refused(2, &["90s, 10m or 2h"]);
    let serving = Serving::new(&["--api-key", "secret", "--idle-unload", "1h"]);
    assert_eq!(serving.ask("GET", "/v1/models", &Value::Null).0, 401);
    assert_eq!(serving.ask("GET", "/health", &Value::Null).0, 200);
    let port = serving.address.rsplit(':').next().expect("a port");
    let taken = user.run(&["serve", "demo", "--quiet", "--port", port]);
    assert_eq!(taken.code, Some(5), "{taken:?}");
}

#[cfg(unix)]
#[test]
fn a_signal_lets_answers_end() {
    let mut serving = Serving::new(&[]);
    let mut stream = TcpStream::connect(&serving.address).expect("the server listens");
    let body = chat("What is a fieldfare?", json!({ "stream": true })).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream
        .write_all((head + &body).as_bytes())
        .expect("the server listens");
    let mut first = [0; 12];
    stream.read_exact(&mut first).expect("an answer");
    assert_eq!(&first, b"HTTP/1.1 200");
    let kill = std::process::Command::new("kill")
        .args(["-TERM", &serving.child.id().to_string()])
        .status();
    assert!(kill.is_ok_and(|status| status.success()));
    let mut rest = String::new();
    stream.read_to_string(&mut rest).expect("an answer");
    assert!(rest.contains("[DONE]"), "{rest}");
    let status = serving.child.wait().expect("the program ends");
    assert_eq!(status.code(), Some(0));
    let mut said = String::new();
    serving
        .stderr
        .read_to_string(&mut said)
        .expect("messages are UTF-8");
    assert!(
        said.contains("no more requests") && said.contains("prompt tokens"),
        "{said}"
    );
    assert!(
        !said.contains("fieldfare"),
        "what people say is in no log: {said}"
    );
}

#[test]
fn runs_end_by_themselves() {
    // A run that is refused leaves no process behind, which the other tests' helper would not notice.
    let run: Run = User::with_demo().run(&["serve", "nowhere"]);
    assert_eq!(run.code, Some(3), "{run:?}");
}
