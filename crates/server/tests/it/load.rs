//! Two hundred clients at once, some of them rude. `cargo xtask load` runs the same for two minutes.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::tool::{Served, chat, options};
use ouzel_server::ServerOptions;

const N_CLIENTS: u64 = 200;
const PATH: &str = "/v1/chat/completions";
/// Seconds where nobody says otherwise.
const SHORT: u64 = 3;
/// What the allocator may keep between the first third of the run and its end: memory that grows with requests would be far beyond.
const MAX_GROWTH_BYTES: u64 = 48 << 20;

/// What clients saw.
#[derive(Default)]
struct Seen {
    ends: Mutex<BTreeMap<&'static str, u64>>,
    n_requests: AtomicU64,
}

impl Seen {
    fn count(&self, end: &'static str) {
        *self
            .ends
            .lock()
            .expect("no client panicked")
            .entry(end)
            .or_default() += 1;
    }
}

#[test]
fn two_hundred_clients() {
    let variable = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|value| value.parse::<u64>().ok())
    };
    let seconds = variable("OUZEL_LOAD_SECONDS").unwrap_or(SHORT);
    let seed = variable("OUZEL_TEST_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("OUZEL_TEST_SEED={seed}");
    let served = Served::with(ServerOptions {
        queue: 128,
        ..options()
    });
    let seen = Seen::default();
    let began = Instant::now();
    let end = began + Duration::from_secs(seconds);
    let early = std::thread::scope(|scope| {
        for client in 0..N_CLIENTS {
            let (served, seen) = (&served, &seen);
            scope.spawn(move || {
                let mut random = Random(seed ^ (client << 32));
                let mut n = 0;
                while Instant::now() < end {
                    request(served, seen, &mut random, &format!("client{client}n{n}"));
                    n += 1;
                }
            });
        }
        std::thread::sleep(Duration::from_secs(seconds) / 3);
        resident_bytes()
    });
    served.await_metric("ouzel_turns_live", 0.0);
    served.await_metric("ouzel_queue_waiting", 0.0);
    // The one that asks.
    served.await_metric("ouzel_connections", 1.0);
    let late = resident_bytes();
    report(&served, &seen, began.elapsed(), early.zip(late));
}

/// Shows and checks what clients saw, and what the process had resident early and late.
fn report(served: &Served, seen: &Seen, took: Duration, resident: Option<(u64, u64)>) {
    let ends = seen.ends.lock().expect("no client panicked");
    let n_requests = seen.n_requests.load(Ordering::Relaxed);
    let took = took.as_secs_f64();
    println!(
        "{n_requests} requests in {took:.1} s, {:.0} a second: {ends:?}",
        n_requests as f64 / took
    );
    if let Some((early, late)) = resident {
        println!(
            "resident: {} KiB after a third, {} KiB at the end",
            early >> 10,
            late >> 10
        );
        assert!(
            late.saturating_sub(early) < MAX_GROWTH_BYTES,
            "memory grows"
        );
    }
    assert_eq!(
        ends.values().sum::<u64>(),
        n_requests,
        "every request has an end"
    );
    for end in ["answered", "streamed", "left", "malformed", "read slowly"] {
        assert!(ends.get(end).is_some_and(|n| *n > 0), "{end}: {ends:?}");
    }
    let (cancelled, finished) = served.script.ends();
    let answered = ends["answered"] + ends["streamed"] + ends["read slowly"];
    assert!(cancelled > 0, "some left while they were answered");
    assert!(
        finished as u64 >= answered,
        "{finished} answers, {answered} came"
    );
    println!("the engine: {finished} finished, {cancelled} cancelled");
}

