//! A server on a free port, and a client that says exactly what it is told to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ouzel::SamplerOptions;
use ouzel_server::log::{Log, Silent};
use ouzel_server::models::{Opened, Wish};
use ouzel_server::script::Script;
use ouzel_server::wire::Defaults;
use ouzel_server::{ServeError, ServerOptions, Stop, serve};
use serde_json::{Value, json};

/// A test that waits longer than this hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
pub struct Served {
    pub address: SocketAddr,
    pub script: Script,
    pub stop: Stop,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

/// Options of a server on a free port.
pub fn options() -> ServerOptions {
    ServerOptions {
        port: 0,
        ..ServerOptions::default()
    }
}

/// What the script is called.
pub fn opened(script: Script, names: &[&str]) -> Opened {
    Opened {
        engine: Arc::new(script),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        defaults: Defaults {
            sampler: SamplerOptions::default(),
        },
        wish: Wish::default(),
    }
}

impl Served {
    pub fn new() -> Served {
        Served::with(options())
    }

    pub fn with(options: ServerOptions) -> Served {
        Served::with_script(options, Script::new(4096))
    }

    pub fn with_script(options: ServerOptions, script: Script) -> Served {
        Served::with_names(options, script, &["scripted", "alias"])
    }

    pub fn with_names(options: ServerOptions, script: Script, names: &[&str]) -> Served {
        Served::with_all(options, script, names, Arc::new(Silent))
    }

    pub fn with_log(options: ServerOptions, script: Script, log: Arc<dyn Log>) -> Served {
        Served::with_all(options, script, &["scripted", "alias"], log)
    }

    fn with_all(
        options: ServerOptions,
        script: Script,
        names: &[&str],
        log: Arc<dyn Log>,
    ) -> Served {
        let (sender, receiver) = mpsc::channel();
        let stop = Stop::new();
        let (opened, handle) = (opened(script.clone(), names), stop.clone());
        let thread = std::thread::spawn(move || {
            let ready = |address| sender.send(address).expect("the test waits for it");
            serve(options, opened, log, &handle, ready)
        });
        Served {
            address: receiver.recv().expect("the server starts"),
            script,
            stop,
            thread: Some(thread),
        }
    }

    /// A connection.
    pub fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Connection {
            stream,
            pending: Vec::new(),
        }
    }

