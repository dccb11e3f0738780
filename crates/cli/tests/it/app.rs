//! The first run, the choice of a model and its budget, as the page asks for them: the real program, a hub on loopback, and a start after a start.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::Duration;

use ouzel_hub::{COMMIT, Hub, Options, REPOSITORY};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::tool::{User, repository};

/// What the repository's model is called.
const MODEL: &str = "synthetic";

/// A person with folders of their own, whose hub is on loopback.
struct Person {
    user: User,
    dir: TempDir,
    hub: Hub,
}

impl Person {
    fn new() -> Person {
        let options = Options {
            bytes_per_s: Some(1_000_000),
            ..Options::default()
        };
        Person {
            user: User::new(),
            dir: tempfile::tempdir().expect("a temporary folder"),
            hub: Hub::serve(&repository("models/demo"), options).expect("a port"),
        }
    }

    fn command(&self) -> Command {
        let mut command = self.user.command();
        command
            .env("HF_ENDPOINT", self.hub.endpoint())
            .env("OUZEL_CHATS", self.dir.path().join("chats"))
            .env("OUZEL_RUNTIME", self.dir.path().join("running"))
            .args(["app", "--no-open"])
            .args(["--repo", REPOSITORY, "--revision", COMMIT]);
        command
    }

    /// `ouzel app`, and who is in.
    fn start(&self, more: &[&str]) -> Tab {
        Tab::open(self.command().args(more))
    }
}

/// A page that is open.
struct Tab {
    child: Child,
    host: String,
    cookie: String,
}

