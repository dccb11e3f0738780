//! Waiting, being sent away, going away.

use serde_json::json;

use crate::tool::{Served, chat, options};
use ouzel_server::ServerOptions;

const PATH: &str = "/v1/chat/completions";
/// Longer than any test: it ends by being cancelled.
const LONG: &str = "say begun \nwait 1000000\nsay never";

fn stream(text: &str) -> serde_json::Value {
    chat(text, json!({ "stream": true }))
}

#[test]
fn beyond_the_queue_clients_are_sent_away() {
    let served = Served::with(ServerOptions {
        queue: 2,
        ..options()
    });
    let mut running = served.connect();
    running.post(PATH, &stream(LONG));
    running.read_until("begun");
    let mut waiting: Vec<_> = (0..2)
        .map(|i| {
            let mut connection = served.connect();
            connection.post(PATH, &stream(&format!("say number{i}")));
            connection.read_until("assistant");
            connection
        })
        .collect();
    let refused = served.post(PATH, &chat("say x", json!({})));
    refused.refused(429, None, "queue_full");
    assert_eq!(refused.header("x-should-retry"), Some("true"));
    assert!(refused.text().contains("2 requests wait already"));
    let seconds: u64 = refused
        .header("retry-after")
        .expect("a time")
        .parse()
        .expect("seconds");
    assert!((1..=60).contains(&seconds));
    // Nobody else waits for the queue.
    for path in ["/health", "/metrics", "/v1/models"] {
        assert_eq!(served.get(path).status, 200);
    }
    assert_eq!(served.metric("ouzel_queue_waiting"), 2.0);
    served
        .post("/unload", &json!({}))
        .refused(409, None, "model_busy");
    served
        .post("/load", &json!({}))
        .refused(409, None, "model_busy");
    drop(running);
    for (i, connection) in waiting.iter_mut().enumerate() {
        connection.read_until(&format!("number{i}"));
        connection.read_until("[DONE]");
    }
    drop(waiting);
    served.await_metric("ouzel_turns_live", 0.0);
    assert_eq!(served.script.ends(), (1, 2));
}

#[test]
fn without_a_queue_one_is_still_answered() {
    let served = Served::with(ServerOptions {
        queue: 0,
        ..options()
    });
    assert_eq!(served.post(PATH, &chat("say x", json!({}))).status, 200);
    // The end of an answer is told a moment before the model is free.
    served.await_metric("ouzel_turns_running", 0.0);
    let mut running = served.connect();
    running.post(PATH, &stream(LONG));
    running.read_until("begun");
    let refused = served.post(PATH, &chat("say x", json!({})));
    refused.refused(429, None, "queue_full");
    assert!(refused.text().contains("lets none wait"));
}

#[test]
fn a_client_that_leaves_takes_its_turn_along() {
    let served = Served::new();
    for is_stream in [true, false] {
        let request = chat(LONG, json!({ "stream": is_stream }));
        let mut running = served.connect();
        running.post(PATH, &request);
        served.await_metric("ouzel_turns_running", 1.0);
        let mut queued = served.connect();
        queued.post(PATH, &chat("say queued", json!({ "stream": is_stream })));
        served.await_metric("ouzel_queue_waiting", 1.0);
        // Who waits leaves the queue while another one is still being answered.
        drop(queued);
        served.await_metric("ouzel_queue_waiting", 0.0);
        assert_eq!(served.metric("ouzel_turns_running"), 1.0);
        drop(running);
        served.await_metric("ouzel_turns_live", 0.0);
        served.await_metric("ouzel_turns_running", 0.0);
    }
    assert_eq!(
        served.script.ends(),
        (2, 0),
        "what waited never reached the engine"
    );
    assert_eq!(served.metric("ouzel_turns_total{end=\"cancelled\"}"), 4.0);
}

#[test]
fn a_prompt_under_way_is_cancelled_too() {
    let served = Served::new();
    let mut running = served.connect();
    running.post(PATH, &stream("prefill 1000000 1\nsay never"));
    running.read_until("assistant");
    served.await_metric("ouzel_turns_running", 1.0);
    drop(running);
    served.await_metric("ouzel_turns_live", 0.0);
    served.await_metric("ouzel_turns_running", 0.0);
    assert_eq!(served.script.ends(), (1, 0));
}

#[test]
fn an_answer_that_nobody_reads_is_cut_off() {
    let served = Served::new();
    let mut connection = served.connect();
    let words = format!("{} ", "x".repeat(2000));
    connection.post(PATH, &stream(&format!("repeat 20000 {words}")));
    connection.read_until("assistant");
    // Nothing is read from here on, and the model must not wait for it.
    served.await_metric("ouzel_turns_total{end=\"failed\"}", 1.0);
    assert_eq!(served.post(PATH, &chat("say x", json!({}))).status, 200);
    connection.read_until("slow_reader");
    drop(connection);
    served.await_metric("ouzel_turns_live", 0.0);
}

#[test]
fn answers_of_a_queue_are_those_of_an_idle_server() {
    let served = Served::new();
    let text = |i: usize| format!("repeat 20 word{i} \\n\nsay end{i}");
    let alone: Vec<_> = (0..4)
        .map(|i| served.ok(PATH, &chat(&text(i), json!({})))["choices"].clone())
        .collect();
    let queued: Vec<_> = std::thread::scope(|scope| {
        let ask = |i: usize| {
            let (served, text) = (&served, &text);
            scope.spawn(move || served.ok(PATH, &chat(&text(i), json!({})))["choices"].clone())
        };
        let threads: Vec<_> = (0..4).map(ask).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("an answer"))
            .collect()
    });
    assert_eq!(alone, queued);
}
