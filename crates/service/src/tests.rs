//! Messages and their limits; both sides, each against a scripted other one. What a model says is tested with the program.

use std::io::{BufReader, Cursor, PipeReader, PipeWriter, Write, pipe};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ouzel::{IoMode, Options, Precision, PrefixOptions, SamplerOptions};
use ouzel_tokenizer::Tool;
use ouzel_tokenizer::grammar::Demand;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::child::{ChildError, run};
use crate::experts::{Experts, LayerExperts};
use crate::line::{LineError, Lines, write};
use crate::protocol::{Load, PROTOCOL, Report, Request, TokenPiece};
use crate::turn::{
    Cost, End, Generate, Outcome, Piece, Settings, Spent, Step, TokenLogprob, Usage,
};

/// Nothing here takes as long.
const PATIENCE: Duration = Duration::from_secs(20);

fn through<T: Serialize + DeserializeOwned>(message: &T) -> T {
    let mut line = Vec::new();
    write(message, &mut line).expect("it is short");
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    let mut lines = Lines::new(Cursor::new(line));
    let came = lines.read().expect("a message").expect("a message");
    assert!(lines.read::<T>().expect("nothing more").is_none());
    came
}

/// Values of every kind of f32, bit patterns at random among them.
fn floats() -> impl Iterator<Item = f32> {
    let mut x = 1_u32;
    let random = std::iter::repeat_with(move || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from_bits(x)
    });
    let named = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        f32::MAX,
        -1.0e-7,
        0.1,
    ];
    named
        .into_iter()
        .chain(random.filter(|value| !value.is_nan()).take(5000))
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1.0e-7), |inner, _| json!([inner]))
}

fn generate() -> Generate {
    let tool = |parameters| Tool {
        name: "look \"up\"\n".to_owned(),
        description: Some("ä\u{1}\u{2028}".to_owned()),
        parameters,
        strict: true,
    };
    Generate {
        turn: u64::MAX,
        ids: vec![0, 262_143, u32::MAX],
        settings: Settings {
            max_new: Some(u32::MAX),
            sampler: SamplerOptions {
                temperature: 0.1,
                top_p: 0.95,
                min_p: f32::from_bits(1),
                seed: Some(u64::MAX),
                ..SamplerOptions::default()
            },
            stop: vec!["\n\n".to_owned(), String::new()],
            logit_bias: vec![(7, f32::NEG_INFINITY), (8, 0.3)],
            logprobs: Some(20),
            parallel_calls: true,
        },
        tool_names: vec!["f".to_owned()],
        // As deep as JSON may be where it was read first.
        demand: Some(Demand::JsonOrTools {
            schema: json!({ "multipleOf": 0.1, "enum": nested(100), "z": 1, "a": 123_456_789_012_345_680_000.0_f64 }),
            tools: vec![tool(None), tool(Some(Value::Null)), tool(Some(nested(120)))],
            parallel: false,
        }),
    }
}

#[test]
fn what_is_asked_arrives_as_it_was() {
    let asked = generate();
    assert_eq!(
        through(&Request::Generate(Box::new(asked.clone()))),
        Request::Generate(Box::new(asked))
    );
    let tools = |only: Option<&str>| Demand::Tools {
        tools: Vec::new(),
        at_least_one: true,
        only: only.map(str::to_owned),
        parallel: true,
    };
    for demand in [
        None,
        Some(Demand::JsonObject),
        Some(Demand::JsonSchema(json!(true))),
        Some(tools(None)),
        Some(tools(Some("f"))),
    ] {
        let asked = Request::Generate(Box::new(Generate {
            demand,
            ..generate()
        }));
        assert_eq!(through(&asked), asked);
    }
    for value in floats() {
        let bias = Settings {
            logit_bias: vec![(1, value)],
            ..generate().settings
        };
        let asked = Generate {
            settings: bias,
            ..generate()
        };
        let Request::Generate(came) = through(&Request::Generate(Box::new(asked))) else {
            panic!("another request came");
        };
        assert_eq!(came.settings.logit_bias[0].1.to_bits(), value.to_bits());
    }
}

