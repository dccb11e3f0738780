//! The output parser on the real tokenizer's ids.

use crate::data::{REAL, Random};
use ouzel_tokenizer::{Event, OutputOptions, OutputParser, StopReason};
use serde_json::{Value, json};

/// The text of neighbouring events of one kind, joined: how often a text is cut is not part of the contract.
#[derive(Debug, PartialEq, Clone)]
enum Seen {
    Answer(String),
    Thinking(String),
    Call(String, Value),
    Stop(StopReason),
}

use Seen::{Answer, Call, Stop, Thinking};

fn see(seen: &mut Vec<Seen>, event: Event<'_>) {
    match (event, seen.last_mut()) {
        (Event::Answer(text), Some(Answer(before)))
        | (Event::Thinking(text), Some(Thinking(before))) => before.push_str(text),
        (Event::Answer(text), _) => seen.push(Answer(text.to_owned())),
        (Event::Thinking(text), _) => seen.push(Thinking(text.to_owned())),
        (
            Event::ToolCall {
                name, arguments, ..
            },
            _,
        ) => seen.push(Call(name.to_owned(), Value::Object(arguments.clone()))),
        (Event::Stop(reason), _) => seen.push(Stop(reason)),
    }
}

const EOS: u32 = 1;
const TURN_CLOSES: u32 = 106;

fn options(stop_strings: &[&str]) -> OutputOptions {
    OutputOptions {
        stop_ids: vec![EOS, TURN_CLOSES, 50],
        stop_strings: stop_strings.iter().map(|s| (*s).to_owned()).collect(),
        tools: ["get_weather", "now"].map(str::to_owned).to_vec(),
    }
}

fn parse(prompt: &str, ids: &[u32], stop_strings: &[&str]) -> Vec<Seen> {
    let mut parser = OutputParser::new(&REAL, &options(stop_strings), &REAL.encode(prompt));
    let mut seen = Vec::new();
    for id in ids {
        parser.push(*id, &mut |event| see(&mut seen, event));
    }
    parser.finish(&mut |event| see(&mut seen, event));
    seen
}

fn check(prompt: &str, output: &str, stop_strings: &[&str], expected: &[Seen]) {
    assert_eq!(
        parse(prompt, &REAL.encode(output), stop_strings),
        expected,
        "{prompt:?} {output:?} {stop_strings:?}"
    );
}

fn answer(text: &str) -> Seen {
    Answer(text.to_owned())
}

fn thinking(text: &str) -> Seen {
    Thinking(text.to_owned())
}

fn call(name: &str, arguments: Value) -> Seen {
    Call(name.to_owned(), arguments)
}

const ASKED: &str = "<bos><|turn>user\nHi<turn|>\n<|turn>model\n";
const CLOSED: &str = "<bos><|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\n<channel|>";
const OPEN: &str = "<bos><|turn>user\nHi<turn|>\n<|turn>model\n<|channel>thought\n";
const STOP: Seen = Stop(StopReason::Token(TURN_CLOSES));

#[test]
fn thinking_and_answer_never_mix() {
    let thought = [thinking("one\ntwo"), answer("Answer.\n"), STOP];
    check(
        ASKED,
        "<|channel>thought\none\ntwo\n<channel|>Answer.\n<turn|>more",
        &[],
        &thought,
    );
    check(OPEN, "one\ntwo\n<channel|>Answer.\n<turn|>", &[], &thought);
    check(
        ASKED,
        "<|channel>thought\none\ntwo<channel|>Answer.\n<turn|>",
        &[],
        &thought,
    );
    check(CLOSED, "Answer.<turn|>", &[], &[answer("Answer."), STOP]);
    check(
        ASKED,
        "<|channel>thought\n<channel|>Answer.<turn|>",
        &[],
        &[answer("Answer."), STOP],
    );
    check(
        ASKED,
        "A<|channel>thought\nB\n\n<channel|>C",
        &[],
        &[answer("A"), thinking("B\n"), answer("C")],
    );
    // The output is cut while thinking: the newline stays, it may not have been the last one.
    check(ASKED, "<|channel>thought\nB\n", &[], &[thinking("B\n")]);
    check(
        ASKED,
        "<|channel>thought\nB<turn|>",
        &[],
        &[thinking("B"), STOP],
    );
    // Another channel's name is not swallowed.
    check(
        ASKED,
        "<|channel>thorough\nB<channel|>C",
        &[],
        &[thinking("thorough\nB"), answer("C")],
    );
    check(
        &(ASKED.to_owned() + "<|channel>"),
        "thought\nB<channel|>C",
        &[],
        &[thinking("B"), answer("C")],
    );
    check(
        &(OPEN.to_owned() + "so far"),
        " good<channel|>C",
        &[],
        &[thinking(" good"), answer("C")],
    );
    // A thought in an earlier turn says nothing about this one.
    check(
        &(OPEN.to_owned() + "x<turn|>\n<|turn>model\n"),
        "C",
        &[],
        &[answer("C")],
    );
}

