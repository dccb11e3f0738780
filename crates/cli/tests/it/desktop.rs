//! The app without a terminal, and started twice: real processes, and a browser that writes down what it was to open.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::tool::{Run, User};

/// A person at a desktop: folders that all of their processes share, and a browser.
struct Desk {
    user: User,
    dir: TempDir,
}

impl Desk {
    fn new() -> Desk {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let programs = dir.path().join("bin");
        fs::create_dir(&programs).expect("the folder is ours");
        // What systems call the program that opens addresses.
        for name in ["xdg-open", "open"] {
            let path = programs.join(name);
            let opened = dir.path().join("opened").display().to_string();
            let script = format!("#!/bin/sh\necho \"$1\" >> '{opened}'\n");
            fs::write(&path, script).expect("the folder is ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our file");
        }
        Desk {
            user: User::with_demo(),
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self) -> Command {
        let mut command = self.user.command();
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("OUZEL_CHATS", self.path("chats"))
            .env("OUZEL_STATE", self.path("state"))
            .env("OUZEL_RUNTIME", self.path("running"))
            .env("OUZEL_PREFIXES", self.path("prefixes"));
        command
    }

    /// As a desktop starts programs.
    fn double_click(&self, chats: &str) -> Child {
        let mut command = self.command();
        command
            .env("OUZEL_CHATS", self.path(chats))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.spawn().expect("the binary was built")
    }

    /// `ouzel app` in a terminal that is a pipe, once it has said where its page is.
    fn app(&self) -> (Child, String) {
        let mut command = self.command();
        let mut child = command
            .args(["app", "demo", "--no-open"])
            .spawn()
            .expect("the binary was built");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut lines = stderr.lines().map(|line| line.expect("UTF-8"));
        let address = lines
            .find_map(|line| address_in(&line))
            .expect("it says where its page is");
        // Further lines are read, so that it never waits for a reader.
        std::thread::spawn(move || lines.count());
        (child, address)
    }

    /// The n-th address that the browser was to open.
    fn opened(&self, n: usize) -> String {
        loop {
            let text = fs::read_to_string(self.path("opened")).unwrap_or_default();
            if let Some((line, true)) = text.lines().nth(n).map(|l| (l, text.ends_with('\n'))) {
                return line.to_owned();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("state/app.log")).expect("a log")
    }
}

fn address_in(line: &str) -> Option<String> {
    let (_, address) = line.split_once("the page is at ")?;
    Some(address.to_owned())
}

/// The host and what follows it: a path or a token.
fn parts(address: &str) -> (&str, &str) {
    let rest = address.strip_prefix("http://").expect("an address");
    let end = rest.find('/').expect("a path");
    rest.split_at(end)
}

fn request(host: &str, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(host).expect("it listens");
    write!(stream, "{head} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())
        .expect("it listens");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("UTF-8");
    answer
}

/// Whether a page's address opens it now.
fn opens(address: &str) -> bool {
    let (host, token) = parts(address);
    let body = format!("{{\"token\":\"{}\"}}", token.trim_start_matches("/#"));
    let answer = request(host, "POST /app/session", &body);
    let is_open = answer.starts_with("HTTP/1.0 204 ");
    assert!(is_open || answer.starts_with("HTTP/1.0 401 "), "{answer}");
    is_open
}

/// As a system that shuts down does.
fn end(mut child: Child) {
    let killed = Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.expect("kill").success());
    assert!(child.wait().expect("a child").success());
}

#[test]
fn a_second_app_opens_the_page_of_the_first() {
    let desk = Desk::new();
    let (first, printed) = desk.app();
    let again = || {
        let mut command = desk.command();
        command.args(["app", "--no-open", "--max-context", "64"]);
        let run = Run::of(command.output().expect("the binary was built"));
        assert_eq!(run.code, Some(0), "{run:?}");
        let who = format!("process {}, ouzel app, is running already", first.id());
        assert!(run.err.contains(&who), "{run:?}");
        run.err.lines().find_map(address_in).expect("an address")
    };
    let second = again();
    assert_eq!(parts(&second).0, parts(&printed).0, "one server");
    assert_eq!(again(), second, "nobody used it");
    assert!(opens(&second));
    assert!(!opens(&second), "it opens once");
    let third = again();
    assert_ne!(third, second);
    assert!(opens(&third));
    assert!(opens(&printed) && !opens(&printed));
    // A server for programs does without the page.
    let mut serving = desk.command();
    let serve = [
        "serve",
        "demo",
        "--shared",
        "--port",
        "0",
        "--memory",
        "256MiB",
        "--prefix-disk",
        "0",
    ];
    let mut serving = serving.args(serve).spawn().expect("the binary was built");
    let lines = BufReader::new(serving.stderr.take().expect("a pipe")).lines();
    let mut said = Vec::new();
    for line in lines.map(|line| line.expect("UTF-8")) {
        said.push(line);
        if said.last().is_some_and(|line| line.contains(" at http://")) {
            break;
        }
    }
    let said = said.join("\n");
    let who = format!(
        "there is no page: process {}, ouzel app, has the conversations",
        first.id()
    );
    assert!(said.contains(&who), "{said}");
    end(serving);
    end(first);
    assert!(!desk.path("chats/page.json").exists());
    assert!(!desk.path("chats/page.lock").exists());
}

#[test]
fn without_a_terminal_it_is_the_app_and_without_it_twice_the_same_app() {
    let desk = Desk::new();
    let mut first = desk.double_click("chats");
    let printed = desk.opened(0);
    assert!(
        desk.log()
            .contains(&format!("ouzel: the page is at {printed}\n"))
    );
    let mode = fs::metadata(desk.path("state/app.log"))
        .expect("a log")
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut second = desk.double_click("chats");
    assert!(second.wait().expect("a child").success());
    let address = desk.opened(1);
    assert_eq!(parts(&address).0, parts(&printed).0);
    assert!(opens(&printed) && opens(&address));
    // What a process that died left behind is in nobody's way.
    first.kill().expect("a child");
    first.wait().expect("a child");
    assert!(desk.path("chats/page.json").exists());
    let third = desk.double_click("chats");
    let address = desk.opened(2);
    assert!(opens(&address));
    end(third);
}

#[test]
fn what_goes_wrong_without_a_terminal_is_shown_in_the_browser_and_written_down() {
    let desk = Desk::new();
    File::create(desk.path("file")).expect("the folder is ours");
    let mut child = desk.double_click("file/<chats>");
    let address = desk.opened(0);
    let (host, path) = parts(&address);
    assert!(request(host, "GET /", "").starts_with("HTTP/1.1 404 "));
    let page = request(host, &format!("GET {path}"), "");
    assert!(page.contains("<h1>Ouzel could not go on</h1>"), "{page}");
    assert!(page.contains("file/&lt;chats&gt;"), "{page}");
    assert!(page.contains("state/app.log"), "{page}");
    assert_eq!(child.wait().expect("a child").code(), Some(5));
    let log = desk.log();
    assert!(log.contains("file/<chats>"), "{log}");
}

/// `script`, which makes a terminal, is not everywhere.
#[cfg(target_os = "linux")]
#[test]
fn in_a_terminal_it_says_what_it_can_do() {
    let desk = Desk::new();
    let mut command = Command::new("script");
    let own = desk.command();
    command.envs(
        own.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    command
        .args(["-qec", env!("CARGO_BIN_EXE_ouzel"), "/dev/null"])
        .stdin(Stdio::null());
    let Ok(output) = command.output() else {
        println!("skipped: nothing here makes a terminal");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Commands:"), "{said}");
    assert!(!desk.path("state").exists());
}