    /// The response to a request with these headers beside the usual ones.
    pub fn request(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Response {
        let mut connection = self.connect();
        connection.send(
            method,
            path,
            &format!("Connection: close\r\n{headers}"),
            body,
        );
        connection.response()
    }

    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path, "Host: localhost\r\n", b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Response {
        self.post_text(path, &body.to_string())
    }

    pub fn post_text(&self, path: &str, body: &str) -> Response {
        let headers = "Host: localhost\r\nContent-Type: application/json\r\n";
        self.request("POST", path, headers, body.as_bytes())
    }

    /// The JSON of a successful answer.
    #[track_caller]
    pub fn ok(&self, path: &str, body: &Value) -> Value {
        let response = self.post(path, body);
        assert_eq!(response.status, 200, "{response:?}");
        response.json()
    }

    /// The events of a successful stream.
    #[track_caller]
    pub fn events(&self, path: &str, body: &Value) -> Vec<Event> {
        let response = self.post(path, body);
        assert_eq!(response.status, 200, "{response:?}");
        assert_eq!(
            response.header("content-type"),
            Some("text/event-stream; charset=utf-8")
        );
        response.events()
    }

    /// A number of the metrics page.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.get("/metrics").text();
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name} is in {page}"))
            .parse()
            .expect("a number")
    }

    /// Waits until a number of the metrics page has this value.
    #[track_caller]
    pub fn await_metric(&self, name: &str, value: f64) {
        let since = Instant::now();
        while self.metric(name) != value {
            assert!(
                since.elapsed() < PATIENCE,
                "{name} is {}, not {value}",
                self.metric(name)
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for the server's end.
    pub fn join(&mut self) -> Result<(), ServeError> {
        let thread = self.thread.take().expect("the server runs");
        thread.join().expect("the server does not panic")
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.advance();
        self.stop.advance();
        if let Some(thread) = self.thread.take() {
            // A test that failed has said so already.
            let _ = thread.join();
        }
    }
}

/// One side of a connection.
pub struct Connection {
    pub stream: TcpStream,
    /// What was read and not asked for yet.
    pending: Vec<u8>,
}

impl Connection {
    /// Sends a request as it stands.
    pub fn send(&mut self, method: &str, path: &str, headers: &str, body: &[u8]) {
        let length = if method == "GET" {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let head = format!("{method} {path} HTTP/1.1\r\n{headers}{length}\r\n");
        // A server that refuses a request early may not read all of it.
        let _ = self.stream.write_all(head.as_bytes());
        let _ = self.stream.write_all(body);
    }

    pub fn post(&mut self, path: &str, body: &Value) {
        let headers = "Host: localhost\r\nContent-Type: application/json\r\n";
        self.send("POST", path, headers, body.to_string().as_bytes());
    }

    /// Reads until this text came, and leaves what came behind it for the next time.
    #[track_caller]
    pub fn read_until(&mut self, text: &str) -> String {
        let mut searched = 0;
        let mut buf = [0; 4096];
        loop {
            let from = searched.min(self.pending.len());
            let found = self.pending[from..]
                .windows(text.len())
                .position(|window| window == text.as_bytes());
            if let Some(at) = found {
                let read: Vec<u8> = self.pending.drain(..from + at + text.len()).collect();
                return String::from_utf8_lossy(&read).into_owned();
            }
            searched = (self.pending.len() + 1).saturating_sub(text.len());
            let n = self
                .stream
                .read(&mut buf)
                .expect("the server says something");
            assert!(
                n > 0,
                "{text:?} did not come: {}",
                String::from_utf8_lossy(&self.pending)
            );
            self.pending.extend(&buf[..n]);
        }
    }

    /// All of the response; the server closes the connection.
    pub fn response(&mut self) -> Response {
        let mut bytes = std::mem::take(&mut self.pending);
        // A connection that is reset has an end, too.
        let _ = self.stream.read_to_end(&mut bytes);
        Response::parse(&bytes)
    }
}

/// A response.
#[derive(Debug)]
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

/// A server-sent event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub name: Option<String>,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl Response {
    fn parse(bytes: &[u8]) -> Response {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head in {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8(bytes[..end].to_vec()).expect("heads are ASCII");
        let mut lines = head.lines();
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
            .collect();
        let rest = &bytes[end + 4..];
        let is_chunked = headers
            .iter()
            .any(|(name, value)| name == "transfer-encoding" && value == "chunked");
        Response {
            status: status.expect("a status"),
            headers,
            body: if is_chunked {
                unchunked(rest)
            } else {
                rest.to_vec()
            },
        }
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("bodies are UTF-8")
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.text()))
    }

    /// The events of the body, without comments.
    #[track_caller]
    pub fn events(&self) -> Vec<Event> {
        let text = self.text();
        assert!(
            text.ends_with("\n\n"),
            "a stream ends with an event: {text:?}"
        );
        let blocks = text
            .split_terminator("\n\n")
            .filter(|block| !block.starts_with(':'));
        let event = |block: &str| {
            let field = |name: &str| {
                block
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(str::to_owned)
            };
            Event {
                name: field("event: "),
                data: field("data: ").expect("an event has data"),
            }
        };
        blocks.map(event).collect()
    }

    /// The refusal: this status, this field, this code, and a message that says so.
    #[track_caller]
    pub fn refused(&self, status: u16, param: Option<&str>, code: &str) {
        assert_eq!(self.status, status, "{}", self.text());
        let error = &self.json()["error"];
        assert_eq!(error["param"], json!(param), "{error}");
        assert_eq!(error["code"], code, "{error}");
        let message = error["message"].as_str().expect("a message");
        let field = param.map(|param| param.rsplit(['.', ']']).next().unwrap_or(param));
        assert!(
            field.is_none_or(|field| message.contains(field)),
            "{message} names {param:?}"
        );
    }
}

fn unchunked(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).expect("a chunk's size is ASCII");
        let size = usize::from_str_radix(size, 16).expect("a chunk's size is hexadecimal");
        if size == 0 {
            break;
        }
        let chunk = &rest[end + 2..];
        body.extend(&chunk[..size.min(chunk.len())]);
        rest = chunk.get(size + 2..).unwrap_or_default();
    }
    body
}

/// A chat request with one user message.
pub fn chat(text: &str, more: Value) -> Value {
    let mut request =
        json!({ "model": "scripted", "messages": [{ "role": "user", "content": text }] });
    let map = request.as_object_mut().expect("an object");
    map.extend(more.as_object().expect("an object").clone());
    request
}

/// Replaces what differs from run to run.
pub fn steady(mut value: Value) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Object(map) => {
                for (key, value) in map.iter_mut() {
                    let is_id = ["id", "item_id", "call_id"].contains(&key.as_str());
                    match value {
                        Value::String(text) if is_id => {
                            let prefix = text.split(['-', '_']).next().unwrap_or_default();
                            *text = format!("{prefix}…");
                        }
                        Value::Number(_) if key == "created" || key == "created_at" => {
                            *value = json!(0)
                        }
                        value => walk(value),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(walk),
            _ => {}
        }
    }
    walk(&mut value);
    value
}
