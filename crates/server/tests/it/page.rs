//! The page's addresses: who gets in, and what becomes of answers that nobody watches.

use std::path::Path;
use std::sync::Arc;

use ouzel_chats::{Chats, Question};
use ouzel_server::{Page, ServerOptions};
use serde_json::{Value, json};

use crate::tool::{PATIENCE, Response, Served, options};

/// A server with a page, and a browser that is in.
struct Browser {
    served: Served,
    cookie: String,
}

fn token_of(page: &Page) -> String {
    let address = page.address("127.0.0.1:1".parse().unwrap());
    address.split('#').nth(1).unwrap().to_owned()
}

fn with_page(chats: Chats, more: ServerOptions) -> (Served, Arc<Page>) {
    let page = Page::new(chats).unwrap();
    let served = Served::with(ServerOptions {
        page: Some(page.clone()),
        ..more
    });
    (served, page)
}

impl Browser {
    fn new() -> Browser {
        Browser::over(Chats::in_memory().unwrap())
    }

    fn over(chats: Chats) -> Browser {
        let (served, page) = with_page(chats, options());
        let entered = served.post("/app/session", &json!({ "token": token_of(&page) }));
        assert_eq!(entered.status, 204);
        let cookie = entered.header("set-cookie").unwrap();
        let cookie = cookie.split(';').next().unwrap().to_owned();
        Browser { served, cookie }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Response {
        let headers = format!(
            "Host: localhost\r\nContent-Type: application/json\r\nCookie: {}\r\nSec-Fetch-Site: same-origin\r\n",
            self.cookie
        );
        let body = if method == "GET" {
            String::new()
        } else {
            body.to_string()
        };
        self.served.request(method, path, &headers, body.as_bytes())
    }

    fn get(&self, path: &str) -> Value {
        let response = self.call("GET", path, &Value::Null);
        assert_eq!(response.status, 200, "{}", response.text());
        response.json()
    }

    #[track_caller]
    fn ask(&self, question: Value) -> (i64, i64) {
        let response = self.call("POST", "/app/turns", &question);
        assert_eq!(response.status, 200, "{}", response.text());
        let asked = response.json();
        (
            asked["chat"].as_i64().unwrap(),
            asked["answer"].as_i64().unwrap(),
        )
    }

    /// Watches an answer until it has this text, and leaves.
    fn watch_until(&self, answer: i64, text: &str) {
        let mut watcher = self.served.connect();
        let headers = format!("Host: localhost\r\nCookie: {}\r\n", self.cookie);
        watcher.send("GET", &format!("/app/answers/{answer}"), &headers, b"");
        watcher.read_until(text);
    }

    /// Waits for the end of an answer, without watching it.
    #[track_caller]
    fn ended(&self, chat: i64) -> Value {
        let since = std::time::Instant::now();
        loop {
            let whole = self.get(&format!("/app/chats/{chat}"));
            let last = whole["messages"].as_array().unwrap().last().unwrap();
            if !last["ending"].is_null() {
                return last.clone();
            }
            assert!(since.elapsed() < PATIENCE, "{whole}");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}

#[test]
fn files_come_with_a_strict_policy_and_are_not_stored() {
    let (served, _) = with_page(Chats::in_memory().unwrap(), options());
    for (path, kind) in [
        ("/", "text/html; charset=utf-8"),
        ("/assets/app.js", "text/javascript; charset=utf-8"),
        ("/assets/app.css", "text/css; charset=utf-8"),
        ("/assets/icon.svg", "image/svg+xml"),
    ] {
        let response = served.get(path);
        assert_eq!(response.status, 200, "{path}");
        assert_eq!(response.header("content-type"), Some(kind));
        assert_eq!(response.header("cache-control"), Some("no-store"));
        let policy = response.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
    assert_eq!(served.get("/assets/other.js").status, 404);
    assert_eq!(served.post("/", &json!({})).status, 405);
    // Without a page there is nothing.
    let bare = Served::new();
    assert_eq!(bare.get("/").status, 404);
    assert_eq!(bare.get("/app/status").status, 404);
}

#[test]
fn the_page_names_no_other_host() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("page");
    let document = std::fs::read_to_string(folder.join("index.html")).unwrap();
    let style = std::fs::read_to_string(folder.join("assets/app.css")).unwrap();
    for text in [&document, &style] {
        assert!(!text.contains("http:") && !text.contains("https:") && !text.contains("url(//"));
    }
    assert!(!document.contains("onclick") && !document.contains("<style"));
}

#[test]
fn nobody_gets_in_without_the_token_and_it_opens_once() {
    let (served, page) = with_page(Chats::in_memory().unwrap(), options());
    for path in [
        "/app/status",
        "/app/settings",
        "/app/experts",
        "/app/chats",
        "/app/chats/1",
        "/app/answers/1",
    ] {
        served.get(path).refused(401, None, "page_locked");
    }
    let body = json!({ "text": "say x" });
    served
        .post("/app/turns", &body)
        .refused(401, None, "page_locked");
    served
        .post("/app/unload", &json!({}))
        .refused(401, None, "page_locked");
    assert_eq!(
        served.get("/app/session").json(),
        json!({ "is_inside": false, "takes_key": false })
    );
    let enter = |token: &str| served.post("/app/session", &json!({ "token": token }));
    enter("wrong").refused(401, None, "page_locked");
    // A page of another port of this machine may know neither, but could try.
    let token = token_of(&page);
    let other =
        "Host: localhost\r\nContent-Type: application/json\r\nSec-Fetch-Site: same-site\r\n";
    let body = json!({ "token": token }).to_string();
    let refused = served.request("POST", "/app/session", other, body.as_bytes());
    refused.refused(401, None, "page_locked");
    let entered = enter(&token);
    assert_eq!(entered.status, 204);
    let cookie = entered.header("set-cookie").unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"));
    assert!(cookie.starts_with(&format!("ouzel-{}=", served.address.port())));
    enter(&token).refused(401, None, "page_locked");
    // The cookie opens, and not for another site's request.
    let cookie = cookie.split(';').next().unwrap();
    let with = |site: &str| {
        let headers = format!("Host: localhost\r\nCookie: {cookie}\r\nSec-Fetch-Site: {site}\r\n");
        served.request("GET", "/app/status", &headers, b"").status
    };
    assert_eq!((with("same-origin"), with("same-site")), (200, 401));
}

#[test]
fn with_a_key_the_page_opens_by_it() {
    let more = ServerOptions {
        api_key: Some("secret".to_owned()),
        ..options()
    };
    let (served, _) = with_page(Chats::in_memory().unwrap(), more);
    assert_eq!(served.get("/").status, 200);
    assert_eq!(served.get("/app/session").json()["takes_key"], true);
    // The key of programs is not the page's cookie, nor the other way round.
    let headers = "Host: localhost\r\nAuthorization: Bearer secret\r\n";
    let refused = served.request("GET", "/app/status", headers, b"");
    refused.refused(401, None, "page_locked");
    let enter = |key: &str| served.post("/app/session", &json!({ "key": key }));
    enter("wrong").refused(401, None, "page_locked");
    let entered = enter("secret");
    assert_eq!(entered.status, 204);
    let cookie = entered.header("set-cookie").unwrap().split(';').next();
    let headers = format!("Host: localhost\r\nCookie: {}\r\n", cookie.unwrap());
    assert_eq!(
        served.request("GET", "/app/status", &headers, b"").status,
        200
    );
    let models = served.request("GET", "/v1/models", &headers, b"");
    models.refused(401, None, "invalid_api_key");
}

#[test]
fn an_answer_is_watched_from_its_beginning_whenever_one_looks() {
    let browser = Browser::new();
    let question = "think hm\nprefill 3 1\nsay one two three";
    let (chat, answer) = browser.ask(json!({ "text": question }));
    let events = browser.call("GET", &format!("/app/answers/{answer}"), &Value::Null);
    let events = events.events();
    let last = events.last().unwrap();
    assert_eq!(last.name.as_deref(), Some("end"));
    let message = last.json();
    assert_eq!(
        (
            &message["text"],
            &message["thinking"],
            &message["ending"]["reason"]
        ),
        (&json!("one two three"), &json!("hm"), &json!("done"))
    );
    let said = events
        .iter()
        .filter(|event| event.name.as_deref() == Some("said"));
    let text: String = said
        .map(|event| event.json()["text"].as_str().unwrap().to_owned())
        .collect();
    // A watcher that comes when all is said has no more than the end.
    let n_said = events.len() - 1;
    assert_eq!(text, if n_said == 0 { "" } else { "one two three" });
    // Once it is over there is its end only, and no answer that never was.
    let late = browser
        .call("GET", &format!("/app/answers/{answer}"), &Value::Null)
        .events();
    assert_eq!(late.len(), 1);
    assert_eq!(late[0].json(), message);
    assert_eq!(
        browser.call("GET", "/app/answers/999", &Value::Null).status,
        404
    );
    let list = browser.get("/app/chats");
    assert_eq!(list[0]["id"], chat);
    assert_eq!(list[0]["title"], "think hm prefill 3 1 say one two three");
    assert_eq!(list[0]["is_answering"], false);
}

#[test]
fn the_experts_are_told_while_the_model_is_loaded() {
    let browser = Browser::new();
    assert_eq!(browser.get("/app/experts"), Value::Null);
    let (chat, _) = browser.ask(json!({ "text": "say one two three" }));
    browser.ended(chat);
    let layer = |marks| json!({ "hits": 3, "misses": 3, "marks": marks });
    let told = json!({ "experts": 3, "layers": [layer("350"), layer("140")] });
    assert_eq!(browser.get("/app/experts"), told);
    browser.served.await_metric("ouzel_turns_running", 0.0);
    let unloaded = browser.call("POST", "/app/unload", &json!({}));
    assert_eq!(unloaded.status, 204, "{}", unloaded.text());
    assert_eq!(browser.get("/app/experts"), Value::Null);
}

#[test]
fn an_answer_goes_on_when_nobody_watches_and_can_be_stopped() {
    let browser = Browser::new();
    let (chat, answer) = browser.ask(json!({ "text": "say begun \nwait 1000000" }));
    assert_eq!(browser.get("/app/chats")[0]["is_answering"], true);
    let again = browser.call(
        "POST",
        "/app/turns",
        &json!({ "chat": chat, "text": "say x" }),
    );
    again.refused(409, None, "model_busy");
    // A watcher that leaves takes nothing along.
    browser.watch_until(answer, "begun");
    let stop = browser.call("POST", &format!("/app/answers/{answer}/stop"), &json!({}));
    assert_eq!(stop.status, 204);
    let message = browser.ended(chat);
    assert_eq!(
        (&message["text"], &message["ending"]["reason"]),
        (&json!("begun "), &json!("stopped"))
    );
    browser.served.await_metric("ouzel_turns_live", 0.0);
    assert_eq!(browser.served.script.ends(), (1, 0));
}

#[test]
fn an_answer_that_cannot_be_written_stays_until_it_can() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chats.sqlite3");
    let browser = Browser::over(Chats::open(&path).unwrap());
    let (chat, answer) = browser.ask(json!({ "text": "say begun \nwait 500\nsay and ended" }));
    browser.watch_until(answer, "begun");
    // Another program has the file to itself, for longer than it is waited for.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.busy_timeout(PATIENCE).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    browser.watch_until(answer, "\"unsaved\":\"");
    other.execute_batch("ROLLBACK").unwrap();
    let message = browser.ended(chat);
    assert_eq!(
        (&message["text"], &message["ending"]["reason"]),
        (&json!("begun and ended"), &json!("done"))
    );
}

#[test]
fn of_two_questions_at_once_a_conversation_takes_one() {
    let browser = Browser::new();
    for _ in 0..8 {
        let (chat, answer) = browser.ask(json!({ "text": "one" }));
        browser.call("POST", &format!("/app/answers/{answer}/stop"), &json!({}));
        browser.ended(chat);
        let question = json!({ "chat": chat, "text": "wait 1000000" });
        let statuses = std::thread::scope(|scope| {
            let ask = || browser.call("POST", "/app/turns", &question).status;
            let both = [scope.spawn(ask), scope.spawn(ask)];
            let mut both = both.map(|one| one.join().unwrap());
            both.sort_unstable();
            both
        });
        assert_eq!(statuses, [200, 409]);
        browser.call("DELETE", &format!("/app/chats/{chat}"), &Value::Null);
    }
}

#[test]
fn an_answer_that_waits_is_stopped_before_it_begins() {
    let browser = Browser::new();
    let (_, first) = browser.ask(json!({ "text": "wait 1000000" }));
    let (chat, second) = browser.ask(json!({ "text": "say never" }));
    browser.served.await_metric("ouzel_queue_waiting", 1.0);
    browser.call("POST", &format!("/app/answers/{second}/stop"), &json!({}));
    let message = browser.ended(chat);
    assert_eq!(
        (&message["text"], &message["ending"]["reason"]),
        (&json!(""), &json!("stopped"))
    );
    browser.call("POST", &format!("/app/answers/{first}/stop"), &json!({}));
}

#[test]
fn what_goes_wrong_is_the_end_of_its_answer() {
    let browser = Browser::new();
    let (chat, _) = browser.ask(json!({ "text": "say half \nfail the disk is gone" }));
    let message = browser.ended(chat);
    assert_eq!(message["text"], "half ");
    assert_eq!(message["ending"]["reason"], "failed");
    assert_eq!(message["ending"]["code"], "internal_error");
    assert_eq!(message["ending"]["message"], "the disk is gone");
    // Too long for the context: the question is kept.
    let long = format!("say {}", "x".repeat(5000));
    let (chat, _) = browser.ask(json!({ "text": long }));
    assert_eq!(
        browser.ended(chat)["ending"]["code"],
        "context_length_exceeded"
    );
    let messages = &browser.get(&format!("/app/chats/{chat}"))["messages"];
    assert_eq!(messages[0]["text"], long);
}

#[test]
fn messages_are_edited_and_answers_made_anew() {
    let browser = Browser::new();
    let (chat, first) = browser.ask(json!({ "text": "say one" }));
    browser.ended(chat);
    let (_, second) = browser.ask(json!({ "chat": chat, "replaces": first }));
    assert_eq!(browser.ended(chat)["text"], "one");
    assert!(second > first);
    let question = browser.get(&format!("/app/chats/{chat}"))["messages"][0]["id"].clone();
    browser.ask(json!({ "chat": chat, "replaces": question, "text": "say two" }));
    assert_eq!(browser.ended(chat)["text"], "two");
    let messages = browser.get(&format!("/app/chats/{chat}"))["messages"].clone();
    assert_eq!(messages.as_array().unwrap().len(), 2);
    let refused = |question: Value| browser.call("POST", "/app/turns", &question);
    refused(json!({ "chat": chat, "text": " " })).refused(400, Some("text"), "invalid_value");
    refused(json!({ "chat": chat })).refused(400, Some("text"), "invalid_value");
    assert_eq!(refused(json!({ "chat": 999, "text": "x" })).status, 404);
    refused(json!({ "texts": "x" })).refused(400, Some("texts"), "invalid_value");
}

#[test]
fn what_is_replaced_stays_until_the_new_turn_has_its_place() {
    let browser = Browser::new();
    let (chat, answer) = browser.ask(json!({ "text": "say one" }));
    browser.ended(chat);
    let path = format!("/app/chats/{chat}");
    let before = browser.get(&path)["messages"].clone();
    let question = before[0]["id"].clone();
    // Longer than the context: refused, and nothing is gone.
    let long = format!("say {}", "x".repeat(5000));
    let refused = browser.call(
        "POST",
        "/app/turns",
        &json!({ "chat": chat, "replaces": question, "text": long }),
    );
    refused.refused(400, Some("the conversation"), "context_length_exceeded");
    assert_eq!(browser.get(&path)["messages"], before);
    let gone = json!({ "chat": chat, "replaces": 999 });
    assert_eq!(browser.call("POST", "/app/turns", &gone).status, 404);
    browser.ask(json!({ "chat": chat, "replaces": answer }));
    assert_eq!(browser.ended(chat)["text"], "one");
}

#[test]
fn conversations_are_found_renamed_and_removed() {
    let browser = Browser::new();
    let (chat, _) = browser.ask(json!({ "text": "say Blackbirds sing" }));
    browser.ended(chat);
    let (other, _) = browser.ask(json!({ "text": "say Herons wait\nwait 1000000" }));
    let found = browser
        .call("POST", "/app/search", &json!({ "words": "blackBIRDS" }))
        .json();
    assert_eq!(found.as_array().unwrap().len(), 1);
    assert_eq!(found[0]["id"], chat);
    let path = format!("/app/chats/{chat}");
    assert_eq!(
        browser
            .call("PATCH", &path, &json!({ "title": "Songs" }))
            .status,
        204
    );
    assert_eq!(browser.get(&path)["title"], "Songs");
    let nameless = browser.call("PATCH", &path, &json!({ "title": " " }));
    nameless.refused(400, Some("title"), "invalid_value");
    // One that is being answered stops.
    let removed = browser.call("DELETE", &format!("/app/chats/{other}"), &Value::Null);
    assert_eq!(removed.status, 204);
    browser.served.await_metric("ouzel_turns_live", 0.0);
    assert_eq!(browser.get("/app/chats").as_array().unwrap().len(), 1);
    assert_eq!(
        browser
            .call("DELETE", &format!("/app/chats/{other}"), &Value::Null)
            .status,
        404
    );
}

#[test]
fn settings_are_checked_kept_and_used() {
    let browser = Browser::new();
    let settings = browser.get("/app/settings");
    assert_eq!(
        (&settings["system"], &settings["temperature"]),
        (&json!(""), &Value::Null)
    );
    let put = |value: Value| browser.call("PUT", "/app/settings", &value);
    put(json!({ "temperature": 3 })).refused(400, Some("temperature"), "invalid_value");
    put(json!({ "max_new": 0 })).refused(400, Some("max_new"), "invalid_value");
    put(json!({ "colour": "red" })).refused(400, Some("colour"), "invalid_value");
    assert_eq!(
        put(json!({ "system": "Be brief.", "max_new": 2, "theme": "dark" })).status,
        200
    );
    assert_eq!(browser.get("/app/settings")["theme"], "dark");
    // Another tab changes what it means to, and nothing that it does not know of.
    let patch = |value: Value| browser.call("PATCH", "/app/settings", &value);
    assert_eq!(patch(json!({ "language": "de" })).status, 200);
    patch(json!({ "top_p": 2 })).refused(400, Some("top_p"), "invalid_value");
    patch(json!({ "colour": "red" })).refused(400, Some("colour"), "invalid_value");
    let settings = browser.get("/app/settings");
    assert_eq!(
        (&settings["theme"], &settings["language"]),
        (&json!("dark"), &json!("de"))
    );
    assert_eq!(patch(json!({ "language": null })).status, 200);
    assert_eq!(browser.get("/app/settings")["language"], Value::Null);
    let (chat, _) = browser.ask(json!({ "text": "say" }));
    let message = browser.ended(chat);
    // The script says its prompt, as far as it may.
    assert_eq!(message["text"], "system Be ");
    assert_eq!(message["ending"]["reason"], "length");
    assert_eq!(message["ending"]["spent"]["new_tokens"], 2);
}

#[test]
fn another_program_finds_what_was_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chats.sqlite3");
    let chats = Chats::open(&file).unwrap();
    let asked = chats
        .ask(Question {
            text: Some("What is a thrush?"),
            ..Question::default()
        })
        .unwrap();
    chats.write(asked.answer, "A bird", "", None).unwrap();
    drop(chats);
    let browser = Browser::over(Chats::open(&file).unwrap());
    let message = browser.ended(asked.chat);
    assert_eq!(
        (&message["text"], &message["ending"]["reason"]),
        (&json!("A bird"), &json!("interrupted"))
    );
}

#[test]
fn a_server_that_ends_lets_answers_come_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("chats.sqlite3");
    let mut browser = Browser::over(Chats::open(&file).unwrap());
    let (chat, answer) = browser.ask(json!({ "text": "say begun \nwait 300\nsay and done" }));
    browser.watch_until(answer, "begun");
    // The page's way to end it; a signal's is the same.
    let refused = browser.served.post("/app/end", &Value::Null);
    refused.refused(401, None, "page_locked");
    browser.call("POST", "/app/end", &Value::Null);
    browser.served.join().unwrap();
    let text = |chats: Chats, chat| {
        let (_, messages) = chats.chat(chat).unwrap();
        (messages[1].text.clone(), messages[1].ending.is_some())
    };
    let kept = text(Chats::open(&file).unwrap(), chat);
    assert_eq!(kept, ("begun and done".to_owned(), true));
    // A second signal cuts it off, and what there is of it is kept.
    let mut browser = Browser::over(Chats::open(&file).unwrap());
    let (chat, answer) = browser.ask(json!({ "text": "say begun \nwait 1000000" }));
    browser.watch_until(answer, "begun");
    browser.served.stop.advance();
    browser.served.stop.advance();
    assert!(browser.served.join().is_err());
    assert_eq!(
        text(Chats::open(&file).unwrap(), chat),
        ("begun ".to_owned(), true)
    );
}

#[test]
fn another_address_is_told_whenever_one_was_used() {
    let (served, page) = with_page(Chats::in_memory().unwrap(), options());
    let (sender, told) = std::sync::mpsc::channel();
    let tell = move |address: Option<&str>| sender.send(address.unwrap().to_owned()).unwrap();
    page.lend(served.address, tell).unwrap();
    let enter = |address: &str| {
        let (at, token) = address.split_once('#').unwrap();
        assert_eq!(at, format!("http://{}/", served.address));
        served.post("/app/session", &json!({ "token": token }))
    };
    let first = told.recv().unwrap();
    assert_eq!(enter(&first).status, 204);
    // Told before anybody was in.
    let second = told.try_recv().unwrap();
    enter(&first).refused(401, None, "page_locked");
    assert!(told.try_recv().is_err());
    assert_eq!(enter(&second).status, 204);
    assert_eq!(enter(&page.address(served.address)).status, 204);
}