/// One request of a kind that chance chooses; whatever comes back must be right for it.
fn request(served: &Served, seen: &Seen, random: &mut Random, name: &str) {
    seen.n_requests.fetch_add(1, Ordering::Relaxed);
    let n_words = 1 + random.below(30);
    let script = format!("prefill 2 1\nrepeat {n_words} {name} \nsay end-{name}");
    let expected = format!("{}end-{name}", format!("{name} ").repeat(n_words as usize));
    match random.below(100) {
        0..5 => leave(
            served,
            seen,
            &format!("{script}\nwait 1000000"),
            name,
            random,
        ),
        5..10 => {
            let text = chat(&script, json!({})).to_string();
            let cut = &text[..1 + random.below(text.len() as u64 - 1) as usize];
            assert_eq!(served.post_text(PATH, cut).status, 400, "{cut}");
            seen.count("malformed");
        }
        10..15 => read_slowly(served, seen, &script, &expected, random),
        15..55 => {
            let response = served.post(PATH, &chat(&script, json!({})));
            if response.status == 429 {
                return sent_away(seen, &response, random);
            }
            assert_eq!(response.status, 200, "{response:?}");
            assert_eq!(
                response.json()["choices"][0]["message"]["content"],
                expected
            );
            seen.count("answered");
        }
        _ => {
            let response = served.post(PATH, &chat(&script, json!({ "stream": true })));
            if response.status == 429 {
                return sent_away(seen, &response, random);
            }
            assert_eq!(response.status, 200, "{response:?}");
            assert_eq!(text_of(&response.text()), expected);
            seen.count("streamed");
        }
    }
}

fn sent_away(seen: &Seen, response: &crate::tool::Response, random: &mut Random) {
    assert!(response.header("retry-after").is_some());
    seen.count("sent away");
    // Less patient than asked for, or nothing would be under load.
    std::thread::sleep(Duration::from_millis(10 + random.below(50)));
}

/// Leaves at some time: while it waits, as a rule, or once its answer has begun.
fn leave(served: &Served, seen: &Seen, script: &str, name: &str, random: &mut Random) {
    let mut connection = served.connect();
    let stream = random.below(2) == 0;
    connection.post(PATH, &chat(script, json!({ "stream": stream })));
    if stream && random.below(2) == 0 {
        if connection.read_until("\r\n").contains(" 429 ") {
            return seen.count("sent away");
        }
        connection.read_until(name);
    } else {
        std::thread::sleep(Duration::from_millis(random.below(20)));
    }
    seen.count("left");
}

fn read_slowly(served: &Served, seen: &Seen, script: &str, expected: &str, random: &mut Random) {
    let mut connection = served.connect();
    let body = chat(script, json!({ "stream": true })).to_string();
    let head = format!(
        "POST {PATH} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    connection
        .stream
        .write_all(head.as_bytes())
        .expect("the server listens");
    connection
        .stream
        .write_all(body.as_bytes())
        .expect("the server listens");
    let (mut text, mut buf) = (Vec::new(), [0; 256]);
    loop {
        let n = connection
            .stream
            .read(&mut buf)
            .expect("the server says something");
        if n == 0 {
            break;
        }
        text.extend(&buf[..n]);
        std::thread::sleep(Duration::from_millis(random.below(5)));
    }
    let text = String::from_utf8(text).expect("UTF-8");
    if text.starts_with("HTTP/1.0 429") {
        return seen.count("sent away");
    }
    assert!(text.starts_with("HTTP/1.0 200"), "{text}");
    assert_eq!(text_of(&text), expected);
    seen.count("read slowly");
}

/// The text of a stream that came to its end.
fn text_of(stream: &str) -> String {
    assert!(stream.ends_with("data: [DONE]\n\n"), "{stream}");
    let data = stream
        .lines()
        .filter_map(|line| line.strip_prefix("data: {"));
    let content = data.filter_map(|json| {
        let chunk: serde_json::Value = serde_json::from_str(&format!("{{{json}")).expect("JSON");
        chunk["choices"][0]["delta"]["content"]
            .as_str()
            .map(str::to_owned)
    });
    content.collect()
}

/// What the process has resident, where the system says so.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}
