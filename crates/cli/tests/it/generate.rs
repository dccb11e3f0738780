//! `ouzel generate`, on the bundled model.

use std::io::Read;

use crate::tool::User;

const FIELDFARE: &str = "A fieldfare is a medium-sized Eurasian thrush seen chiefly in winter.\n";

#[test]
fn an_instruction_a_file_and_a_pipe_give_the_same_answer() {
    let user = User::with_demo();
    let run = user.run(&["generate", "What is a fieldfare?"]);
    assert_eq!(run.out, FIELDFARE);
    let lines: Vec<&str> = run.err.lines().collect();
    assert_eq!(lines.len(), 2, "{run:?}");
    assert!(
        lines[0].contains("bundled 47M dictionary model") && lines[0].contains("ouzel install"),
        "{run:?}"
    );
    for part in [
        "prompt tokens",
        "new",
        "ended its answer",
        "prefill",
        "decode",
        "disk",
        "hits",
        "read",
    ] {
        assert!(lines[1].contains(part), "{part}: {run:?}");
    }
    let messages = br#"[{"role": "user", "content": "What is a fieldfare?"}]"#;
    let args = ["generate", "--model", "demo", "--quiet", "--messages-file"];
    let path = user.file("fieldfare.json", messages);
    let from_file = user.run(&[args.as_slice(), &[&path]].concat());
    let from_pipe = user.run_with(&[args.as_slice(), &["-"]].concat(), messages);
    for run in [from_file, from_pipe] {
        assert_eq!(
            (run.out.as_str(), run.err.as_str()),
            (FIELDFARE, ""),
            "--quiet leaves the answer alone"
        );
    }
}

#[test]
fn no_choice_of_memory_changes_a_greedy_answer() {
    let user = User::with_demo();
    for flags in [
        ["--slots", "0", "--threads", "1"],
        ["--slots", "32", "--chunk", "3"],
        ["--io", "buffered", "--memory", "80MiB"],
        ["--io", "auto", "--memory", "auto"],
    ] {
        let args = [["generate", "What is a fieldfare?"].as_slice(), &flags].concat();
        assert_eq!(user.run(&args).ok(), FIELDFARE, "{flags:?}");
    }
}

#[test]
fn what_the_page_cache_takes_is_said_not_to_be_counted() {
    let user = User::with_demo();
    let args = ["generate", "What is a fieldfare?", "--io"];
    let says = "page cache not counted";
    let run = user.run(&[args.as_slice(), &["buffered"]].concat());
    assert!(run.err.trim_end().ends_with(says), "{run:?}");
    let run = user.run(&[args.as_slice(), &["auto"]].concat());
    assert!(!run.err.contains(says), "{run:?}");
}

#[test]
fn a_seed_fixes_the_text() {
    let user = User::with_demo();
    let args = [
        "generate",
        "Define serendipity.",
        "--temperature",
        "1.5",
        "--seed",
        "7",
    ];
    assert_eq!(user.run(&args).ok(), user.run(&args).ok());
}

#[test]
fn raw_text_goes_on_and_stop_strings_end_it() {
    let user = User::with_demo();
    let chat = "<bos><|turn>user\nWhat is a fieldfare?<turn|>\n<|turn>model\n<|channel>thought\n<channel|>";
    let run = user.run(&["generate", "--prompt", chat]);
    assert_eq!(run.ok(), FIELDFARE, "control tokens of a raw prompt count");
    let run = user.run(&["generate", "What is a fieldfare?", "--stop", " seen"]);
    assert!(
        run.err.contains("reached the stop string \" seen\""),
        "{run:?}"
    );
    assert_eq!(run.ok(), "A fieldfare is a medium-sized Eurasian thrush\n");
    let run = user.run(&["generate", "What is a fieldfare?", "--max-new", "2"]);
    assert!(run.err.contains("2 new; reached --max-new"), "{run:?}");
}

