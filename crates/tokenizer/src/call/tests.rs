//! Calls as models write them, and what must hold for any text.

use super::{CLOSES, OPENS, Piece, ToolCallParser};
use serde_json::{Value, json};

const TOOLS: [&str; 4] = ["get_weather", "now", "mcp__files__read", "search-web"];

#[derive(Debug, Clone, PartialEq)]
enum Seen {
    Text(String),
    /// Name, arguments, and what was written.
    Call(String, Value, String),
}

fn see(seen: &mut Vec<Seen>, piece: Piece<'_>) {
    match (piece, seen.last_mut()) {
        (Piece::Text(text), Some(Seen::Text(before))) => before.push_str(text),
        (Piece::Text(text), _) => seen.push(Seen::Text(text.to_owned())),
        (
            Piece::Call {
                name,
                arguments,
                raw,
            },
            _,
        ) => seen.push(Seen::Call(
            name.to_owned(),
            Value::Object(arguments.clone()),
            raw.to_owned(),
        )),
    }
}

/// Feeds a text in pieces of which each is at most so long, with its marks as marks.
fn parse(text: &str, mut piece_chars: impl FnMut() -> usize) -> Vec<Seen> {
    let tools = TOOLS.map(str::to_owned);
    let mut parser = ToolCallParser::new(&tools);
    let mut seen = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let mut sink = |piece: Piece<'_>| see(&mut seen, piece);
        if let Some(after) = rest.strip_prefix(OPENS) {
            parser.open(&mut sink);
            rest = after;
        } else if let Some(after) = rest.strip_prefix(CLOSES).filter(|_| parser.is_marked()) {
            parser.close(&mut sink);
            rest = after;
        } else {
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let marks = [OPENS, CLOSES].iter();
            let mark = marks.filter_map(|mark| rest[first..].find(mark)).min();
            let cut = rest.char_indices().nth(piece_chars().max(1));
            let ends = [mark.map(|at| first + at), cut.map(|(at, _)| at)];
            let end = ends.into_iter().flatten().min().unwrap_or(rest.len());
            parser.push(&rest[..end], &mut sink);
            rest = &rest[end..];
        }
    }
    parser.finish(&mut |piece| see(&mut seen, piece));
    seen
}

fn bytes(seen: &[Seen]) -> String {
    seen.iter()
        .map(|one| match one {
            Seen::Text(text) => text.as_str(),
            Seen::Call(_, _, raw) => raw.as_str(),
        })
        .collect()
}

/// Checks the calls in a text, whole and letter by letter, and the text around them.
fn check(text: &str, calls: &[(&str, Value)], around: &str) {
    for most in [usize::MAX, 1, 3] {
        let seen = parse(text, || most);
        let found: Vec<(&str, Value)> = seen
            .iter()
            .filter_map(|one| match one {
                Seen::Call(name, arguments, _) => Some((name.as_str(), arguments.clone())),
                Seen::Text(_) => None,
            })
            .collect();
        assert_eq!(found, calls, "{text:?} in pieces of {most}");
        let texts: String = seen
            .iter()
            .filter_map(|one| match one {
                Seen::Text(text) => Some(text.as_str()),
                Seen::Call(..) => None,
            })
            .collect();
        assert_eq!(texts, around, "{text:?} in pieces of {most}");
        assert_eq!(bytes(&seen), text, "in pieces of {most}");
    }
}

/// One call between marks.
fn check_call(inside: &str, name: &str, arguments: Value) {
    check(
        &format!("{OPENS}{inside}{CLOSES}"),
        &[(name, arguments)],
        "",
    );
}

#[test]
fn calls_as_the_template_writes_them_are_read() {
    check_call("call:now{}", "now", json!({}));
    check_call(
        "call:get_weather{city:<|\"|>Paris, \"F\" {1}\nx: 'y'<|\"|>,days:3,list:[<|\"|>a<|\"|>,1,false],n:null,obj:{k:<|\"|>v<|\"|>,z:[1]},ok:true,r:-0.5e3}",
        "get_weather",
        json!({"city": "Paris, \"F\" {1}\nx: 'y'", "days": 3, "list": ["a", 1, false], "n": null, "obj": {"k": "v", "z": [1]}, "ok": true, "r": -0.5e3}),
    );
    check_call("call:other{a:<|\"|><|\"|>}", "other", json!({"a": ""}));
}

