//! Tool declarations through the model's template: schemas of every kind are shown, and none costs a turn.

use crate::conversation::prompt_of;
use crate::data::Random;
use ouzel_tokenizer::{Tool, Warning};
use serde_json::{Map, Value, json};

/// The declaration of a tool with this schema, and what was simplified.
fn shown(parameters: Value) -> (String, Vec<(String, &'static str)>) {
    let (prompt, warnings) = prompt_of(&[Tool {
        name: "f".to_owned(),
        description: Some("d".to_owned()),
        parameters: Some(parameters),
        strict: false,
    }]);
    let (_, rest) = prompt
        .split_once("declaration:f{description:<|\"|>d<|\"|>,parameters:{")
        .unwrap_or_else(|| panic!("no declaration in {prompt}"));
    let (declaration, _) = rest.split_once("}<tool|>").expect("its end");
    let warnings = warnings.into_iter().map(|warning| match warning {
        Warning::Schema { path, what, .. } => (path, what),
        other => panic!("{other}"),
    });
    (declaration.replace("<|\"|>", "'"), warnings.collect())
}

/// Checks how one property is shown.
fn check(property: Value, expected: &str, warned: &[&str]) {
    let schema = json!({"type": "object", "properties": {"p": property}, "required": ["p"]});
    let (declaration, warnings) = shown(schema);
    assert_eq!(
        declaration,
        format!("properties:{{p:{{{expected}}}}},required:['p'],type:'OBJECT'}}")
    );
    let whats: Vec<&str> = warnings.iter().map(|(_, what)| *what).collect();
    assert_eq!(whats, warned, "{expected}");
}

#[test]
fn what_the_template_knows_is_shown_as_it_is() {
    check(
        json!({"type": "string", "description": "a"}),
        "description:'a',type:'STRING'",
        &[],
    );
    check(
        json!({"type": "string", "enum": ["a", "b"]}),
        "enum:['a','b'],type:'STRING'",
        &[],
    );
    check(
        json!({"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        "items:{enum:['a'],type:'STRING'},type:'ARRAY'",
        &[],
    );
    check(
        json!({"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"], "additionalProperties": false}),
        "properties:{x:{type:'NUMBER'}},required:['x'],type:'OBJECT'",
        &[],
    );
    let (empty, _) = shown(json!({"type": "object", "properties": {}}));
    assert_eq!(empty, "type:'OBJECT'}");
    let (nothing, _) = shown(json!({}));
    assert_eq!(nothing, "type:'OBJECT'}");
}

#[test]
fn what_it_does_not_know_is_told_in_words() {
    const CHOICE: &str = "a choice of several types";
    check(
        json!({"anyOf": [{"type": "string"}, {"type": "null"}], "description": "a"}),
        "description:'a',nullable:true,type:'STRING'",
        &[],
    );
    check(
        json!({"type": ["integer", "null"]}),
        "nullable:true,type:'INTEGER'",
        &[],
    );
    check(
        json!({"type": ["string", "integer"]}),
        "description:'or: integer',type:'STRING'",
        &[CHOICE],
    );
    check(
        json!({"oneOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]}),
        "description:'or: array',type:'INTEGER'",
        &[CHOICE],
    );
    check(
        json!({"anyOf": [{"const": "a"}, {"const": "b"}]}),
        "enum:['a','b'],type:'STRING'",
        &[],
    );
    check(
        json!({"const": 3}),
        "description:'one of: 3',type:'INTEGER'",
        &[],
    );
    check(
        json!({"enum": [1, 2, null]}),
        "description:'one of: 1, 2',nullable:true,type:'INTEGER'",
        &[],
    );
    check(
        json!({"type": "integer", "description": "a", "minimum": 1, "maximum": 9, "default": 5}),
        "description:'a (default 5; at least 1; at most 9)',type:'INTEGER'",
        &[],
    );
    check(
        json!({"type": "object"}),
        "properties:{},type:'OBJECT'",
        &[],
    );
    check(
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        "description:'further entries: integer',properties:{},type:'OBJECT'",
        &[],
    );
    check(
        json!({"allOf": [{"type": "object", "properties": {"x": {"type": "string"}}}, {"properties": {"y": {"type": "string"}}, "required": ["y"]}]}),
        "properties:{x:{type:'STRING'},y:{type:'STRING'}},required:['y'],type:'OBJECT'",
        &[],
    );
    check(
        json!({"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]}),
        "description:'items in order: string, integer',type:'ARRAY'",
        &["items that differ by place"].map(|w| w),
    );
    check(
        json!({"type": "string", "not": {"const": ""}}),
        "type:'STRING'",
        &["not"],
    );
    check(json!({}), "type:'ANY'", &[]);
    check(json!(true), "type:'ANY'", &[]);
}

#[test]
fn references_are_followed_until_they_repeat() {
    let schema = json!({
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/Node"}, "where": {"$ref": "#/definitions/a~1b"}, "lost": {"$ref": "#/$defs/none"}},
        "$defs": {"Node": {"type": "object", "description": "a node", "properties": {"next": {"$ref": "#/$defs/Node"}, "name": {"type": "string"}}}},
        "definitions": {"a/b": {"type": "boolean"}},
    });
    let (declaration, warnings) = shown(schema);
    assert_eq!(
        declaration,
        "properties:{lost:{type:'ANY'},root:{description:'a node',properties:{name:{type:'STRING'},next:{description:'another Node',properties:{},type:'OBJECT'}},type:'OBJECT'},where:{type:'BOOLEAN'}},type:'OBJECT'}"
    );
    assert_eq!(
        warnings,
        [
            (
                "/properties/root/properties/next".to_owned(),
                "it refers to itself"
            ),
            (
                "/properties/lost".to_owned(),
                "a reference to something that is not there"
            ),
        ]
    );
    let (declaration, _) = shown(json!({"type": "object", "properties": {"me": {"$ref": "#"}}}));
    assert!(
        declaration.contains("like the whole") || declaration.contains("another"),
        "{declaration}"
    );
}

#[test]
fn hostile_schemas_cost_no_turn() {
    let mut deep = json!({"type": "string"});
    for _ in 0..100 {
        deep = json!({"type": "object", "properties": {"d": deep}});
    }
    let mut wide = Map::new();
    for i in 0..30 {
        let next = format!("#/$defs/n{}", i + 1);
        wide.insert(format!("n{i}"), json!({"type": "object", "description": "x".repeat(200), "properties": {"a": {"$ref": next}, "b": {"$ref": next}, "c": {"$ref": next}}}));
    }
    wide.insert("n30".to_owned(), json!({"type": "string"}));
    let many: Map<String, Value> = (0..20_000)
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    let names: Vec<String> = (0..100_000).map(|i| format!("r{i}")).collect();
    for parameters in [
        deep,
        json!({"type": "object", "properties": {"w": {"$ref": "#/$defs/n0"}}, "$defs": wide}),
        json!({"type": "object", "properties": many}),
        json!({"type": "object", "properties": {"e": {"enum": names}, "r": {"anyOf": [{"type": "object", "required": names}, {"type": "object", "required": names}]}}}),
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}, {"$ref": "#/allOf/0"}]}),
        json!({"properties": [1, 2], "required": "x", "type": 7, "enum": {}, "items": 3, "anyOf": "y"}),
        json!([1, "two", null]),
        json!("object"),
        json!(null),
        json!(false),
        json!({"type": "array", "items": {"type": "string"}}),
        json!({"type": "object", "properties": {"k".repeat(100_000): {"type": "string"}}}),
        json!({"type": "object", "properties": {"x": {"type": "string", "enum": ["y".repeat(1_000_000)], "default": "z".repeat(1_000_000)}}}),
    ] {
        let tools = vec![
            Tool {
                name: "f".to_owned(),
                parameters: Some(parameters),
                ..Tool::default()
            };
            3
        ];
        let (prompt, warnings) = prompt_of(&tools);
        assert_eq!(prompt.matches("declaration:f{").count(), 3);
        println!("{} bytes, {} warnings", prompt.len(), warnings.len());
        assert!(prompt.len() < 32 << 20);
    }
}

#[test]
fn forty_tools_of_an_agent_are_shown() {
    let property = |i: usize| match i % 6 {
        0 => {
            json!({"type": "string", "description": "What this is about, in some words that explain it to the model."})
        }
        1 => {
            json!({"anyOf": [{"type": "integer"}, {"type": "null"}], "default": null, "title": "Limit"})
        }
        2 => {
            json!({"type": "array", "items": {"type": "object", "properties": {"path": {"type": "string"}, "line": {"type": "integer"}}, "required": ["path"]}})
        }
        3 => json!({"type": "string", "enum": ["first", "second", "third"]}),
        4 => json!({"$ref": "#/$defs/Options"}),
        _ => json!({"type": "boolean", "description": "Whether to do so."}),
    };
    let tools: Vec<Tool> = (0..40)
        .map(|t| Tool {
            name: format!("tool_{t}"),
            description: Some("Does something with a file. ".repeat(20)),
            parameters: Some(json!({
                "type": "object",
                "properties": (0..18).map(|i| (format!("p{i}"), property(i))).collect::<Map<_, _>>(),
                "required": ["p0"],
                "additionalProperties": false,
                "$defs": {"Options": {"type": "object", "properties": {"deep": {"type": "boolean"}, "tags": {"type": "array", "items": {"type": "string"}}}}},
            })),
            strict: false,
        })
        .collect();
    let bytes: usize = tools
        .iter()
        .map(|tool| tool.parameters.as_ref().map_or(0, |p| p.to_string().len()) + 560)
        .sum();
    let (prompt, warnings) = prompt_of(&tools);
    println!("{bytes} bytes of tools, {} bytes of prompt", prompt.len());
    assert!(bytes > 80_000);
    assert_eq!(warnings, []);
    assert_eq!(prompt.matches("<|tool>declaration:").count(), 40);
}

#[test]
fn random_schemas_cost_no_turn() {
    let mut random = Random::new("schemas");
    for _ in 0..2_000 {
        let schema = schema(&mut random, 0);
        let tools = vec![
            Tool {
                name: "f".to_owned(),
                parameters: Some(schema),
                ..Tool::default()
            };
            2
        ];
        prompt_of(&tools);
    }
}

/// Anything that looks like a schema, or nearly.
fn schema(random: &mut Random, depth: usize) -> Value {
    const KEYWORDS: [&str; 22] = [
        "type",
        "properties",
        "items",
        "required",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "description",
        "title",
        "default",
        "nullable",
        "additionalProperties",
        "prefixItems",
        "not",
        "minimum",
        "pattern",
        "format",
        "uniqueItems",
    ];
    let mut map = Map::new();
    for _ in 0..random.below(5) {
        let keyword = random.pick(&KEYWORDS);
        map.insert(keyword.to_owned(), any(random, depth + 1));
    }
    Value::Object(map)
}

fn any(random: &mut Random, depth: usize) -> Value {
    let n_kinds = if depth < 5 { 12 } else { 6 };
    match random.below(n_kinds) {
        0 => Value::Null,
        1 => json!(random.below(9)),
        2 => json!(random.below(2) == 0),
        3 => json!(random.pick(&["object", "string", "array", "integer", "null", ""])),
        4 => json!(random.pick(&["#", "#/$defs/a", "#/properties/a", "#/items", "http://x"])),
        5 => json!(random.text(&crate::data::DEMO)),
        6 | 7 => (0..random.below(4))
            .map(|_| any(random, depth + 1))
            .collect(),
        8 | 9 => (0..random.below(3))
            .map(|_| {
                (
                    random.pick(&["a", "b", "type", "items"]).to_owned(),
                    schema(random, depth + 1),
                )
            })
            .collect::<Map<_, _>>()
            .into(),
        _ => schema(random, depth + 1),
    }
}