#[test]
fn messages_that_are_none() {
    let user = User::with_demo();
    let cases: [(&[u8], &str); 11] = [
        (
            b"[\n{\"role\": \"user\" \"content\": \"\"}]",
            "line 2 column",
        ),
        (b"", "line 1 column 0"),
        (b"[]", "no messages"),
        (b"[5]", "expected a message, an object with role and content"),
        (
            b"[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"model\", \"content\": \"Hi\"}]",
            "the model's own",
        ),
        (
            b"[{\"role\": \"system\", \"content\": \"Be brief.\"}]",
            "asks nothing",
        ),
        (b"[{\"role\": \"user\", \"content\": \"  \"}]", "empty"),
        (
            b"[{\"role\": \"wizard\", \"content\": \"Hi\"}]",
            "unknown role \"wizard\"",
        ),
        (b"[{\"role\": \"user\"}]", "missing field `content`"),
        (
            b"{\"role\": \"user\", \"content\": \"Hi\"}",
            "array of messages",
        ),
        (b"[{\"role\": \"user\", \"content\": \"\xff\"}]", "line 1"),
    ];
    for (content, says) in cases {
        user.run_with(&["generate", "--messages-file", "-"], content)
            .refused(2, &["standard input", says]);
    }
    user.run(&["generate", "--messages-file", "/no/such/file"])
        .refused(2, &["/no/such/file"]);
}

#[test]
fn messages_behind_a_byte_order_mark() {
    let user = User::with_demo();
    let args = ["generate", "--quiet", "--messages-file", "-"];
    let content = "\u{feff}[{\"role\": \"user\", \"content\": \"What is a fieldfare?\"}]";
    assert_eq!(user.run_with(&args, content.as_bytes()).ok(), FIELDFARE);
}

#[test]
fn a_prompt_longer_than_the_context() {
    let user = User::with_demo();
    let args = [
        "generate",
        "--model",
        "demo",
        "--max-context",
        "64",
        "--quiet",
    ];
    let long = "What is a thrush? ".repeat(40);
    user.run(&[args.as_slice(), &[&long]].concat())
        .refused(2, &["64", "--max-context"]);
    // The answer ends where the context does.
    let run = user.run(&["generate", "What is a thrush?", "--max-context", "24"]);
    assert!(run.err.contains("the context is full"), "{run:?}");
}

#[test]
fn budgets_and_options_that_do_not_fit_the_model() {
    let user = User::with_demo();
    let generate = |flags: &[&str]| {
        user.run(&[["generate", "Hi", "--model", "demo"].as_slice(), flags].concat())
    };
    generate(&["--memory", "1MiB"]).refused(4, &["budget", "--memory"]);
    generate(&["--slots", "33"]).refused(2, &["--slots 33"]);
    generate(&["--max-context", "1000000"]).refused(2, &["--max-context"]);
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let user = User::with_demo();
    let args = [
        "generate",
        "--model",
        "demo",
        "--quiet",
        "What does run mean?",
        "--max-new",
        "200",
    ];
    let mut child = user
        .command()
        .args(args)
        .spawn()
        .expect("the binary was built");
    let mut first = [0];
    let mut out = child.stdout.take().expect("a pipe was asked for");
    out.read_exact(&mut first).expect("the answer has a letter");
    drop(out);
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_output_that_is_full() {
    let user = User::with_demo();
    let full = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/full")
        .expect("Linux has it");
    let mut command = user.command();
    command
        .args(["generate", "--model", "demo", "--quiet", "Hello!"])
        .stdout(full);
    let output = command.output().expect("the program ends");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{err}");
    assert!(
        err.starts_with("ouzel: standard output: ") && err.lines().count() == 1,
        "{err}"
    );
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_answer() {
    let user = User::with_demo();
    // Two hundred thousand tokens would take an hour.
    let args = [
        "generate",
        "--model",
        "demo",
        "--prompt",
        "a",
        "--stop",
        "no such text",
        "--temperature",
        "10",
    ];
    let mut child = user
        .command()
        .args(args)
        .args([
            "--top-k",
            "0",
            "--top-p",
            "1",
            "--seed",
            "1",
            "--max-new",
            "200000",
        ])
        .spawn()
        .expect("the binary was built");
    let mut first = [0];
    let mut out = child.stdout.take().expect("a pipe was asked for");
    out.read_exact(&mut first).expect("the answer has a letter");
    let killed = std::process::Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status();
    assert!(killed.expect("every Unix has kill").success());
    let mut rest = Vec::new();
    out.read_to_end(&mut rest).expect("the pipe ends");
    let output = child.wait_with_output().expect("the program ends");
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{err}");
    assert!(err.contains("cancelled"), "{err}");
    assert_eq!(rest.last(), Some(&b'\n'), "the line was ended");
}