#[test]
fn options_arrive_as_they_were() {
    let mut paths = vec![PathBuf::from("models/ä.gturbo")];
    #[cfg(unix)]
    {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        paths.push(OsStr::from_bytes(b"/m\xff\x80.gturbo").into());
    }
    for path in paths {
        let options = Options {
            precision: Precision::Exact,
            memory: Some(u64::MAX),
            max_context: Some(1),
            slots: Some(0),
            chunk: None,
            io: IoMode::Buffered,
            threads: Some(3),
            logits_rows: 2,
            program_bytes: None,
            other_bytes: 5,
            prefixes: Some(PrefixOptions {
                memory_bytes: 1,
                dir: Some(path.clone()),
                disk_bytes: 2,
            }),
            cache_dir: Some(path.clone()),
        };
        for options in [options, Options::default()] {
            let load = Request::Load(Box::new(Load::new(path.clone(), options.clone())));
            let Request::Load(came) = through(&load) else {
                panic!("another request came");
            };
            assert_eq!((&came.model, came.options()), (&path, options));
        }
    }
}

#[test]
fn an_answer_arrives_as_it_was_made() {
    let usage = Usage {
        prompt: usize::MAX,
        cached: 1,
        new: 2,
        reasoning: 3,
    };
    let cost = Cost {
        prefill: Duration::new(7, 999_999_999),
        decode: Duration::from_nanos(u64::MAX),
        hits: u64::MAX,
        misses: 1,
        bytes_read: 2,
        peak_memory: Some(3),
    };
    let arguments: Map<String, Value> =
        serde_json::from_value(json!({ "z": nested(120), "a": 0.1, "b": null, "c": 5e-324 }))
            .expect("an object");
    let mut steps = vec![
        Step::Spent(Spent { usage, cost }),
        Step::Experts(Experts {
            experts: 2,
            layers: vec![LayerExperts {
                hits: u64::MAX,
                misses: 0,
                marks: "07".to_owned(),
            }],
        }),
        Step::Piece(Piece::Prompt { done: 3, total: 9 }),
        Step::Piece(Piece::Text("\"\\\n\u{0}\u{2028}\u{10ffff}".to_owned())),
        Step::Piece(Piece::Thinking(String::new())),
        Step::Piece(Piece::Call {
            name: "f".to_owned(),
            arguments,
        }),
    ];
    let ends = [
        End::Stop,
        End::StopText("x".to_owned()),
        End::Length,
        End::ContextFull,
        End::Cancelled,
    ];
    steps.extend(ends.map(|end| Step::Done(Outcome { end, usage, cost })));
    for step in steps {
        let report = through(&Report::from(step.clone()));
        assert_eq!(report.into_step().expect("a step"), step);
    }
    for value in floats() {
        let token = TokenLogprob {
            token: "a".to_owned(),
            logprob: value,
            top: vec![("b".to_owned(), value)],
        };
        let report = through(&Report::from(Step::Piece(Piece::Token(token))));
        let Report::Token {
            piece: TokenPiece::Logprob(came),
        } = report
        else {
            panic!("another report came");
        };
        for arrived in [came.logprob, came.top[0].1] {
            assert_eq!(arrived.to_bits(), value.to_bits());
        }
    }
}

#[test]
fn a_line_has_a_limit_and_an_end() {
    let read = |text: &str, limit: usize| {
        Lines::at_most(Cursor::new(text.to_owned()), limit).read::<Value>()
    };
    assert_eq!(read("[1,2]\n", 5).expect("a line"), Some(json!([1, 2])));
    assert!(matches!(read("[1,2]\n", 4), Err(LineError::TooLong(4))));
    assert!(matches!(read("[1,2]", 5), Err(LineError::BrokeOff)));
    assert!(matches!(read("[1,2]", 9), Err(LineError::BrokeOff)));
    assert!(matches!(read("\n", 9), Err(LineError::Garbage { .. })));
    assert!(read("", 9).expect("the end").is_none());
    let error = read("{\"secret\": nonsense}\n", 99).expect_err("it is no JSON");
    assert!(!error.to_string().contains("secret"), "{error}");
    // The writer does not write what no reader takes.
    let long = "x".repeat(crate::line::MAX_LINE_BYTES);
    let mut out = Vec::new();
    assert!(matches!(write(&long, &mut out), Err(LineError::TooLong(_))));
    assert!(out.is_empty());
}

/// The documented transcript is in the words of the types.
#[test]
fn the_transcript_is_of_this_protocol() {
    let page = include_str!("../../../docs/decode-service.md");
    let (mut n_requests, mut n_reports) = (0, 0);
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("> ") {
            let request: Request =
                serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert_eq!(serde_json::to_string(&request).expect("JSON"), text);
            n_requests += 1;
        } else if let Some(text) = line.strip_prefix("< ") {
            let report: Report =
                serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
            assert_eq!(serde_json::to_string(&report).expect("JSON"), text);
            n_reports += 1;
        }
    }
    assert!(
        n_requests >= 6 && n_reports >= 12,
        "{n_requests} {n_reports}"
    );
    assert!(page.contains(&format!("version {PROTOCOL}")));
}