#[test]
fn markers_spelled_as_text_stay_text() {
    let ids = REAL.encode_plain("<|channel>thought\nx<channel|><turn|>");
    assert_eq!(
        parse(CLOSED, &ids, &[]),
        [answer("<|channel>thought\nx<channel|><turn|>")]
    );
}

#[test]
fn a_call_is_known_from_its_first_marker() {
    let mut parser = OutputParser::new(&REAL, &options(&[]), &REAL.encode(CLOSED));
    let mut calling = Vec::new();
    for text in ["Wait.", "<|tool_call>", "call", "<tool_call|>"] {
        for id in REAL.encode(text) {
            parser.push(id, &mut |_| ());
        }
        calling.push(parser.is_calling());
    }
    assert_eq!(calling, [false, true, true, false]);
}

#[test]
fn tool_calls_come_whole() {
    let written = "call:get_weather{city:<|\"|>Paris<|\"|>,days:3}";
    let weather = || call("get_weather", json!({"city": "Paris", "days": 3}));
    let output = format!(
        "Wait.<|tool_call>{written}<tool_call|><|tool_call>call:now{{}}<tool_call|><|tool_response>"
    );
    let stop = Stop(StopReason::Token(50));
    let now = || call("now", json!({}));
    check(
        CLOSED,
        &output,
        &["Paris"],
        &[answer("Wait."), weather(), now(), stop],
    );
    // Complete, though the marker that closes it is missing.
    let output = format!("<|tool_call>{written}<turn|>");
    check(CLOSED, &output, &[], &[weather(), STOP]);
    check(CLOSED, &output[..output.len() - 7], &[], &[weather()]);
    // A call inside a thought that never closed: what follows is still thinking.
    check(
        OPEN,
        "a<|tool_call>call:now{}<tool_call|>c<channel|>d",
        &[],
        &[thinking("a"), now(), thinking("c"), answer("d")],
    );
    check(CLOSED, "a<tool_call|>b", &[], &[answer("ab")]);
}

#[test]
fn calls_without_an_opening_marker_are_found() {
    let written = "call:get_weather{city:<|\"|>a}, b<|\"|>}";
    let weather = || call("get_weather", json!({"city": "a}, b"}));
    let output = format!("So: {written}<tool_call|>Done.<turn|>");
    let seen = [answer("So: "), weather(), answer("Done."), STOP];
    check(CLOSED, &output, &["Paris"], &seen);
    // Whoever has no such tool speaks of one.
    check(CLOSED, "call:other{a:1}", &[], &[answer("call:other{a:1}")]);
    // Thinking may speak of anything.
    let seen = [thinking("call:now{}"), answer("x")];
    check(OPEN, "call:now{}<channel|>x", &[], &seen);
}

#[test]
fn what_is_no_call_is_text() {
    check(
        CLOSED,
        "<|tool_call>call:a{<turn|>",
        &[],
        &[answer("<|tool_call>call:a{"), STOP],
    );
    check(
        CLOSED,
        "<|tool_call>a<|tool_call>b<tool_call|>c",
        &[],
        &[answer("<|tool_call>a<|tool_call>b<tool_call|>c")],
    );
    check(
        OPEN,
        "a<|tool_call>b<tool_call|>c<channel|>d",
        &[],
        &[thinking("a<|tool_call>b<tool_call|>c"), answer("d")],
    );
    // Such a text is an answer, so a stop string counts in it.
    let text = |index| Stop(StopReason::Text(index));
    check(
        CLOSED,
        "<|tool_call>one END two<tool_call|>three",
        &["END"],
        &[answer("<|tool_call>one "), text(0)],
    );
    check(
        CLOSED,
        "call:now{ END<turn|>",
        &["END"],
        &[answer("call:now{ "), text(0)],
    );
}

