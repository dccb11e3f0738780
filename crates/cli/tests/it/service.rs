//! The decode service: the same answers, and what happens when one of the two processes dies.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::serve::{Serving, chat};
use crate::tool::{User, repository};

const CHAT: &str = "/v1/chat/completions";
/// A process that is to end, or a figure that is to change, does so in much less.
const PATIENCE: Duration = Duration::from_secs(30);

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Everything an answer depends on: tokens and how likely they were, calls, forms, thoughts.
fn requests() -> Vec<Value> {
    let schema = json!({
        "type": "object", "properties": { "kind": { "enum": ["bird", "fish"] } }, "required": ["kind"], "additionalProperties": false,
    });
    let format = json!({ "type": "json_schema", "json_schema": { "name": "kind", "strict": true, "schema": schema } });
    let tool = json!({ "type": "function", "function": { "name": "look_up", "strict": true, "parameters": schema } });
    let lax = json!({ "type": "function", "function": { "name": "look_up", "parameters": { "type": "object" } } });
    [
        json!({}),
        json!({ "logprobs": true, "top_logprobs": 20 }),
        json!({ "temperature": 1.3, "seed": 7, "top_p": 0.9, "presence_penalty": 0.5, "repetition_penalty": 1.1 }),
        json!({ "stop": ["bird", "song"] }),
        json!({ "logit_bias": { "1000": 2.5, "1001": -100 } }),
        json!({ "response_format": { "type": "json_object" } }),
        json!({ "response_format": format, "logprobs": true, "top_logprobs": 3 }),
        json!({ "tools": [tool], "tool_choice": "required", "parallel_tool_calls": false }),
        json!({ "tools": [tool, lax], "tool_choice": "required", "max_tokens": 90 }),
        json!({ "tools": [tool], "response_format": format }),
        json!({ "tools": [lax] }),
        json!({ "reasoning_effort": "high" }),
    ]
    .into_iter()
    .map(|more| chat("What is a thrush?", more))
    .collect()
}

/// All of an answer but the names that the server makes up.
fn answered(serving: &Serving, request: &Value) -> String {
    let mut answer = serving.ok(CHAT, request);
    let calls = answer.pointer_mut("/choices/0/message/tool_calls");
    for call in calls.and_then(Value::as_array_mut).into_iter().flatten() {
        call["id"] = Value::Null;
    }
    json!([answer["choices"][0], answer["usage"]]).to_string()
}

#[test]
fn answers_are_the_same_in_both_homes() {
    let service = Serving::new(&[]);
    let in_process = Serving::new(&["--in-process"]);
    for request in requests() {
        let [one, other] = [&service, &in_process].map(|s| answered(s, &request));
        assert_eq!(one, other, "{request}");
    }
    // What is refused is refused at the door, by the same words.
    let unsupported = json!({ "type": "json_schema", "json_schema": { "name": "x", "schema": { "type": "object", "not": {} } } });
    let request = chat("x", json!({ "response_format": unsupported }));
    let [one, other] = [&service, &in_process].map(|s| s.ask("POST", CHAT, &request));
    assert_eq!((one.0, &one), (400, &other));
    assert!(one.1.contains("not"), "{one:?}");
}

#[cfg(unix)]
mod processes {
    use super::*;

    fn said_by(command: &str, args: &[&str]) -> String {
        let output = Command::new(command).args(args).output();
        let output = output.unwrap_or_else(|error| panic!("{command}: {error}"));
        String::from_utf8(output.stdout).expect("text")
    }

    fn signal(signal: &str, pid: &str) {
        let status = Command::new("kill").args([signal, "--", pid]).status();
        assert!(
            status.is_ok_and(|status| status.success()),
            "{signal} {pid}"
        );
    }

    /// The processes that a server has started.
    fn services(of: u32) -> Vec<String> {
        let children = said_by("ps", &["-A", "-o", "ppid=", "-o", "pid=", "-o", "stat="]);
        let fields = children.lines().map(str::split_whitespace);
        fields
            .filter_map(|mut line| {
                let (parent, pid, state) = (line.next()?, line.next()?, line.next()?);
                let is_ours = parent == of.to_string() && !state.starts_with('Z');
                is_ours.then(|| pid.to_owned())
            })
            .collect()
    }

    fn service(serving: &Serving) -> String {
        let services = services(serving.child.id());
        assert_eq!(services.len(), 1, "{services:?}");
        services.into_iter().next().expect("one")
    }

    fn is_gone(pid: &str) -> bool {
        let state = said_by("ps", &["-o", "stat=", "-p", pid]);
        state.trim().is_empty() || state.trim().starts_with('Z')
    }

