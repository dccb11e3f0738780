//! Small templates whose output under Jinja2 3.1.6 with transformers' settings is known; the goldens cover the real ones.

use super::*;
use serde_json::json;

fn render(source: &str, variables: serde_json::Value) -> Result<String, TemplateError> {
    let kwargs = variables.as_object().expect("variables").clone();
    ChatTemplate::new(source, "<bos>", "<eos>")?.render(&RenderInput {
        messages: json!([]),
        kwargs,
        ..RenderInput::default()
    })
}

#[track_caller]
fn check(source: &str, expected: &str) {
    let variables = json!({
        "n": null, "t": true, "i": -3, "big": 12345678901234567890u64, "s": "it's \"x\"\n",
        "floats": [1.0, 0.1, 2.5e20, 1e16, 123456789012345.6, 1e-7, 0.0001, -0.0],
        "list": ["a", 1, null, {"k": "v'w"}], "map": {"b": 1, "A": 2, "a": 3, "items": 4},
    });
    assert_eq!(
        render(source, variables).as_deref(),
        Ok(expected),
        "{source}"
    );
}

#[test]
fn values_print_as_in_python() {
    check(
        "{{ n }} {{ t }} {{ not t }} {{ i }} {{ big }} {{ missing }}|{{ s }}",
        "None True False -3 12345678901234567890 |it's \"x\"\n",
    );
    check(
        "{{ floats }}",
        "[1.0, 0.1, 2.5e+20, 1e+16, 123456789012345.6, 1e-07, 0.0001, -0.0]",
    );
    check("{{ list }}", "['a', 1, None, {'k': \"v'w\"}]");
    check(
        "{{ [s, '\\t\\x1b\\\\'] }}",
        "['it\\'s \"x\"\\n', '\\t\\x1b\\\\']",
    );
    check("{{ map }}", "{'b': 1, 'A': 2, 'a': 3, 'items': 4}");
    check("{{ bos_token }}{{ eos_token }}", "<bos><eos>");
}

#[test]
fn filters_are_those_of_jinja2() {
    check(
        "{% for k, v in map | dictsort %}{{ k }}={{ v }};{% endfor %}",
        "A=2;a=3;b=1;items=4;",
    );
    check(
        "{% for k, v in map | dictsort(true) %}{{ k }}{% endfor %}",
        "Aabitems",
    );
    check(
        "{% for k, v in map | dictsort(by='value', reverse=true) %}{{ v }}{% endfor %}",
        "4321",
    );
    check(
        "{{ missing | upper }}{{ n | upper }}{{ list | upper }}",
        "NONE['A', 1, NONE, {'K': \"V'W\"}]",
    );
    check("[{{ '\x1c a \u{a0}' | trim }}]", "[a]");
    check(
        "{{ map | tojson }} {{ list | tojson }}",
        "{\"b\": 1, \"A\": 2, \"a\": 3, \"items\": 4} [\"a\", 1, null, {\"k\": \"v'w\"}]",
    );
    check(
        "{{ {'a': [1, 'é<'], 'b': []} | tojson(indent=2) }}",
        "{\n  \"a\": [\n    1,\n    \"é<\"\n  ],\n  \"b\": []\n}",
    );
    check(
        "{{ missing | default('d') }}{{ n | default('d') }}{{ '' | default('d', true) }}",
        "dNoned",
    );
}