#[test]
fn calls_that_drift_are_read() {
    let paris = || json!({"city": "Paris", "days": 3});
    for inside in [
        "call:get_weather(city=\"Paris\", days=3)",
        "call:get_weather{city='Paris',days=3}",
        "call:get_weather{\"city\": \"Paris\", \"days\": 3}",
        "call:get_weather{'city': 'Paris', 'days': 3,}",
        "call:get_weather({\"city\": \"Paris\", \"days\": 3})",
        "call:get_weather{city:Paris,days:3}",
        "call: get_weather {\n  city: Paris,\n  days: 3\n}\n",
        "get_weather{city:<|\"|>Paris<|\"|>,days:3}",
        "call:<|\"|>get_weather<|\"|>{city:<|\"|>Paris<|\"|>,days:3}",
        "call:get-weather{city:<|\"|>Paris<|\"|>,days:3}",
        "call:GetWeather{city:<|\"|>Paris<|\"|>,days:3}",
        "call:functions.get_weather{city:<|\"|>Paris<|\"|>,days:3}",
        "call:default_api:get_weather{city:<|\"|>Paris<|\"|>,days:3}",
        "call:get_weather{city:<|\"|>Paris<|\"|>,days:3",
        "call:get_weather{city:<|\"|>Paris<|\"|> days:3}",
        "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3}}",
        "[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\", \"days\": 3}}]",
        "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Paris\\\", \\\"days\\\": 3}\"}}",
        "{'name': 'get_weather', 'parameters': {'city': 'Paris', 'days': 3}}",
    ] {
        check_call(inside, "get_weather", paris());
    }
    check_call("call:files.read{}", "files.read", json!({}));
    check_call("call:mcp.files.read{}", "mcp__files__read", json!({}));
    check_call("call:now", "now", json!({}));
    check_call(
        "call:f{a:(b=1,c:(1,2))}",
        "f",
        json!({"a": {"b": 1, "c": [1, 2]}}),
    );
    check_call(
        "call:f{a:None,b:True,c:False}",
        "f",
        json!({"a": null, "b": true, "c": false}),
    );
    check_call(
        "call:f{t:'it's so',u:\"a\\n\\u00e9\\ud83d\\ude80\\d\"}",
        "f",
        json!({"t": "it's so", "u": "a\n\u{e9}\u{1f680}\\d"}),
    );
    check_call(
        "call:f{url:https://x.y/z?a=b,e:max(1, 2)}",
        "f",
        json!({"url": "https://x.y/z?a=b", "e": "max(1, 2)"}),
    );
}

#[test]
fn several_calls_follow_each_other() {
    let both = || [("now", json!({})), ("get_weather", json!({"city": "x"}))];
    let weather = "call:get_weather{city:<|\"|>x<|\"|>}";
    check(
        &format!("{OPENS}call:now{{}}{CLOSES}{OPENS}{weather}{CLOSES}"),
        &both(),
        "",
    );
    check(
        &format!("{OPENS}call:now{{}}, {weather}{CLOSES}"),
        &both(),
        "",
    );
    check(
        &format!("a{OPENS}call:now{{}}{OPENS}{weather}{CLOSES}b"),
        &both(),
        "ab",
    );
    check(&format!("call:now{{}}{weather}"), &both(), "");
    check(
        &format!("So: call:now{{}}\nand {weather}."),
        &both(),
        "So: \nand .",
    );
    check(
        &format!(
            "{OPENS}[{{\"name\":\"now\"}},{{\"name\":\"get_weather\",\"arguments\":{{\"city\":\"x\"}}}}]{CLOSES}"
        ),
        &both(),
        "",
    );
    check("{\"name\": \"now\"}", &both()[..1], "");
    check(
        "ok\n{\"name\":\"now\",\"arguments\":{}}\n",
        &both()[..1],
        "ok\n\n",
    );
}

#[test]
fn what_is_no_call_stays_text() {
    for text in [
        "call me: maybe {x}",
        "call:other{a:1}",
        "recall:now{}",
        "call:now {",
        "call:now{a:<|\"|>}",
        "{\"name\": \"other\", \"arguments\": {}}",
        "x {\"name\": \"now\", \"arguments\": {}}",
        "{\"name\": \"now\", \"arguments\": 3}",
        "call:now{a}",
        "call:now{a:}",
        &format!("{OPENS}{CLOSES}"),
        &format!("{OPENS}call:now{{a:<|\"|>x}}{CLOSES}"),
        &format!("{OPENS}call:now{{a:1"),
        &format!("{OPENS}call:now{CLOSES}")[..OPENS.len() + 8],
        &format!("{OPENS}a word{CLOSES}"),
        &format!("{OPENS}call:{}{{}}{CLOSES}", "n".repeat(300)),
        &format!(
            "{OPENS}call:f{{a:{}{}}}{CLOSES}",
            "[".repeat(200),
            "]".repeat(200)
        ),
    ] {
        check(text, &[], text);
    }
    // What follows a call, or precedes one, is not lost with it.
    check(
        &format!("{OPENS}call:now{{}}rest{CLOSES}!"),
        &[("now", json!({}))],
        &format!("rest{CLOSES}!"),
    );
    check("call:now{( call:now{}", &[], "call:now{( call:now{}");
    check("call call:now{}", &[("now", json!({}))], "call ");
}

