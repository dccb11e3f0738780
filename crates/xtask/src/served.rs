//! One `ouzel serve`: started on a free port, asked, told to end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

/// Unpacking the model comes first.
const START_TIME: Duration = Duration::from_secs(60);
/// A turn that nobody reads any more is over in much less.
const IDLE_TIME: Duration = Duration::from_secs(10);
/// An answer takes no longer, whatever is asked here.
const ANSWER_TIME: Duration = Duration::from_secs(120);
/// A server that has nothing to do ends at once.
const END_TIME: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(50);
/// So that every client has to say its key.
const KEY: &str = "the-key-of-the-tests";
/// What it is called.
const MODEL: &str = "demo";

/// A server that runs; killed when dropped.
pub struct Served {
    child: Child,
    /// HOST:PORT
    address: String,
}

impl Served {
    /// Starts one with the bundled model that keeps its files in a folder, and waits until it is well.
    pub fn start(binary: &Path, folder: &Path, flags: &[&str]) -> anyhow::Result<Served> {
        let mut command = Command::new(binary);
        command.args(["serve", "demo", "--model-name", MODEL, "--port", "0"]);
        Served::of(at_home(command.args(flags), folder))
    }

    /// The same for any command that serves on a port of its own choice.
    pub fn of(command: &mut Command) -> anyhow::Result<Served> {
        let mut child = command
            .env("OUZEL_API_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| command.get_program().to_string_lossy().into_owned())?;
        let stderr = child.stderr.take().context("standard error is piped")?;
        let lines = lines(stderr);
        let mut served = Served {
            child,
            address: String::new(),
        };
        served.address = address(&lines)?;
        // Its further lines are read, so that it never waits for a reader, and are nobody's concern.
        drop(lines);
        served.get("/health")?;
        Ok(served)
    }

    /// What tests have to know, as environment variables.
    pub fn environment(&self) -> [(&'static str, String); 3] {
        [
            ("OUZEL_URL", format!("http://{}", self.address)),
            ("OUZEL_KEY", KEY.to_owned()),
            ("OUZEL_MODEL", MODEL.to_owned()),
        ]
    }

    /// No turn is left of clients that are gone.
    pub fn check_idle(&self) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let page = self.get("/metrics")?;
            let is_idle = ["turns_live", "turns_running", "queue_waiting"]
                .iter()
                .all(|name| page.lines().any(|line| line == format!("ouzel_{name} 0")));
            if is_idle {
                return Ok(());
            }
            ensure!(
                started.elapsed() < IDLE_TIME,
                "the server has turns left that nobody reads: {page}"
            );
            thread::sleep(POLL);
        }
    }

    /// Tells it to end, which it must do by itself and without an error.
    pub fn end(mut self) -> anyhow::Result<()> {
        let pid = self.child.id().to_string();
        let told = Command::new("kill").args(["-TERM", &pid]).status();
        ensure!(told.context("kill")?.success(), "the server was gone");
        let started = Instant::now();
        while started.elapsed() < END_TIME {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the server ended with {status}");
                return Ok(());
            }
            thread::sleep(POLL);
        }
        bail!(
            "the server did not end within {} s of SIGTERM",
            END_TIME.as_secs()
        )
    }

    /// What the server's process has of memory that belongs to no file, as Linux counts it.
    pub fn anonymous_bytes(&self) -> anyhow::Result<u64> {
        let file = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&file).context(file)?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kib: u64 = kib.context("no RssAnon")?.trim().parse()?;
        Ok(kib << 10)
    }

    /// A number of its metrics.
    pub fn metric(&self, name: &str) -> anyhow::Result<f64> {
        let page = self.get("/metrics")?;
        let line = page
            .lines()
            .find_map(|line| line.strip_prefix("ouzel_")?.strip_prefix(name));
        let value = line.and_then(|value| value.trim().parse().ok());
        value.with_context(|| format!("no metric {name}"))
    }

    /// Sends a request and gives what comes back, head and all.
    pub fn post(&self, path: &str, body: &Value) -> anyhow::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address).context("the server does not answer")?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        let (address, body) = (&self.address, body.to_string());
        // HTTP/1.0, so that a stream of events comes as it is and ends with its connection.
        let head = format!(
            "POST {path} HTTP/1.0\r\nhost: {address}\r\nauthorization: Bearer {KEY}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        Ok(stream)
    }

    /// Status and body of an answer.
    pub fn ask(&self, path: &str, body: &Value) -> anyhow::Result<(u16, Value)> {
        let mut said = String::new();
        self.post(path, body)?.read_to_string(&mut said)?;
        let (head, body) = said.split_once("\r\n\r\n").context("no head")?;
        let status = head.split(' ').nth(1).and_then(|n| n.parse().ok());
        let body = serde_json::from_str(body).with_context(|| body.to_owned())?;
        Ok((status.context("no status")?, body))
    }

    fn get(&self, path: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect(&self.address).context("the server does not answer")?;
        stream.set_read_timeout(Some(IDLE_TIME))?;
        let address = &self.address;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {KEY}\r\nconnection: close\r\n\r\n"
        )?;
        let mut page = String::new();
        stream.read_to_string(&mut page)?;
        let status = page.lines().next().unwrap_or_default();
        ensure!(status.contains(" 200 "), "{path}: {status}");
        Ok(page)
    }
}

/// A command whose files are in a folder of its own.
pub fn at_home<'c>(command: &'c mut Command, folder: &Path) -> &'c mut Command {
    command
        .env("OUZEL_MODELS", folder.join("models"))
        .env("OUZEL_CACHE", folder.join("cache"))
        // Conversations are kept in the user's data folder, and this is nobody's.
        .env("HOME", folder)
        .env_remove("XDG_DATA_HOME")
}

impl Drop for Served {
    fn drop(&mut self) {
        // Where it has ended already there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(stderr: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            // Nobody listens once the server has told where it is.
            let _ = sender.send(line);
        }
    });
    lines
}

/// The address that the server tells once it listens: `… at http://HOST:PORT/v1`.
fn address(lines: &Receiver<String>) -> anyhow::Result<String> {
    let started = Instant::now();
    let mut said = Vec::new();
    while let Some(left) = START_TIME.checked_sub(started.elapsed()) {
        let Ok(line) = lines.recv_timeout(left) else {
            break;
        };
        if let Some((_, url)) = line.split_once(" at http://") {
            return Ok(url.trim_end_matches("/v1").to_owned());
        }
        said.push(line);
    }
    bail!("the server did not start: {}", said.join(" | "))
}