    fn metric(serving: &Serving, name: &str) -> f64 {
        let (_, page) = serving.ask("GET", "/metrics", &Value::Null);
        let line = page.lines().find_map(|line| {
            let (of, value) = line.split_once(' ')?;
            (of == format!("ouzel_{name}")).then(|| value.parse().ok())?
        });
        line.unwrap_or_else(|| panic!("no {name} in {page}"))
    }

    fn works(serving: &Serving) {
        serving.ok(CHAT, &chat("What is a thrush?", json!({ "max_tokens": 2 })));
    }

    /// A stream that has begun; without the token that ends it, its answer goes on.
    fn endless(serving: &Serving) -> BufReader<TcpStream> {
        let mark = json!({ "content": "<turn|>" });
        let mark = serving.ok("/tokenize", &mark)["tokens"][0].to_string();
        let more = json!({ "stream": true, "max_tokens": 3000, "logit_bias": { mark: -100 } });
        let mut stream = BufReader::new(serving.send(CHAT, &chat("What is a thrush?", more)));
        let mut line = String::new();
        while !line.contains("\"content\":\"") || line.contains("\"content\":\"\"") {
            line.clear();
            assert!(
                stream.read_line(&mut line).expect("a stream") > 0,
                "it ended"
            );
        }
        stream
    }

    fn rest(mut stream: BufReader<TcpStream>) -> String {
        let mut rest = String::new();
        stream.read_to_string(&mut rest).expect("a stream");
        rest
    }

    #[test]
    fn a_service_that_is_killed_in_mid_answer_is_started_again() {
        let serving = Serving::new(&[]);
        let first = service(&serving);
        let stream = endless(&serving);
        signal("-KILL", &first);
        let rest = rest(stream);
        assert!(
            rest.contains("model_lost") && rest.contains("signal 9"),
            "{rest}"
        );
        assert!(
            rest.contains("out of memory") && rest.contains(&first),
            "{rest}"
        );
        assert_eq!(metric(&serving, "model_loaded"), 0.0);
        assert_eq!(metric(&serving, "process_memory_bytes"), 0.0);
        assert_eq!(metric(&serving, "turns_total{end=\"failed\"}"), 1.0);
        works(&serving);
        assert_ne!(service(&serving), first);
        assert_eq!(metric(&serving, "model_loaded"), 1.0);
        let (taken, budget) = (
            metric(&serving, "process_memory_bytes"),
            metric(&serving, "process_budget_bytes"),
        );
        assert!(taken > 0.0 && taken < budget, "{taken} of {budget}");
        assert!(budget < metric(&serving, "model_memory_bytes"));
        // One that dies while nobody asks is missed at once.
        let second = service(&serving);
        signal("-TERM", &second);
        until("the loss is noticed", || {
            metric(&serving, "model_loaded") == 0.0
        });
        assert!(is_gone(&second));
        works(&serving);
    }

    #[test]
    fn a_server_that_is_killed_takes_its_service_along() {
        // While it reads a prompt of some seconds.
        let mut serving = Serving::new(&[]);
        let pid = service(&serving);
        let _stream = serving.send(
            CHAT,
            &chat(&"a thrush and ".repeat(1100), json!({ "stream": true })),
        );
        until("a turn runs", || metric(&serving, "turns_running") == 1.0);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(
            metric(&serving, "turns_running"),
            1.0,
            "the prompt is too short"
        );
        serving.child.kill().expect("it runs");
        serving.child.wait().expect("it ran");
        let since = Instant::now();
        until("the service ends", || is_gone(&pid));
        println!("gone after {:?}", since.elapsed());
        // And while it has nothing to do.
        let mut serving = Serving::new(&[]);
        let pid = service(&serving);
        assert!(!is_gone(&pid));
        serving.child.kill().expect("it runs");
        serving.child.wait().expect("it ran");
        until("the service ends", || is_gone(&pid));
    }

    #[test]
    fn unloading_ends_the_process() {
        let serving = Serving::new(&[]);
        let pid = service(&serving);
        serving.ok("/unload", &json!({}));
        assert!(is_gone(&pid));
        assert_eq!(services(serving.child.id()), [""; 0]);
        assert_eq!(metric(&serving, "process_memory_bytes"), 0.0);
        assert_eq!(metric(&serving, "model_memory_bytes"), 0.0);
        works(&serving);
        assert_ne!(service(&serving), pid);
        let idle = Serving::new(&["--idle-unload", "1s"]);
        until("it is unloaded", || services(idle.child.id()).is_empty());
        works(&idle);
        until("it is unloaded", || services(idle.child.id()).is_empty());
        let in_process = Serving::new(&["--in-process"]);
        assert_eq!(services(in_process.child.id()), [""; 0]);
        assert!(metric(&in_process, "process_memory_bytes") > 0.0);
    }