impl Drop for Tab {
    fn drop(&mut self) {
        // One that has ended is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Tab {
    /// The page of a program that is started now.
    fn open(command: &mut Command) -> Tab {
        let mut child = command.spawn().expect("the binary was built");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut lines = stderr.lines().map(|line| line.expect("UTF-8"));
        let address = lines.find_map(|line| {
            let (_, address) = line.split_once("the page is at http://")?;
            Some(address.to_owned())
        });
        // Further lines are read, so that it never waits for a reader.
        std::thread::spawn(move || lines.count());
        let address = address.expect("it says where its page is");
        let (host, token) = address.split_once("/#").expect("a token");
        let mut tab = Tab {
            child,
            host: host.to_owned(),
            cookie: String::new(),
        };
        let (_, head, _) = tab.send("POST", "/app/session", &json!({ "token": token }));
        let cookie = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let is_cookie = name.eq_ignore_ascii_case("set-cookie");
            is_cookie.then(|| value.split(';').next().unwrap_or_default().to_owned())
        });
        tab.cookie = cookie.expect("a cookie");
        tab
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> (u16, String, String) {
        let mut stream = TcpStream::connect(&self.host).expect("it listens");
        let body = body.to_string();
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: {}\r\nCookie: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            self.cookie,
            body.len()
        )
        .expect("it listens");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("UTF-8");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status");
        (
            status.parse().expect("a number"),
            head.to_owned(),
            body.to_owned(),
        )
    }

    #[track_caller]
    fn get(&self, path: &str) -> Value {
        let (status, _, body) = self.send("GET", path, &json!(null));
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    #[track_caller]
    fn post(&self, path: &str, body: &Value) -> Value {
        let (status, _, text) = self.send("POST", path, body);
        assert!((200..300).contains(&status), "{path} {body}: {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    /// The field and the code of a refusal.
    #[track_caller]
    fn refused(&self, path: &str, body: &Value, status: u16) -> (String, String) {
        let (found, _, text) = self.send("POST", path, body);
        assert_eq!(found, status, "{path} {body}: {text}");
        let error = serde_json::from_str::<Value>(&text).expect("JSON")["error"].clone();
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (text("param"), text("code"))
    }

    /// Looks until it is so.
    #[track_caller]
    fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..3_000 {
            let value = self.get(path);
            if is_so(&value) {
                return value;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{path} stays {}", self.get(path));
    }

    fn until_stage(&self, stage: &str) -> Value {
        self.until("/app/install", |install| {
            let found = &install["stage"];
            assert!(
                found == stage || found != "failed" && found != "damaged",
                "{install}"
            );
            found == stage
        })
    }

    /// As a system that shuts down does.
    fn end(mut self) {
        let killed = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        assert!(killed.expect("kill").success());
        assert!(self.child.wait().expect("a child").success());
    }
}

#[test]
fn a_first_run_downloads_verifies_repairs_and_chats() {
    let person = Person::new();
    let tab = person.start(&[]);
    nothing_is_there(&tab);
    let tab = downloads(&person, tab);
    verifies_and_repairs(&person, &tab);
    tab.post("/app/models/open", &json!({ "model": MODEL }));
    assert_eq!(tab.get("/app/status")["is_loaded"], true);
    tab.post("/app/turns", &asked());
    let first = |chats: &Value| {
        let is_over = |chat: &Value| chat["is_answering"] == false;
        chats
            .as_array()
            .and_then(|chats| chats.first())
            .is_some_and(is_over)
    };
    tab.until("/app/chats", first);
    tab.end();
}

fn asked() -> Value {
    json!({ "text": "What is a thrush?" })
}

/// No model, and no answer.
fn nothing_is_there(tab: &Tab) {
    let status = tab.get("/app/status");
    assert_eq!(
        (&status["model"], &status["is_loaded"]),
        (&json!(""), &json!(false))
    );
    let chat = tab.post("/app/turns", &asked())["chat"].clone();
    let chat = tab.until(&format!("/app/chats/{chat}"), |chat| {
        !chat["messages"][1]["ending"].is_null()
    });
    assert_eq!(chat["messages"][1]["ending"]["code"], "no_model", "{chat}");
    let shelf = tab.get("/app/models");
    assert_eq!(shelf["models"].as_array().map(Vec::len), Some(1), "{shelf}");
    assert_eq!(shelf["models"][0]["is_demo"], true);
    assert_eq!(
        (&shelf["chosen"], &shelf["problem"]),
        (&Value::Null, &Value::Null)
    );
}

/// It pauses, survives the program, and goes on where it was.
fn downloads(person: &Person, tab: Tab) -> Tab {
    // Nobody is asked before the person wants it.
    let install = tab.get("/app/install");
    assert_eq!(install["found"]["repository"], REPOSITORY);
    assert_eq!(
        (&install["stage"], &install["offer"]),
        (&json!("idle"), &Value::Null)
    );
    assert!(install["found"]["free_bytes"].as_u64() > Some(0));
    assert_eq!(person.hub.bytes_sent(), 0);
    tab.post("/app/install/ask", &json!(null));
    let offer = tab.until("/app/install", |install| !install["offer"].is_null());
    let offer = &offer["offer"];
    assert_eq!(
        (&offer["licence"], &offer["commit"]),
        (&json!("apache-2.0"), &json!(COMMIT))
    );
    let total = offer["transfer_bytes"].as_u64().expect("a number");

    tab.post("/app/install/start", &json!({ "what": "download" }));
    tab.until("/app/install", |install| {
        install["phase"] == "fetching" && install["done_bytes"].as_u64() > Some(total / 8)
    });
    assert_eq!(
        tab.refused("/app/install/start", &json!({ "what": "download" }), 409)
            .1,
        "install_busy"
    );
    tab.post("/app/install/pause", &json!(null));
    tab.until_stage("paused");
    tab.end();
    let tab = person.start(&[]);
    let paused = tab.until_stage("paused");
    assert!(
        paused["found"]["partial_bytes"].as_u64() > Some(0),
        "{paused}"
    );
    let before = person.hub.bytes_sent();
    tab.post("/app/install/start", &json!({ "what": "download" }));
    assert_eq!(tab.until_stage("done")["model"], MODEL);
    let came = person.hub.bytes_sent() - before;
    assert!(came < total, "{came} of {total} came again");
    let shelf = tab.get("/app/models");
    assert_eq!(shelf["models"][0]["name"], MODEL);
    assert_eq!(shelf["models"][0]["is_default"], true);
    tab
}

fn verifies_and_repairs(person: &Person, tab: &Tab) {
    let damaged = person
        .user
        .models
        .join("synthetic.gturbo/packed_experts/layer_03.bin");
    let mut bytes = fs::read(&damaged).expect("a file");
    bytes[16_384 * 5 + 77] ^= 1;
    fs::write(&damaged, bytes).expect("our file");
    let verify = json!({ "what": "verify", "model": MODEL });
    tab.post("/app/install/start", &verify);
    let found = tab.until("/app/install", |install| install["stage"] == "damaged");
    let damage = found["damage"][0].as_str().expect("a line");
    assert!(
        damage.contains("layer_03.bin") && damage.contains("for expert "),
        "{damage}"
    );
    tab.post(
        "/app/install/start",
        &json!({ "what": "repair", "model": MODEL }),
    );
    tab.until("/app/install", |install| install["stage"] == "done");
    tab.post("/app/install/start", &verify);
    tab.until("/app/install", |install| {
        install["stage"] == "done" && install["work"]["what"] == "verify"
    });
}

#[test]
fn a_model_and_its_budget_are_chosen_kept_and_outvoted_by_the_command_line() {
    let person = Person::new();
    let tab = person.start(&[]);
    plans_and_refusals(&tab);
    assert_eq!(tab.get("/app/status")["model"], "");
    let wish = json!({ "model": "demo", "memory_bytes": 200_000_000, "context": 512, "slots": null, "io": null });
    let plan = tab.post("/app/plan", &wish);
    tab.post("/app/models/open", &wish);
    let status = tab.get("/app/status");
    assert_eq!(
        (&status["model"], &status["context"]),
        (&json!("demo"), &json!(512))
    );
    assert_eq!(status["plan"], plan["plan"], "a plan is what is loaded");
    assert_eq!(tab.get("/app/models")["wish"], wish);
    // Where it was measured, a plan says how fast it would be.
    tab.post("/app/measure", &json!({ "model": "demo" }));
    let expected = tab.post("/app/plan", &wish)["expected"].clone();
    assert!(
        expected["decode_tokens_per_s"].as_f64() > Some(0.0),
        "{expected}"
    );
    tab.end();
    let tab = person.start(&[]);
    let status = tab.until("/app/status", |status| status["is_loaded"] == true);
    assert_eq!(
        (&status["model"], &status["context"]),
        (&json!("demo"), &json!(512))
    );
    tab.end();
    let tab = person.start(&["demo", "--max-context", "300"]);
    assert_eq!(
        tab.get("/app/status")["context"],
        300,
        "the command line outvotes it"
    );
    tab.end();
    what_is_gone_is_told(&person);
}

/// A plan adds up; what cannot be had is refused at its field, and changes nothing.
fn plans_and_refusals(tab: &Tab) {
    let plan = tab.post("/app/plan", &json!({ "model": "demo" }));
    let (total, smallest) = (
        plan["total_bytes"].as_u64(),
        plan["smallest_bytes"].as_u64(),
    );
    assert!(smallest.is_some() && smallest <= total, "{plan}");
    let lines = plan["plan"].as_array().expect("lines");
    let sum: u64 = lines.iter().filter_map(|line| line["bytes"].as_u64()).sum();
    assert_eq!(Some(sum), total);
    assert_eq!(
        (&plan["fits"], &plan["expected"]),
        (&json!(true), &Value::Null)
    );
    for (wish, field) in [
        (
            json!({ "model": "demo", "memory_bytes": 1_000_000 }),
            "memory_bytes",
        ),
        (
            json!({ "model": "demo", "context": 100_000_000 }),
            "context",
        ),
        (json!({ "model": "demo", "slots": 33 }), "slots"),
        (json!({ "model": "no-such" }), "model"),
        (json!({ "modle": "demo" }), "modle"),
    ] {
        let (param, _) = tab.refused("/app/plan", &wish, 400);
        assert_eq!(param, field, "{wish}");
        if field != "modle" {
            assert_eq!(tab.refused("/app/models/open", &wish, 400).0, field);
        }
    }
}

/// What was chosen and is gone is no reason to stay away.
fn what_is_gone_is_told(person: &Person) {
    let tab = person.start(&[]);
    let model = person.user.models.join("mine.gturbo");
    let demo = fs::read_dir(&person.user.models)
        .expect("a folder")
        .flatten();
    let demo = demo
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|e| e == "gturbo"));
    copy(&demo.expect("the bundled model"), &model);
    tab.post("/app/models/open", &json!({ "model": "mine" }));
    tab.post("/app/models/default", &json!({ "model": "mine" }));
    assert_eq!(
        tab.refused("/app/models/default", &json!({ "model": "yours" }), 400)
            .0,
        "model"
    );
    tab.end();
    fs::remove_dir_all(&model).expect("our folder");
    let tab = person.start(&[]);
    assert_eq!(tab.get("/app/status")["model"], "");
    let problem = tab.get("/app/models")["problem"].clone();
    assert!(
        problem.as_str().is_some_and(|text| text.contains("mine")),
        "{problem}"
    );
    tab.post("/app/models/open", &json!({ "model": "demo" }));
    assert_eq!(tab.get("/app/models")["problem"], Value::Null);
    tab.end();
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    fs::create_dir_all(to).expect("our folder");
    for entry in fs::read_dir(from).expect("a folder").flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).expect("our file");
        }
    }
}

#[test]
fn a_server_for_programs_has_one_model_and_installs_none() {
    let user = User::with_demo();
    let mut command = user.command();
    command.args(["serve", "demo", "--port", "0", "--prefix-disk", "0"]);
    let tab = Tab::open(&mut command);
    assert_eq!(tab.get("/app/status")["can_choose"], false);
    assert_eq!(tab.refused("/app/plan", &json!({}), 501).1, "not_supported");
    let (status, _, text) = tab.send("GET", "/app/install", &json!(null));
    assert_eq!(status, 501, "{text}");
}