#[test]
fn methods_are_those_of_python() {
    check(
        "{{ map.get('b') }}{{ map.get('z') }}{{ map.get('z', 7) }}",
        "1None7",
    );
    check(
        "{{ 'a--b'.split('-') }}{{ ' a  b '.split() }}{{ 'a b c'.split(' ', 1) }}",
        "['a', '', 'b']['a', 'b']['a', 'b c']",
    );
    check(
        "{{ ' x '.strip() }}{{ 'xyx'.lstrip('x') }}{{ 'xyx'.rstrip('x') }}",
        "xyxxy",
    );
    check(
        "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'bc')) }}{{ 'aXbX'.replace('X', '-', 1) }}",
        "TrueTruea-bX",
    );
    check(
        "{{ ', '.join(['a', 'b']) }} {{ 'aéa'.find('a') }}{{ 'aa'.count('a') }} {{ 'ab cd'.title() }} {{ 'ABC'.capitalize() }}",
        "a, b 02 Ab Cd Abc",
    );
    check(
        "{% for k, v in map.items() %}{{ k }}{{ v }}{% endfor %}{{ map.keys() | list }}",
        "b1A2a3items4['b', 'A', 'a', 'items']",
    );
    let error = render("{{ 'a'.frobnicate() }}", json!({})).expect_err("there is no such method");
    assert!(error.to_string().contains("frobnicate"), "{error}");
}

#[test]
fn blocks_take_their_line_with_them() {
    check("a\n  {% if t %}\n  b\n  {% endif %}\nc", "a\n  b\nc");
}

#[test]
fn errors_say_what_happened() {
    let raised = render("{{ raise_exception('no ' + 'way') }}", json!({}));
    assert_eq!(raised, Err(TemplateError::Raised("no way".to_owned())));
    let raised = render(
        "{% macro m() %}{{ raise_exception('deep') }}{% endmacro %}{% for i in [1] %}{{ m() }}{% endfor %}",
        json!({}),
    );
    assert_eq!(raised, Err(TemplateError::Raised("deep".to_owned())));
    assert!(matches!(
        render("{% if %}", json!({})),
        Err(TemplateError::Syntax(_))
    ));
    assert!(matches!(
        render("{{ missing.x.y }}", json!({})),
        Err(TemplateError::Render(_))
    ));
}

#[test]
fn a_template_cannot_run_or_grow_without_end() {
    let endless =
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let doubling = "{% set n = namespace(s='xxxxxxxx') %}{% for a in range(100) %}{% set n.s = n.s + n.s %}{% endfor %}";
    let replacing = "{% set n = namespace(s='x') %}{% for a in range(100) %}{% set n.s = n.s.replace('x', 'xxxx') %}{% endfor %}";
    let joining = "{% set n = namespace(s='x') %}{% for a in range(100) %}{% set n.s = n.s.join(['a', n.s, n.s]) %}{% endfor %}";
    let itself = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}";
    for source in [endless, doubling, replacing, joining, itself] {
        assert!(
            matches!(render(source, json!({})), Err(TemplateError::Render(_))),
            "{source}"
        );
    }
    // Values that contain themselves, or one part over and over.
    for part in [
        "{% set n.n = n %}{% set n.m = n %}",
        "{% set n.n = [] %}{% for i in range(99) %}{% set n.n = [n.n, n.n] %}{% endfor %}",
    ] {
        for show in [
            "{{ n }}",
            "{{ n | tojson }}",
            "{{ n | upper }}",
            "{{ ''.join([n]) }}",
        ] {
            let source = format!("{{% set n = namespace() %}}{part}{show}");
            assert!(
                matches!(render(&source, json!({})), Err(TemplateError::Render(_))),
                "{source}"
            );
        }
    }
}

#[test]
fn long_conversations_have_fuel_enough() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/chat-template");
    for name in [
        "gemma4-chat_template.jinja",
        "gemma4-chat_template-canonical-20260709.jinja",
    ] {
        let source = std::fs::read_to_string(path.join(name)).expect("a template");
        let template = ChatTemplate::new(&source, "<bos>", "<eos>").expect("it compiles");
        for (n_messages, len) in [(2_000, 500), (2, 2_000_000)] {
            let role = |i| if i % 2 == 0 { "user" } else { "assistant" };
            let messages = (0..n_messages)
                .map(|i| json!({"role": role(i), "content": "x".repeat(len)}))
                .collect();
            let rendered = template.render(&RenderInput {
                messages,
                ..RenderInput::default()
            });
            assert!(rendered.expect("it renders").len() > n_messages * len);
        }
    }
}