#[test]
fn text_is_held_back_only_while_it_may_become_a_call() {
    let tools = TOOLS.map(str::to_owned);
    let mut parser = ToolCallParser::new(&tools);
    let mut seen = Vec::new();
    for (piece, expected) in [
        ("Let me c", "Let me "),
        ("al", ""),
        ("m", "calm"),
        (" call", " "),
        (":no", ""),
        (" x", "call:no x"),
        ("\n{", "\n"),
        ("\"nam", ""),
        ("ed\"", "{\"named\""),
    ] {
        seen.clear();
        parser.push(piece, &mut |piece| see(&mut seen, piece));
        assert_eq!(bytes(&seen), expected, "{piece:?}");
    }
}

/// Texts that cost hours if anything in them were looked at again and again.
#[test]
fn long_texts_are_read_in_one_pass() {
    for fragment in [
        "call:now{",
        "call:now{a:\"",
        "call:a.b.c.now.",
        "call",
        "{\"name\": \"now\",",
        "\n{\"name\": \"",
        "\" ",
        "'",
        "\\",
        "<|\"|>",
        "(",
        "(\"a\" ",
        "a:1,",
        "{a:[",
        " ",
    ] {
        for begin in ["", "call:now{", "call:now{a:", "call:now(\"", "[{\"name\":"] {
            let text = format!("{begin}{}", fragment.repeat((1 << 20) / fragment.len()));
            for is_marked in [false, true] {
                let mut parser = ToolCallParser::new(&TOOLS.map(str::to_owned));
                let mut n_bytes = 0;
                let mut sink = |piece: Piece<'_>| {
                    n_bytes += match piece {
                        Piece::Text(text) => text.len(),
                        Piece::Call { raw, .. } => raw.len(),
                    }
                };
                if is_marked {
                    parser.open(&mut sink);
                }
                let mut rest = text.as_str();
                while !rest.is_empty() {
                    // All of it is ASCII.
                    let (piece, after) = rest.split_at(rest.len().min(11));
                    parser.push(piece, &mut sink);
                    rest = after;
                }
                parser.close(&mut sink);
                parser.finish(&mut sink);
                let marks = if is_marked {
                    OPENS.len() + CLOSES.len()
                } else {
                    0
                };
                assert_eq!(n_bytes, text.len() + marks, "{begin:?} {fragment:?}");
            }
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

/// What calls are made of, and what breaks them.
const FRAGMENTS: [&str; 40] = [
    OPENS,
    CLOSES,
    "<|\"|>",
    "call:",
    "call",
    "now",
    "get_weather",
    "mcp.files:read",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ":",
    "=",
    ",",
    "\"",
    "'",
    "\\",
    " ",
    "\n",
    "city",
    "Paris",
    "1",
    "-0.5",
    "null",
    "true",
    "\u{e9}\u{1f680}",
    "{\"name\": \"now\"",
    "\"arguments\": {",
    "<|",
    "|>",
    "<",
    "\\u00e9",
    "call:now{",
    "call:get_weather(city=",
    "a:<|\"|>",
    ";",
    "_",
];

#[test]
fn any_split_gives_the_same_and_no_byte_is_lost() {
    let seed = std::env::var("OUZEL_SEED").map_or(20_261_130, |s| s.parse().expect("a number"));
    println!("calls: OUZEL_SEED={seed}");
    let mut random = Random(seed);
    let mut n_calls = 0;
    for _ in 0..20_000 {
        let text: String = (0..1 + random.below(24))
            .map(|_| FRAGMENTS[random.below(FRAGMENTS.len())])
            .collect();
        let whole = parse(&text, || usize::MAX);
        // A mark that closes nothing is no text for the parser; the test gives it as such.
        assert_eq!(bytes(&whole), text);
        assert_eq!(parse(&text, || 1), whole, "{text:?}");
        assert_eq!(parse(&text, || 1 + random.below(7)), whole, "{text:?}");
        n_calls += whole
            .iter()
            .filter(|one| matches!(one, Seen::Call(..)))
            .count();
    }
    println!("{n_calls} calls in 20000 texts");
    assert!(n_calls > 100, "{n_calls}");
}