    #[test]
    fn a_client_that_goes_away_takes_its_turn_along() {
        let serving = Serving::new(&[]);
        let pid = service(&serving);
        drop(endless(&serving));
        until("the turn ends", || metric(&serving, "turns_running") == 0.0);
        assert_eq!(metric(&serving, "turns_total{end=\"cancelled\"}"), 1.0);
        let long = chat(&"a thrush and ".repeat(1100), json!({ "stream": true }));
        let stream = serving.send(CHAT, &long);
        until("a turn runs", || metric(&serving, "turns_running") == 1.0);
        drop(stream);
        let since = Instant::now();
        until("the turn ends", || metric(&serving, "turns_running") == 0.0);
        println!("over after {:?}", since.elapsed());
        assert_eq!(metric(&serving, "turns_total{end=\"cancelled\"}"), 2.0);
        works(&serving);
        assert_eq!(service(&serving), pid, "the same process goes on");
    }

    /// Ctrl-C in a terminal goes to every process of the foreground group.
    #[test]
    fn ctrl_c_lets_an_answer_end() {
        use std::os::unix::process::CommandExt;
        let mut serving = Serving::of(User::with_demo().command().process_group(0), &[]);
        let pid = service(&serving);
        let more = json!({ "stream": true, "max_tokens": 60 });
        let stream = serving.send(CHAT, &chat("What is a fieldfare?", more));
        until("a turn runs", || metric(&serving, "turns_running") == 1.0);
        signal("-INT", &format!("-{}", serving.child.id()));
        let rest = rest(BufReader::new(stream));
        assert!(rest.contains("[DONE]"), "{rest}");
        let status = serving.child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0));
        assert!(is_gone(&pid));
    }

    #[test]
    fn the_owner_is_the_one_who_has_a_model_loaded() {
        let user = User::with_demo().with_one_machine();
        let serving = Serving::of(&mut user.command(), &[]);
        let pid = serving.child.id().to_string();
        let ask = ["generate", "--model", "demo", "--max-new", "1", "hello"];
        user.run(&ask)
            .refused(5, &[&pid, "ouzel serve", "--shared"]);
        #[cfg(target_os = "linux")]
        {
            let file = format!("/proc/{}/oom_score_adj", service(&serving));
            assert_eq!(
                std::fs::read_to_string(file).expect("a number").trim(),
                "500"
            );
        }
        serving.ok("/unload", &json!({}));
        user.run(&ask).ok();
    }
}

/// What the document shows is what happens, but for times, the version and where the model lies.
#[test]
fn the_documented_transcript_happens() {
    let page = std::fs::read_to_string(repository("docs/decode-service.md")).expect("the page");
    let user = User::with_demo();
    user.run(&["tokenize", "demo"]).ok();
    let demo = std::fs::read_dir(&user.models).expect("a folder");
    let demo = demo
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|e| e == "gturbo"))
        .expect("the bundled model");
    let mut child = user
        .command()
        .arg("decode-service")
        .stdin(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut requests = child.stdin.take().expect("a pipe");
    let mut reports = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut n_reports = 0;
    for line in page.lines() {
        if let Some(request) = line.strip_prefix("> ") {
            let mut request: Value = serde_json::from_str(request).expect("JSON");
            if request["request"] == "load" {
                request["model"] = json!(demo);
            }
            writeln!(requests, "{request}").expect("it reads");
        } else if let Some(expected) = line.strip_prefix("< ") {
            let mut line = String::new();
            // They also come with time, and this may be a slow machine.
            while line.is_empty() || (is_experts(&line) && !is_experts(expected)) {
                line.clear();
                reports.read_line(&mut line).expect("a report");
            }
            let [came, expected] = [line.as_str(), expected].map(without_times);
            assert_eq!(came, expected, "write < {}", line.trim_end());
            n_reports += 1;
        }
    }
    assert!(n_reports > 10);
    // Its end comes of what it was told, and not of the end of its requests.
    assert!(child.wait().expect("it ends").success());
    drop(requests);
}

fn is_experts(report: &str) -> bool {
    report.contains("\"report\":\"experts\"")
}

/// A report without what differs from run to run.
fn without_times(report: &str) -> Value {
    let mut report: Value =
        serde_json::from_str(report).unwrap_or_else(|e| panic!("{e}: {report}"));
    if report["report"] == "hello" {
        report["version"] = Value::Null;
    }
    // What the disk had to do depends on how busy it was, and so does what lies in memory.
    if let Some(layers) = report.pointer_mut("/now/layers") {
        *layers = json!(layers.as_array().map(Vec::len));
    }
    for of in ["/spent/cost", "/outcome/cost"] {
        if let Some(cost) = report.pointer_mut(of) {
            *cost = Value::Null;
        }
    }
    report
}
