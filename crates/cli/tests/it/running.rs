//! One model at a time, and no connection from anything but `install`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};

use crate::tool::{Run, User};

const CHAT: [&str; 5] = ["chat", "--max-new", "2", "--memory", "96MiB"];

/// A conversation that has answered once, so that its model is loaded.
pub struct Chat {
    pub child: Child,
    typed: ChildStdin,
}

impl Chat {
    pub fn start(user: &User, more: &[&str]) -> Chat {
        let mut child = user
            .command()
            .args(CHAT)
            .args(more)
            .stdin(Stdio::piped())
            .spawn()
            .expect("the binary was built");
        let mut typed = child.stdin.take().expect("a pipe");
        typed.write_all(b"hello\n").expect("a reader");
        let mut answers = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        answers.read_line(&mut line).expect("text");
        Chat { child, typed }
    }

    /// Ends it as a user would.
    pub fn end(mut self) {
        drop(self.typed);
        assert!(self.child.wait().expect("a child").success());
    }
}

const ASK: [&str; 8] = [
    "generate",
    "--model",
    "demo",
    "--max-new",
    "1",
    "--memory",
    "96MiB",
    "hello",
];

#[test]
fn a_second_model_names_the_first_and_waits_for_leave() {
    let user = User::new().with_one_machine();
    user.run(&ASK).ok();
    let chat = Chat::start(&user, &[]);
    let pid = chat.child.id().to_string();
    user.run(&ASK)
        .refused(5, &[&pid, "ouzel chat", "memory", "--shared"]);
    let shared = [&ASK[..7], &["--shared", "hello"]].concat();
    user.run(&shared).ok();
    // What the budget cannot hold is not promised.
    let huge = [&ASK[..5], &["--memory", "1000000GiB", "--shared", "hello"]].concat();
    let run = user.run(&huge);
    assert!(
        run.code == Some(0) || run.err.contains("are free"),
        "{run:?}"
    );
    // Nor is a model changed under a session.
    let demo = std::fs::read_dir(&user.models)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
        .find(|path| path.extension().is_some_and(|e| e == "gturbo"))
        .expect("the bundled model");
    let from = crate::tool::repository("models/demo").display().to_string();
    let to = demo.display().to_string();
    let change = ["install", "--from", &from, "--output", &to, "--overwrite"];
    user.run(&[&change[..], &["--models-dir", "elsewhere"]].concat())
        .refused(5, &[&pid, "ouzel chat"]);
    chat.end();
    user.run(&ASK).ok();
}

#[test]
fn a_process_that_was_killed_is_in_nobodys_way() {
    let user = User::new().with_one_machine();
    user.run(&ASK).ok();
    let mut chat = Chat::start(&user, &[]);
    chat.child.kill().expect("a child");
    chat.child.wait().expect("a child");
    user.run(&ASK).ok();
}

/// Brings loopback up, serves, and asks once: $0 is the program, $1 a file for its messages, $2 a request.
#[cfg(target_os = "linux")]
const SERVE_AND_ASK: &str = r#"
ip link set lo up || ifconfig lo up || exit 77
"$0" serve demo --port 0 --prefix-disk 0 2>"$1" &
server=$!
trap 'kill $server' EXIT
while ! grep -q ' at http://' "$1"; do kill -0 $server || exit 1; sleep 0.1; done
exec 3<>"/dev/tcp/$(sed -n 's|.* at http://\([0-9.]*\):\([0-9]*\)/v1|\1/\2|p' "$1")"
printf %s "$2" >&3
cat <&3
"#;

/// `serve` in a namespace that has loopback and no way out.
#[cfg(target_os = "linux")]
fn serve_outside(user: &User, expected: &str) {
    let body = r#"{"messages":[{"role":"user","content":"What is a thrush?"}],"max_tokens":8,"temperature":0}"#;
    let request = format!(
        "POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut command = std::process::Command::new("unshare");
    let own = user.command();
    command.envs(
        own.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let output = command
        .args(["--user", "--map-root-user", "--net", "--", "bash", "-c"])
        .args([SERVE_AND_ASK, env!("CARGO_BIN_EXE_ouzel")])
        .args([&user.path("messages"), &request])
        .stdin(Stdio::null())
        .output();
    let run = Run::of(output.expect("unshare"));
    if run.code == Some(77) {
        println!("serve was skipped: nothing here brings loopback up");
        return;
    }
    let (head, body) = run.out.split_once("\r\n\r\n").expect("an answer");
    assert!(head.contains(" 200 "), "{run:?}");
    let answer: serde_json::Value = serde_json::from_str(body).expect("JSON");
    let text = answer["choices"][0]["message"]["content"].as_str();
    assert_eq!(text, Some(expected.trim_end_matches('\n')), "{run:?}");
}

/// In a network namespace without routes everything but `install` works; `install` says that there is no way out.
#[cfg(target_os = "linux")]
#[test]
fn only_install_needs_a_network() {
    let user = User::new();
    user.run(&["generate", "--max-new", "1", "unpack"]).ok();
    let outside = |args: &[&str]| {
        let binary = env!("CARGO_BIN_EXE_ouzel");
        let mut command = std::process::Command::new("unshare");
        let own = user.command();
        command.envs(
            own.get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        );
        let command = command.args(["--user", "--map-root-user", "--net", "--", binary]);
        command
            .args(args)
            .stdin(Stdio::null())
            .output()
            .map(Run::of)
    };
    let is_permitted = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--", "true"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !is_permitted {
        println!("skipped: no network namespace may be made here");
        return;
    }
    let expected = user
        .run(&["generate", "--max-new", "8", "What is a thrush?"])
        .ok();
    let answer = outside(&["generate", "--max-new", "8", "What is a thrush?"]).expect("unshare");
    assert_eq!(answer.ok(), expected);
    for args in [
        &["chat"][..],
        &["models"],
        &["inspect"],
        &["verify", "demo"],
    ] {
        outside(args).expect("unshare").ok();
    }
    serve_outside(&user, &expected);
    let run = outside(&["install", "--dry-run"]).expect("unshare");
    assert_eq!(run.code, Some(5), "{run:?}");
    assert_eq!(run.err.lines().count(), 1, "{run:?}");
}
