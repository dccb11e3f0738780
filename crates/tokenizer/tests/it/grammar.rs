//! Masked sampling: whatever is drawn at random from what a constraint allows must have the shape that was asked for.

use crate::data::{DEMO, REAL, Random};
use ouzel_tokenizer::grammar::{Checker, Constraint, Demand, GrammarError, Grammars};
use ouzel_tokenizer::{Event, OutputOptions, OutputParser, Tokenizer, Tool};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

static REAL_GRAMMARS: LazyLock<Grammars> =
    LazyLock::new(|| Grammars::new(&REAL).expect("Gemma's control tokens"));
pub static DEMO_GRAMMARS: LazyLock<Grammars> =
    LazyLock::new(|| Grammars::new(&DEMO).expect("the demo's control tokens"));

fn models() -> [(&'static str, &'static Tokenizer, &'static Grammars); 2] {
    [
        ("demo", &*DEMO, &*DEMO_GRAMMARS),
        ("real", &*REAL, &*REAL_GRAMMARS),
    ]
}

/// Tokens of one drawn answer.
const MAX_TOKENS: usize = 600;

pub fn allows(mask: &[u32], id: u32) -> bool {
    mask[id as usize / 32] & 1 << (id % 32) != 0
}

/// Draws an answer. Random tokens are long strings of anything, so once it is long, tokens that end things are preferred.
fn draw(tokenizer: &Tokenizer, constraint: &mut Constraint, random: &mut Random) -> Vec<u32> {
    let closing: Vec<u32> = [
        "<|\"|>",
        "\"",
        "}",
        "]",
        "\"}",
        "}}",
        "<tool_call|>",
        "<turn|>",
    ]
    .iter()
    .filter_map(|text| tokenizer.id_of(text))
    .collect();
    let mut ids = Vec::new();
    while !constraint.is_finished() {
        assert!(
            ids.len() < MAX_TOKENS,
            "{:?}",
            tokenizer.decode(&ids, false)
        );
        let mask = constraint.allowed().expect("a mask").to_vec();
        let allowed: Vec<u32> = (0..tokenizer.vocab_size() as u32)
            .filter(|id| allows(&mask, *id))
            .collect();
        assert!(!allowed.is_empty());
        let ends: Vec<u32> = closing
            .iter()
            .copied()
            .filter(|id| allows(&mask, *id))
            .collect();
        let from = if !ends.is_empty() && random.below(40) < ids.len() {
            &ends
        } else {
            &allowed
        };
        let id = from[random.below(from.len())];
        // A thought may always begin; here none does.
        if Some(id) == tokenizer.id_of("<|channel>") {
            continue;
        }
        constraint.accept(id);
        assert_eq!(
            constraint.error(),
            None,
            "{:?}",
            tokenizer.decode(&ids, false)
        );
        ids.push(id);
    }
    ids
}

fn stop_ids(tokenizer: &Tokenizer) -> Vec<u32> {
    ["<turn|>", "<eos>", "<|tool_response>"]
        .iter()
        .filter_map(|name| tokenizer.id_of(name))
        .collect()
}

/// A call's name and arguments.
type Call = (String, Map<String, Value>);

/// The answer's text and its calls.
fn parsed(tokenizer: &Tokenizer, ids: &[u32], tools: &[Tool]) -> (String, Vec<Call>) {
    let options = OutputOptions {
        stop_ids: stop_ids(tokenizer),
        stop_strings: Vec::new(),
        tools: tools.iter().map(|tool| tool.name.clone()).collect(),
    };
    let mut parser = OutputParser::new(tokenizer, &options, &[]);
    let (mut text, mut calls) = (String::new(), Vec::new());
    let mut sink = |event: Event<'_>| match event {
        Event::Answer(piece) => text.push_str(piece),
        Event::ToolCall {
            name, arguments, ..
        } => calls.push((name.to_owned(), arguments.clone())),
        Event::Thinking(_) | Event::Stop(_) => {}
    };
    ids.iter().for_each(|id| parser.push(*id, &mut sink));
    parser.finish(&mut sink);
    (text, calls)
}

