//! Heartbeats, limits of time, unloading, failing, ending.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;

use crate::tool::{Served, chat, options};
use ouzel_server::log::{Log, Record};
use ouzel_server::script::Script;
use ouzel_server::{ServeError, ServerOptions};

const PATH: &str = "/v1/chat/completions";

#[test]
fn a_long_prompt_has_a_heartbeat() {
    let served = Served::new();
    let mut chat_stream = served.connect();
    chat_stream.post(
        PATH,
        &chat("prefill 1000000 1\nsay never", json!({ "stream": true })),
    );
    chat_stream.read_until("\n: ");
    // A stream that waits in the queue has one, too; here it is an event.
    let mut message_stream = served.connect();
    let body = json!({ "max_tokens": 9, "stream": true, "messages": [{ "role": "user", "content": "say x" }] });
    message_stream.post("/v1/messages", &body);
    message_stream.read_until("event: ping\ndata: {\"type\":\"ping\"}\n\n");
}

#[test]
fn time_cuts_an_answer_off_or_refuses_it() {
    let served = Served::with(ServerOptions {
        time_limit: Some(Duration::from_secs(1)),
        ..options()
    });
    let answer = served.ok(PATH, &chat("say begun\nwait 1000000\nsay never", json!({})));
    let choice = &answer["choices"][0];
    assert_eq!(
        (&choice["message"]["content"], &choice["finish_reason"]),
        (&json!("begun"), &json!("length"))
    );
    let refused = served.post(PATH, &chat("prefill 1000000 1", json!({})));
    refused.refused(504, None, "time_limit");
    assert!(refused.text().contains("of 1 second was"));
    assert_eq!(refused.header("x-should-retry"), Some("false"));
    served.await_metric("ouzel_turns_live", 0.0);
    assert_eq!(
        served.ok(PATH, &chat("say x", json!({})))["choices"][0]["message"]["content"],
        "x"
    );
}

#[test]
fn an_idle_model_is_unloaded_and_comes_back() {
    let served = Served::with(ServerOptions {
        idle_unload: Some(Duration::from_millis(20)),
        ..options()
    });
    served.await_metric("ouzel_model_loaded", 0.0);
    assert_eq!(served.get("/health").json()["model_loaded"], false);
    assert_eq!(served.script.loads(), (1, 1));
    assert_eq!(
        served.ok(PATH, &chat("say x", json!({})))["choices"][0]["message"]["content"],
        "x"
    );
    served.await_metric("ouzel_model_loaded", 0.0);
    assert_eq!(served.script.loads(), (2, 2));
}

#[test]
fn a_model_is_unloaded_and_loaded_on_request() {
    let served = Served::new();
    assert_eq!(served.ok("/unload", &json!({}))["model_loaded"], false);
    assert_eq!(served.get("/health").json()["model_loaded"], false);
    assert_eq!(served.ok("/load", &json!({}))["model_loaded"], true);
    assert_eq!(served.ok("/load", &json!({}))["model_loaded"], true);
    assert_eq!(served.script.loads(), (2, 1));
}

/// What could not be kept, as a log hears it.
#[derive(Default)]
struct NotKept(Mutex<Vec<String>>);

impl Log for NotKept {
    fn record(&self, record: &Record<'_>) {
        if let Record::NotKept { why } = record {
            let mut all = self.0.lock().expect("nobody panicked");
            all.push((*why).to_owned());
        }
    }
}

#[test]
fn what_cannot_be_kept_is_told_once() {
    let log = Arc::new(NotKept::default());
    let mut served = Served::with_log(options(), Script::default(), log.clone());
    let all = "unkept full\nunkept read-only\nsay x";
    for script in ["say x", "unkept full\nsay x", all, all] {
        served.ok(PATH, &chat(script, json!({})));
    }
    // A model that is loaded anew finds the same again.
    served.ok("/unload", &json!({}));
    served.ok(PATH, &chat(all, json!({})));
    served.stop.advance();
    served.join().expect("it ends");
    assert_eq!(
        *log.0.lock().expect("nobody panicked"),
        ["full", "read-only"]
    );
}

#[test]
fn an_engine_that_panics_is_loaded_anew() {
    let served = Served::new();
    served
        .post(PATH, &chat("panic", json!({})))
        .refused(500, None, "internal_error");
    assert_eq!(
        served.ok(PATH, &chat("say x", json!({})))["choices"][0]["message"]["content"],
        "x"
    );
    assert_eq!(served.script.loads(), (2, 1));
    assert_eq!(served.metric("ouzel_turns_live"), 0.0);
}

#[test]
fn a_model_that_is_lost_is_loaded_anew() {
    let served = Served::new();
    let refused = served.post(PATH, &chat("lose", json!({})));
    refused.refused(503, None, "model_lost");
    assert_eq!(served.get("/health").json()["model_loaded"], false);
    assert_eq!(served.metric("ouzel_model_loaded"), 0.0);
    assert_eq!(
        served.ok(PATH, &chat("say x", json!({})))["choices"][0]["message"]["content"],
        "x"
    );
    assert_eq!(served.script.loads(), (2, 1));
    assert_eq!(served.metric("ouzel_model_loaded"), 1.0);
    assert!(served.metric("ouzel_process_memory_bytes") > 0.0);
}

#[test]
fn ending_lets_answers_end() {
    let mut served = Served::new();
    let mut running = served.connect();
    running.post(
        PATH,
        &chat("say begun \nwait 300\nsay ended", json!({ "stream": true })),
    );
    running.read_until("begun");
    let mut queued = served.connect();
    queued.post(PATH, &chat("say queued", json!({ "stream": true })));
    queued.read_until("assistant");
    let mut idle = served.connect();
    assert!(served.stop.advance());
    running.read_until("ended");
    running.read_until("[DONE]");
    queued.read_until("queued");
    queued.read_until("[DONE]");
    // A connection that asks nothing keeps nobody.
    idle.stream.set_read_timeout(None).expect("a socket");
    assert!(served.join().is_ok());
    use std::io::Read;
    assert_eq!(idle.stream.read(&mut [0; 8]).unwrap_or(0), 0);
}

#[test]
fn ending_twice_ends_at_once() {
    let mut served = Served::new();
    let mut running = served.connect();
    running.post(
        PATH,
        &chat(
            "say begun \nwait 1000000\nsay never",
            json!({ "stream": true }),
        ),
    );
    running.read_until("begun");
    let mut queued = served.connect();
    queued.post(PATH, &chat("say never", json!({ "stream": true })));
    queued.read_until("assistant");
    assert!(served.stop.advance());
    assert!(!served.stop.advance());
    assert!(matches!(served.join(), Err(ServeError::Forced)));
    running.read_until("shutting_down");
    queued.read_until("shutting_down");
}