/// A service without a model, and its owner.
struct Pair {
    requests: Option<PipeWriter>,
    reports: Lines<BufReader<PipeReader>>,
    service: JoinHandle<Result<(), ChildError>>,
    orphaned: Receiver<()>,
}

impl Pair {
    fn new() -> Pair {
        let (service_reads, requests) = pipe().expect("a pipe");
        let (reports, service_writes) = pipe().expect("a pipe");
        let (sender, orphaned) = channel();
        let service = thread::spawn(move || {
            run(service_reads, service_writes, move || {
                // Whoever listens may have ended.
                let _ = sender.send(());
            })
        });
        let mut pair = Pair {
            requests: Some(requests),
            reports: Lines::new(BufReader::new(reports)),
            service,
            orphaned,
        };
        let hello = pair.hear();
        assert!(
            matches!(
                hello,
                Report::Hello {
                    protocol: PROTOCOL,
                    ..
                }
            ),
            "{hello:?}"
        );
        pair
    }

    fn greeted() -> Pair {
        let mut pair = Pair::new();
        pair.say(r#"{"request":"hello","protocol":1}"#);
        pair
    }

    fn say(&mut self, line: &str) {
        let requests = self.requests.as_mut().expect("an owner");
        writeln!(requests, "{line}").expect("the service reads");
    }

    fn hear(&mut self) -> Report {
        self.reports.read().expect("a report").expect("a report")
    }

    /// The service says what is wrong and ends.
    #[track_caller]
    fn refuses(mut self, says: &str) {
        let Report::Failed { message } = self.hear() else {
            panic!("it was not refused");
        };
        assert!(message.contains(says), "{message}");
        let error = self
            .service
            .join()
            .expect("no panic")
            .expect_err("it ended");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn a_service_ends_when_it_is_told_nonsense() {
    for (lines, says) in [
        (&[r#"{"request":"hello","protocol":2}"#][..], "version 2"),
        (&[r#"{"request":"unload"}"#], "before hello"),
        (&["what?"], "not JSON"),
        (
            &[
                r#"{"request":"hello","protocol":1}"#,
                r#"{"request":"dance"}"#,
            ],
            "not one that is known",
        ),
        (
            &[
                r#"{"request":"hello","protocol":1}"#,
                r#"{"request":"hello","protocol":1}"#,
            ],
            "does not fit",
        ),
    ] {
        let mut pair = Pair::new();
        lines.iter().for_each(|line| pair.say(line));
        pair.refuses(says);
    }
    let mut pair = Pair::greeted();
    let asked = serde_json::to_string(&Request::Generate(Box::new(generate()))).expect("JSON");
    pair.say(&asked);
    pair.refuses("no model is loaded");
}

#[test]
fn a_model_that_is_not_there_can_be_asked_for_again() {
    let mut pair = Pair::greeted();
    let load = Request::Load(Box::new(Load::new(
        "nowhere.gturbo".into(),
        Options::default(),
    )));
    let load = serde_json::to_string(&load).expect("JSON");
    for _ in 0..2 {
        pair.say(&load);
        assert_eq!(pair.hear(), Report::Loading);
        let Report::Failed { message } = pair.hear() else {
            panic!("there is no such model");
        };
        assert!(message.contains("nowhere.gturbo"), "{message}");
    }
    pair.say(r#"{"request":"cancel","turn":1}"#);
    pair.say(r#"{"request":"unload"}"#);
    let unloaded = Report::Unloaded {
        troubles: Vec::new(),
    };
    assert_eq!(pair.hear(), unloaded);
    pair.say(r#"{"request":"shutdown"}"#);
    pair.service
        .join()
        .expect("no panic")
        .expect("it ended well");
}

#[test]
fn a_service_hears_that_its_owner_is_gone() {
    for unfinished in ["", "{\"request\":"] {
        let mut pair = Pair::greeted();
        let mut requests = pair.requests.take().expect("an owner");
        requests
            .write_all(unfinished.as_bytes())
            .expect("the service reads");
        drop(requests);
        pair.orphaned.recv_timeout(PATIENCE).expect("it is heard");
    }
    // Also behind nonsense, which it does not read on.
    let mut pair = Pair::greeted();
    pair.say("what?");
    assert!(matches!(pair.hear(), Report::Failed { .. }));
    pair.say("what?");
    drop(pair.requests.take());
    pair.orphaned.recv_timeout(PATIENCE).expect("it is heard");
}

/// Scripts that are no decode service, or one that dies.
#[cfg(unix)]
mod impostors {
    use super::*;
    use crate::{Program, Service, ServiceError};
    use ouzel::Cancel;

    const HELLO: &str = r#"echo '{"report":"hello","protocol":1,"version":"0"}'; read hello"#;

    fn start(script: &str) -> Result<Service, ServiceError> {
        let program = Program {
            file: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script.to_owned()],
        };
        program.start()
    }

    /// The turn ends with a service that is lost; what it says.
    #[track_caller]
    fn lost(script: &str) -> String {
        let (sender, gone) = channel();
        let mut service = start(&format!("{HELLO}; read turn; {script}")).expect("a hello");
        service.on_loss(Box::new(move || sender.send(()).expect("somebody waits")));
        let mut pieces = Vec::new();
        let error = service
            .answer(generate(), &Cancel::new(), &mut |step| pieces.push(step))
            .expect_err("it is lost");
        assert!(matches!(error, ServiceError::Lost(_)), "{error}");
        assert!(service.is_lost());
        gone.recv_timeout(PATIENCE).expect("it is told");
        // Whoever asks late is told at once.
        let (sender, gone) = channel();
        service.on_loss(Box::new(move || sender.send(()).expect("somebody waits")));
        gone.recv_timeout(PATIENCE).expect("it is told");
        error.to_string()
    }

    #[test]
    fn who_speaks_another_protocol_is_not_asked() {
        for (script, says) in [
            ("exit 3", "ended with code 3"),
            ("echo broken >&2; exit 3", "it said: broken"),
            (
                r#"echo '{"report":"hello","protocol":9,"version":"7.1"}'; cat"#,
                "7.1",
            ),
            ("echo nonsense; cat", "not in its protocol"),
            (r#"echo '{"report":"unloaded"}'; cat"#, "out of turn"),
        ] {
            let error = start(script).err().expect("it is refused").to_string();
            assert!(error.contains(says), "{script}: {error}");
        }
        let nowhere = Program {
            file: "/nowhere/ouzel".into(),
            args: Vec::new(),
        };
        assert!(matches!(nowhere.start(), Err(ServiceError::Start(_))));
    }

    #[test]
    fn a_death_is_told_with_its_cause() {
        assert!(lost("kill -9 $$").contains("signal 9: the system may have been out of memory"));
        assert!(lost("kill -6 $$").contains("signal 6"));
        let said = lost("printf 'one\\ntwo\\nnote: run with\\n' >&2; exit 101");
        assert!(
            said.contains("code 101; it said: one two; the next"),
            "{said}"
        );
        assert!(
            lost(r#"echo '{"report":"token","piece":{"text":"a"}}'; exit 0"#).contains("code 0")
        );
        assert!(lost("echo what; cat").contains("not in its protocol"));
        assert!(lost(r#"echo '{"report":"unloaded"}'; cat"#).contains("out of turn"));
        // One that closes its pipes and stays is ended.
        assert!(lost("exec >&- 2>&-; exec sleep 600").contains("stopped answering"));
    }

    #[test]
    fn a_turn_that_went_wrong_leaves_the_service() {
        let ready = r#"echo '{"report":"ready","context":1,"memory_bytes":2}'"#;
        let script = format!(
            "{HELLO}; read turn; echo '{{\"report\":\"failed\",\"message\":\"no\"}}'; {ready}; read turn; read cancel; \
             echo \"$cancel\" >&2; {ready}; read unload; echo '{{\"report\":\"unloaded\",\"troubles\":[\"full\"]}}'; read shutdown; exit 0"
        );
        let mut service = start(&script).expect("a hello");
        let failed = service.answer(generate(), &Cancel::new(), &mut |_| {});
        assert!(matches!(failed, Err(ServiceError::Failed(message)) if message == "no"));
        // A turn that is cancelled is said to be, once.
        let cancel = Cancel::new();
        cancel.cancel();
        service
            .answer(generate(), &cancel, &mut |_| {})
            .expect("an answer");
        assert!(!service.is_lost());
        // What it could not keep is heard before it is gone.
        assert!(service.take_troubles().is_empty());
        service.put_away();
        assert_eq!(service.take_troubles(), ["full"]);
        drop(service);
    }
}