/// Whether a value fulfils a schema; as much of JSON schema as the tests use.
fn fulfils(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(map) = schema else {
        return schema == &Value::Bool(true);
    };
    map.iter()
        .all(|(keyword, expected)| match keyword.as_str() {
            "$ref" => {
                let target = root.pointer(&expected.as_str().expect("a reference")[1..]);
                fulfils(root, target.expect("a target"), value)
            }
            "type" => match expected {
                Value::Array(kinds) => kinds.iter().any(|kind| is_of(kind, value)),
                kind => is_of(kind, value),
            },
            "enum" => expected.as_array().expect("a list").contains(value),
            "const" => expected == value,
            "anyOf" | "oneOf" => {
                let list = expected.as_array().expect("a list");
                list.iter().any(|one| fulfils(root, one, value))
            }
            "allOf" => {
                let list = expected.as_array().expect("a list");
                list.iter().all(|one| fulfils(root, one, value))
            }
            "properties" => expected
                .as_object()
                .expect("a map")
                .iter()
                .all(|(name, one)| {
                    value
                        .get(name)
                        .is_none_or(|value| fulfils(root, one, value))
                }),
            "required" => {
                let mut names = expected.as_array().expect("a list").iter();
                value.as_object().is_none_or(|value| {
                    names.all(|name| value.contains_key(name.as_str().expect("a name")))
                })
            }
            "additionalProperties" => value.as_object().is_none_or(|entries| {
                entries.iter().all(|(name, one)| {
                    map.get("properties")
                        .and_then(|known| known.get(name))
                        .is_some()
                        || fulfils(root, expected, one)
                })
            }),
            "items" => value
                .as_array()
                .is_none_or(|items| items.iter().all(|item| fulfils(root, expected, item))),
            "$defs" | "description" | "title" | "default" => true,
            limit => is_within(limit, expected, value),
        })
}

/// Whether a value keeps to a limit. Limits of other types do not concern it.
fn is_within(limit: &str, expected: &Value, value: &Value) -> bool {
    match limit {
        "minItems" => value
            .as_array()
            .is_none_or(|items| items.len() as u64 >= expected.as_u64().expect("a count")),
        "maxItems" => value
            .as_array()
            .is_none_or(|items| items.len() as u64 <= expected.as_u64().expect("a count")),
        "minLength" => value
            .as_str()
            .is_none_or(|text| text.chars().count() as u64 >= expected.as_u64().expect("a count")),
        "maxLength" => value
            .as_str()
            .is_none_or(|text| text.chars().count() as u64 <= expected.as_u64().expect("a count")),
        "minimum" => value
            .as_f64()
            .is_none_or(|number| number >= expected.as_f64().expect("a number")),
        "maximum" => value
            .as_f64()
            .is_none_or(|number| number <= expected.as_f64().expect("a number")),
        // The one pattern that the tests use.
        "pattern" => value.as_str().is_none_or(|text| {
            let (letters, digits) = text.split_once('-').unwrap_or(("", ""));
            letters.len() == 2
                && letters.chars().all(|c| c.is_ascii_uppercase())
                && !digits.is_empty()
                && digits.chars().all(|c| c.is_ascii_digit())
        }),
        other => panic!("the checker does not know {other}"),
    }
}

fn is_of(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "number" => value.is_number(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        other => panic!("no type: {other}"),
    }
}

