//! Schemas of the largest size, and answers whose grammar leads nowhere.

use crate::data::DEMO;
use crate::grammar::{DEMO_GRAMMARS, allows};
use ouzel_tokenizer::Tool;
use ouzel_tokenizer::grammar::{Checker, Demand, GrammarError, STACK_BYTES};
use serde_json::{Map, Value, json};

/// Schemas of the largest size, in the shapes down which llguidance goes one call of itself a step.
fn large(n: usize) -> Vec<(&'static str, Value)> {
    let properties: Map<String, Value> = (0..(n / 2 - 4).min(1_024))
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    let required: Vec<&String> = properties.keys().take(n / 4).collect();
    let links: Map<String, Value> = (0..n / 2 - 4)
        .map(|i| {
            (
                format!("d{i}"),
                json!({"$ref": format!("#/$defs/d{}", i + 1)}),
            )
        })
        .chain([(format!("d{}", n / 2 - 4), json!({"type": "string"}))])
        .collect();
    let nested: Map<String, Value> = (0..n / 6 - 4)
        .map(|i| {
            let below = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            (
                format!("d{i}"),
                json!({"type": "object", "properties": {"x": below}}),
            )
        })
        .chain([(format!("d{}", n / 6 - 4), json!({"type": "string"}))])
        .collect();
    let choices: Vec<Value> = (0..n / 2 - 4).map(|i| json!({"const": i})).collect();
    vec![
        (
            "optional properties",
            json!({"type": "object", "properties": properties}),
        ),
        (
            "required properties",
            json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false}),
        ),
        (
            "a chain of references",
            json!({"$defs": links, "$ref": "#/$defs/d0"}),
        ),
        (
            "objects in each other",
            json!({"$defs": nested, "$ref": "#/$defs/d0"}),
        ),
        ("a choice", json!({"anyOf": choices})),
    ]
}

/// A tool with a schema of its own.
fn tool_of(schema: Value, strict: bool) -> Demand {
    Demand::Tools {
        tools: vec![Tool {
            name: "f".to_owned(),
            description: None,
            parameters: Some(json!({"type": "object", "properties": {"v": schema}})),
            strict,
        }],
        at_least_one: true,
        only: None,
        parallel: true,
    }
}

#[test]
fn no_schema_is_too_large_for_the_stack() {
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES / 4);
    let checked = thread.spawn(check_large_schemas).expect("a thread");
    checked.join().expect("it is deep enough");
}

fn check_large_schemas() {
    let checker = Checker::new();
    for (shape, schema) in large(8_192) {
        for demand in [Demand::JsonSchema(schema.clone()), tool_of(schema, true)] {
            // Whatever it says, it says.
            match checker.check(&demand) {
                Ok(_) => {
                    let compiled = DEMO_GRAMMARS.compile(&DEMO, &demand);
                    let mut constraint = compiled.expect(shape);
                    let _ = constraint.allowed();
                    constraint.accept(DEMO.id_of("{").expect("a token"));
                    let _ = constraint.allowed();
                }
                Err(GrammarError::Schema(_) | GrammarError::Unsupported { .. }) => {}
                Err(error) => panic!("{shape}: {error}"),
            }
        }
    }
    let error = |schema| {
        checker
            .check(&Demand::JsonSchema(schema))
            .expect_err("it is too large")
    };
    let many: Vec<Value> = (0..10_000).map(Value::from).collect();
    let many = error(json!({"enum": many})).to_string();
    assert!(many.contains("more than 8192 JSON values"), "{many}");
    let wide: Map<String, Value> = (0..1_025).map(|i| (format!("p{i}"), json!({}))).collect();
    let wide = error(json!({"properties": wide})).to_string();
    assert!(wide.contains("more than 1024 entries"), "{wide}");
}

#[test]
fn hundreds_of_optional_properties_may_be_left_out() {
    let properties: Map<String, Value> = (0..1_000)
        .map(|i| (format!("p{i}"), json!({"type": "string"})))
        .collect();
    let demand = Demand::JsonSchema(json!({"type": "object", "properties": properties}));
    let mut constraint = DEMO_GRAMMARS.compile(&DEMO, &demand).expect("a grammar");
    for id in DEMO.encode("{\"p7\":\"a\",\"p998\":\"b\"}") {
        let mask = constraint.allowed().expect("a mask").to_vec();
        assert_eq!(constraint.error(), None);
        assert!(allows(&mask, id), "{id}");
        constraint.accept(id);
    }
    let mask = constraint.allowed().expect("a mask").to_vec();
    assert!(allows(&mask, DEMO.id_of("<turn|>").expect("the end")));
}

#[test]
fn where_a_grammar_leads_nowhere_no_end_may_come() {
    let demand = Demand::JsonSchema(json!({"$ref": "#"}));
    let compiled = DEMO_GRAMMARS.compile(&DEMO, &demand);
    let mut constraint = match compiled {
        Err(GrammarError::Schema(_)) => return,
        compiled => compiled.expect("a grammar"),
    };
    let mask = constraint.allowed().expect("a mask").to_vec();
    assert!(constraint.error().is_some());
    assert!(mask.iter().all(|word| *word == 0));
}

#[test]
fn a_string_with_the_mark_that_ends_strings_is_refused_by_name() {
    let checker = Checker::new();
    for (schema, keyword) in [
        (json!({"enum": ["a", "x<|\"|>y"]}), "enum"),
        (json!({"const": {"k": ["<|\"|>"]}}), "const"),
    ] {
        let error = checker
            .check(&tool_of(schema.clone(), true))
            .expect_err(keyword);
        assert!(
            matches!(&error, GrammarError::Unsupported { keyword: found, .. } if found == keyword),
            "{error}"
        );
        let unheld = checker
            .check(&tool_of(schema, false))
            .expect("it need not be held to");
        assert_eq!(unheld[0].tool, "f");
        assert_eq!(
            unheld[0].why.to_string(),
            error.to_string().replace("/f/", "/")
        );
    }
}