#[test]
fn a_call_that_nobody_runs_is_forgotten() {
    let mut parser = OutputParser::new(&REAL, &options(&[]), &REAL.encode(CLOSED));
    let mut seen = Vec::new();
    for id in REAL.encode("Wait.<|tool_call>call:now") {
        parser.push(id, &mut |event| see(&mut seen, event));
    }
    parser.discard_call();
    parser.finish(&mut |event| see(&mut seen, event));
    assert_eq!(seen, [answer("Wait.")]);
}

#[test]
fn stop_strings_cut_the_answer_and_nothing_else() {
    let text = |index| Stop(StopReason::Text(index));
    check(CLOSED, "one END two", &["END"], &[answer("one "), text(0)]);
    check(CLOSED, "one EN", &["END"], &[answer("one EN")]);
    check(CLOSED, "END", &["END"], &[text(0)]);
    check(CLOSED, "aaab", &["aab"], &[answer("a"), text(0)]);
    check(CLOSED, "abcd", &["abcd", "bc"], &[answer("a"), text(1)]);
    check(CLOSED, "abcd", &["", "bcd", "abcd"], &[text(2)]);
    check(
        CLOSED,
        "so \u{1f680}\u{1f680}!",
        &["\u{1f680}!"],
        &[answer("so \u{1f680}"), text(0)],
    );
    check(
        ASKED,
        "<|channel>thought\nEND\n<channel|>x END",
        &["END"],
        &[thinking("END"), answer("x "), text(0)],
    );
    check(
        CLOSED,
        "EN<|channel>thought\nx\n<channel|>D",
        &["END"],
        &[answer("EN"), thinking("x"), answer("D")],
    );
    // A byte run that ends with the output may complete a stop string.
    let rocket = [0xf0, 0x9f, 0x9a, 0x80].map(|byte| {
        REAL.id_of(&format!("<0x{byte:02X}>"))
            .expect("a byte token")
    });
    let ids = [&REAL.encode("go")[..], &rocket, &[TURN_CLOSES]].concat();
    assert_eq!(parse(CLOSED, &ids, &["\u{1f680}"]), [answer("go"), text(0)]);
    assert_eq!(parse(CLOSED, &ids, &[]), [answer("go\u{1f680}"), STOP]);
}

#[test]
fn nothing_is_held_that_cannot_become_a_stop_string() {
    let mut parser = OutputParser::new(&REAL, &options(&["\n\nUser:"]), &[]);
    let mut seen = Vec::new();
    for (text, expected) in [
        ("Hello", "Hello"),
        ("\n\n", ""),
        ("Us", ""),
        ("ing", "\n\nUsing"),
        ("\n", ""),
        ("x", "\nx"),
    ] {
        seen.clear();
        REAL.encode(text)
            .iter()
            .for_each(|id| parser.push(*id, &mut |event| see(&mut seen, event)));
        let expected: &[Seen] = if expected.is_empty() {
            &[]
        } else {
            &[answer(expected)]
        };
        assert_eq!(seen, expected, "{text:?}");
    }
    assert_eq!(parser.stopped(), None);
}

#[test]
fn random_outputs_agree_with_a_search_of_the_whole_text() {
    let mut random = Random::new("output");
    for _ in 0..3_000 {
        // Ids of single letters and short runs: cut at random, not where the tokenizer would.
        let pieces: Vec<&str> = (0..40)
            .map(|_| random.pick(&["a", "b", "ab", "aa", "ba", "\u{e9}", " a", "bb"]))
            .collect();
        let ids: Vec<u32> = pieces.iter().flat_map(|piece| REAL.encode(piece)).collect();
        let text = pieces.concat();
        let stops: Vec<String> = (0..1 + random.below(3))
            .map(|_| {
                (0..2 + random.below(5))
                    .map(|_| random.pick(&["a", "b", "\u{e9}", " "]))
                    .collect()
            })
            .collect();
        let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
        // The stop string that ends first, the longest of those that end there.
        let ends = stops
            .iter()
            .enumerate()
            .filter_map(|(i, stop)| text.find(stop).map(|at| (at + stop.len(), at, i)));
        let mut expected = Vec::new();
        match ends.min() {
            Some((_, at, index)) => {
                expected.extend(Some(answer(&text[..at])).filter(|_| at > 0));
                expected.push(Stop(StopReason::Text(index)));
            }
            None => expected.push(answer(&text)),
        }
        assert_eq!(parse(CLOSED, &ids, &stops), expected, "{text:?} {stops:?}");
    }
}