fn schemas() -> Vec<Value> {
    vec![
        json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 14}}, "required": ["city", "days"], "additionalProperties": false}),
        json!({"type": "object", "properties": {"unit": {"type": "string", "enum": ["celsius", "fahrenheit", ""]}, "why": {"type": ["string", "null"], "maxLength": 20}, "deep": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "boolean"}}, "required": ["y"], "additionalProperties": false}}, "additionalProperties": false}),
        json!({"type": "object", "properties": {"tree": {"$ref": "#/$defs/node"}}, "required": ["tree"], "additionalProperties": false, "$defs": {"node": {"type": "object", "properties": {"label": {"type": "string", "minLength": 1, "maxLength": 4}, "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}}, "required": ["label"], "additionalProperties": false}}}),
        json!({"type": "object", "properties": {"shape": {"anyOf": [{"type": "object", "properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"], "additionalProperties": false}, {"type": "object", "properties": {"kind": {"const": "box"}, "w": {"type": "integer"}}, "required": ["kind", "w"], "additionalProperties": false}, {"type": "null"}]}, "code": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"}}, "required": ["shape"], "additionalProperties": false}),
        json!({"type": "object", "properties": {"items": {"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 2, "maxItems": 3}, "counts": {"type": "object", "additionalProperties": {"type": "integer"}}, "two words": {"type": "boolean"}}, "required": ["two words", "items"], "additionalProperties": false}),
        json!({"type": "object"}),
    ]
}

#[test]
fn json_that_is_drawn_at_random_fulfils_its_schema() {
    for (model, tokenizer, grammars) in models() {
        let mut random = Random::new(&format!("{model} json"));
        for (i, schema) in schemas().into_iter().enumerate() {
            for _ in 0..6 {
                let demand = Demand::JsonSchema(schema.clone());
                let mut constraint = grammars.compile(tokenizer, &demand).expect("it compiles");
                let ids = draw(tokenizer, &mut constraint, &mut random);
                let (text, calls) = parsed(tokenizer, &ids, &[]);
                assert_eq!(calls.len(), 0);
                let value: Value = match serde_json::from_str(&text) {
                    Ok(value) => value,
                    // Of a number's digits JSON has no limit, but this parser's numbers do.
                    Err(e) if e.to_string().contains("out of range") => continue,
                    Err(e) => panic!("{model}, schema {i}: {e}: {text:?}"),
                };
                assert!(
                    fulfils(&schema, &schema, &value),
                    "{model}, schema {i}: {text}"
                );
            }
        }
        let mut constraint = grammars
            .compile(tokenizer, &Demand::JsonObject)
            .expect("it compiles");
        let (text, _) = parsed(
            tokenizer,
            &draw(tokenizer, &mut constraint, &mut random),
            &[],
        );
        if let Err(e) = serde_json::from_str::<Map<String, Value>>(&text) {
            assert!(e.to_string().contains("out of range"), "{e}: {text}");
        }
    }
}

fn strict_tools() -> Vec<Tool> {
    let tool = |(i, schema)| Tool {
        name: format!("tool_{i}"),
        description: None,
        parameters: Some(schema),
        strict: true,
    };
    let mut tools: Vec<Tool> = schemas().into_iter().enumerate().map(tool).collect();
    tools.push(Tool {
        name: "now".to_owned(),
        ..Tool::default()
    });
    tools
}

fn demand(tools: &[Tool], only: Option<&str>) -> Demand {
    Demand::Tools {
        tools: tools.to_vec(),
        at_least_one: true,
        only: only.map(str::to_owned),
        parallel: true,
    }
}

#[test]
fn calls_that_are_drawn_at_random_are_read_and_fulfil_their_schema() {
    let tools = strict_tools();
    for (model, tokenizer, grammars) in models() {
        let mut random = Random::new(&format!("{model} calls"));
        let names = tools.iter().map(|tool| Some(tool.name.as_str()));
        for only in names.chain([None; 6]) {
            for _ in 0..5 {
                let mut constraint = grammars
                    .compile(tokenizer, &demand(&tools, only))
                    .unwrap_or_else(|e| panic!("{only:?}: {e}"));
                let ids = draw(tokenizer, &mut constraint, &mut random);
                let (text, calls) = parsed(tokenizer, &ids, &tools);
                let written = tokenizer.decode(&ids, false);
                assert_eq!(text, "", "{model}: {written}");
                assert!(!calls.is_empty(), "{model}: {written}");
                for (name, arguments) in calls {
                    assert!(only.is_none_or(|only| only == name), "{model}: {written}");
                    let tool = tools.iter().find(|tool| tool.name == name).expect("a tool");
                    let schema = tool
                        .parameters
                        .clone()
                        .unwrap_or_else(|| json!({"type": "object"}));
                    let arguments = Value::Object(arguments);
                    assert!(
                        fulfils(&schema, &schema, &arguments),
                        "{model}, {name}: {written} read as {arguments}"
                    );
                }
            }
        }
    }
}

#[test]
fn json_or_calls_that_are_drawn_at_random_are_one_of_both() {
    let tools = strict_tools();
    let schema = json!({
        "type": "object", "properties": { "kind": { "enum": ["bird", "fish"] }, "n": { "type": "integer" } },
        "required": ["kind"], "additionalProperties": false,
    });
    let demand = Demand::JsonOrTools {
        schema: schema.clone(),
        tools: tools.clone(),
        parallel: true,
    };
    for (model, tokenizer, grammars) in models() {
        let mut random = Random::new(&format!("{model} JSON or calls"));
        let (mut n_json, mut n_calls) = (0, 0);
        for _ in 0..40 {
            let constraint = grammars.compile(tokenizer, &demand);
            let mut constraint = constraint.expect("it compiles");
            let opens = ["<|tool_call>", "{"].map(|text| tokenizer.id_of(text).expect("a token"));
            let mask = constraint.allowed().expect("a mask");
            assert!(opens.iter().all(|id| allows(mask, *id)), "{model}");
            // Among tokens that begin JSON or a call by chance, the mark of a call is one of few.
            let first = opens[random.below(2)];
            constraint.accept(first);
            let mut ids = vec![first];
            ids.extend(draw(tokenizer, &mut constraint, &mut random));
            let written = tokenizer.decode(&ids, false);
            let (text, calls) = parsed(tokenizer, &ids, &tools);
            if calls.is_empty() {
                let value: Value = serde_json::from_str(&text).expect("JSON");
                assert!(fulfils(&schema, &schema, &value), "{model}: {written}");
                n_json += 1;
            } else {
                assert_eq!(text, "", "{model}: {written}");
                n_calls += 1;
            }
        }
        assert!(n_json > 0 && n_calls > 0, "{model}: {n_json}, {n_calls}");
    }
}

#[test]
fn thinking_is_free_and_the_grammar_begins_behind_it() {
    let (tokenizer, grammars) = (&*DEMO, &*DEMO_GRAMMARS);
    let id = |name: &str| tokenizer.id_of(name).expect("a control token");
    let mut constraint = grammars
        .compile(tokenizer, &Demand::JsonObject)
        .expect("it compiles");
    let brace = tokenizer.id_of("{").expect("a brace");
    let mask = constraint.allowed().expect("a mask");
    assert!(allows(mask, id("<|channel>")) && allows(mask, brace));
    assert!(!allows(mask, id("<turn|>")));
    constraint.accept(id("<|channel>"));
    for piece in tokenizer.encode("thought\nanything } at all") {
        assert_eq!(constraint.allowed(), None);
        constraint.accept(piece);
    }
    constraint.accept(id("<channel|>"));
    let mask = constraint.allowed().expect("a mask");
    assert!(allows(mask, brace) && !allows(mask, id("<|channel>")));
    // What the prompt says of a thought counts too.
    for (prompt, is_free) in [
        ("<|turn>model\n<|channel>thought\n", true),
        ("<|turn>model\n<|channel>thought\n<channel|>", false),
        ("<|channel>x<channel|><turn|><|turn>model\n", false),
    ] {
        let mut constraint = grammars
            .compile(tokenizer, &Demand::JsonObject)
            .expect("it compiles");
        constraint.follow(&tokenizer.encode(prompt));
        assert_eq!(constraint.allowed().is_none(), is_free, "{prompt:?}");
    }
    // Behind a tool's answer the model may think again.
    let mut constraint = grammars
        .compile(tokenizer, &Demand::JsonObject)
        .expect("it compiles");
    constraint.follow(&tokenizer.encode("<channel|><|tool_response>x<tool_response|>"));
    let mask = constraint.allowed().expect("a mask");
    assert!(allows(mask, id("<|channel>")));
}

#[test]
fn an_answer_that_need_not_call_is_free_up_to_its_calls() {
    let (tokenizer, grammars) = (&*DEMO, &*DEMO_GRAMMARS);
    let tools = strict_tools();
    let free = |tools: &[Tool]| Demand::Tools {
        tools: tools.to_vec(),
        at_least_one: false,
        only: None,
        parallel: true,
    };
    let mut constraint = grammars
        .compile(tokenizer, &free(&tools))
        .expect("it compiles");
    let written = "Well.<|tool_call>call:now{}<tool_call|>And<|tool_call>call:tool_0{city:<|\"|>x<|\"|>,days:3}<tool_call|>.";
    let mut bound = 0;
    for id in tokenizer.encode(written) {
        if let Some(mask) = constraint.allowed() {
            assert!(allows(mask, id), "{:?}", tokenizer.token(id));
            bound += 1;
        }
        constraint.accept(id);
    }
    assert!(bound > 10, "{bound}");
    assert_eq!(constraint.allowed(), None);
    constraint.accept(tokenizer.id_of("<turn|>").expect("a control token"));
    assert!(constraint.is_finished());
    // Without a strict tool there is nothing to hold to.
    let lax = [Tool {
        strict: false,
        ..tools[0].clone()
    }];
    let mut constraint = grammars
        .compile(tokenizer, &free(&lax))
        .expect("it compiles");
    constraint.accept(tokenizer.id_of("<|tool_call>").expect("a control token"));
    assert_eq!(constraint.allowed(), None);
}

#[test]
fn what_cannot_be_enforced_is_named() {
    let grammars = &*DEMO_GRAMMARS;
    let unsupported = |keyword: &str, path: &str| GrammarError::Unsupported {
        keyword: keyword.to_owned(),
        path: path.to_owned(),
    };
    let object = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    for (schema, keyword) in [
        (json!({"not": {}}), "not"),
        (json!({"type": "array", "uniqueItems": true}), "uniqueItems"),
        (json!({"type": "string", "format": "color"}), "format"),
        (json!({"$ref": "https://example.com/x"}), "$ref"),
        (
            json!({"type": "object", "propertyNames": {}}),
            "propertyNames",
        ),
        (json!({"if": {}, "then": {}}), "if"),
    ] {
        let error = compiled(grammars, &Demand::JsonSchema(object(schema)));
        let error = error.expect_err("it is refused");
        assert_eq!(error, unsupported(keyword, "/properties/a"));
    }
    for (schema, keyword) in [
        (json!({"not": {}}), "not"),
        (json!({"type": "array", "prefixItems": []}), "prefixItems"),
        (json!({"type": "string", "pattern": "x"}), "pattern"),
        (json!({"type": "string", "pattern": "^a|b$"}), "pattern"),
        (
            json!({"allOf": [{"type": "string"}, {"minLength": 1}]}),
            "allOf",
        ),
        (
            json!({"type": "object", "patternProperties": {}}),
            "patternProperties",
        ),
        (json!({"type": "strange"}), "type"),
        (json!({"type": "array", "maxItems": 1_000_000}), "maxItems"),
    ] {
        let mut tool = Tool {
            name: "f".to_owned(),
            parameters: Some(object(schema)),
            strict: true,
            ..Tool::default()
        };
        let error = compiled(grammars, &demand(&[tool.clone()], None));
        let error = error.expect_err("it is refused");
        assert_eq!(error, unsupported(keyword, "/f/properties/a"));
        // Whoever does not insist gets a call all the same.
        tool.strict = false;
        compiled(grammars, &demand(&[tool], None)).expect("any arguments will do");
    }
    let none = compiled(grammars, &demand(&strict_tools(), Some("other")));
    assert_eq!(
        none.expect_err("no such tool"),
        GrammarError::Tool("other".to_owned())
    );
    let false_schema = compiled(grammars, &Demand::JsonSchema(json!(false)));
    assert!(matches!(false_schema, Err(GrammarError::Schema(_))));
}

#[test]
fn what_can_be_enforced_is_known_without_the_models_tokens() {
    let grammars = &*DEMO_GRAMMARS;
    // What llguidance finds out by itself.
    for schema in [
        json!({"type": "integer", "minimum": 2, "maximum": 1}),
        json!({"$ref": "#/$defs/nowhere"}),
        json!({"type": "string", "pattern": "("}),
        json!({"type": 7}),
    ] {
        let error = compiled(grammars, &Demand::JsonSchema(schema.clone()));
        assert!(error.is_err(), "{schema}");
    }
    for schema in schemas() {
        let (tools, parallel) = (strict_tools(), true);
        for demand in [
            Demand::JsonSchema(schema.clone()),
            Demand::JsonOrTools {
                schema,
                tools,
                parallel,
            },
        ] {
            compiled(grammars, &demand).expect("it compiles");
        }
    }
    compiled(grammars, &Demand::JsonObject).expect("it compiles");
    compiled(grammars, &demand(&strict_tools(), None)).expect("it compiles");
}

/// What compiling gives, which a check without the model's tokens foresees to the word.
#[track_caller]
fn compiled(grammars: &Grammars, demand: &Demand) -> Result<(), GrammarError> {
    static CHECKER: LazyLock<Checker> = LazyLock::new(Checker::new);
    let compiled = grammars.compile(&DEMO, demand).map(drop);
    assert_eq!(CHECKER.check(demand).map(drop), compiled, "{demand:?}");
    compiled
}

#[test]
fn white_space_cannot_go_on() {
    let (tokenizer, grammars) = (&*DEMO, &*DEMO_GRAMMARS);
    let spaces: Vec<u32> = (0..tokenizer.vocab_size() as u32)
        .filter(|id| {
            let bytes = tokenizer.token_bytes(*id).unwrap_or_default();
            !bytes.is_empty() && bytes.iter().all(u8::is_ascii_whitespace)
        })
        .collect();
    assert!(spaces.len() > 2);
    // Wherever JSON would allow white space.
    for begun in [
        "",
        "{",
        "{\"a\"",
        "{\"a\":",
        "{\"a\":1",
        "{\"a\":1,",
        "{\"a\":[",
        "{\"a\":[1,",
        "{\"a\":[1]",
    ] {
        let mut constraint = grammars
            .compile(tokenizer, &Demand::JsonObject)
            .expect("it compiles");
        for id in tokenizer.encode(begun) {
            constraint.accept(id);
        }
        assert_eq!(constraint.error(), None, "{begun}");
        let mask = constraint.allowed().expect("a mask");
        let allowed = spaces.iter().find(|id| allows(mask, **id));
        assert_eq!(allowed, None, "{begun}");
    }
}

#[test]
fn a_token_has_its_bytes() {
    let bytes = |name: &str| REAL.token_bytes(REAL.id_of(name).expect("a token"));
    assert_eq!(bytes("<0xF0>"), Some(vec![0xf0]));
    assert_eq!(bytes("\u{2581}the"), Some(b" the".to_vec()));
    assert_eq!(bytes("<turn|>"), Some(b"<turn|>".to_vec()));
    assert_eq!(REAL.token_bytes(u32::MAX), None);
}

/// What `docs/clients.md` counts for the grammars of Gemma's vocabulary.
const REAL_BYTES: usize = 39_954_348;

#[test]
fn the_trie_is_as_large_as_the_documents_say() {
    let bytes = Grammars::new(&REAL).expect("Gemma's").bytes();
    println!("{bytes} bytes for the grammars of the real vocabulary");
    assert_eq!(bytes, REAL_BYTES);
}

#[test]
fn the_trie_is_built_when_it_is_needed() {
    let grammars = Grammars::new(&DEMO).expect("the demo's control tokens");
    assert!(!grammars.is_built() && grammars.bytes() > 0);
    grammars
        .compile(&DEMO, &Demand::JsonObject)
        .expect("it compiles");
    assert!(grammars.is_built());
    fn is_send<T: Send>() {}
    is_send::<Constraint>();
    is_send::<Grammars>();
}
