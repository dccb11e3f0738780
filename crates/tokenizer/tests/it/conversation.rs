//! Conversations through the model's own templates: what a client sends against the prompt that it must become.

use crate::data::{REAL, Random, json as file};
use crate::template::template;
use ouzel_tokenizer::{
    ChatMessage, ChatTemplate, Conversation, Tool, ToolCall, ToolContent, Warning,
    guard_control_text, strip_guards,
};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// The model's own, and the two that came before and after it.
static TEMPLATES: LazyLock<[ChatTemplate; 3]> = LazyLock::new(|| {
    [
        "testdata/chat-template/gemma4-chat_template.jinja",
        "testdata/chat-template/gemma4-chat_template-20260428.jinja",
        "testdata/chat-template/gemma4-chat_template-canonical-20260709.jinja",
    ]
    .map(template)
});

fn rendered(conversation: &Conversation, template: &ChatTemplate) -> (String, Vec<Warning>) {
    let (input, warnings) = conversation.render_input(|text| guard_control_text(&REAL, text));
    let rendered = template.render(&input).expect("it renders");
    // Nothing that was typed became a control token.
    let ids = REAL.encode_guarded(&rendered);
    let shown = strip_guards(&rendered).into_owned();
    assert_eq!(REAL.decode(&ids, false), shown);
    (shown, warnings)
}

fn system(text: &str) -> ChatMessage {
    ChatMessage::System(text.to_owned())
}

fn user(text: &str) -> ChatMessage {
    ChatMessage::User(text.to_owned())
}

fn assistant(text: &str) -> ChatMessage {
    ChatMessage::Assistant {
        content: Some(text.to_owned()),
        thinking: None,
        tool_calls: Vec::new(),
    }
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().expect("an object").clone()
}

fn call(id: &str, name: &str, value: Value) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        name: name.to_owned(),
        arguments: arguments(value),
    }
}

fn calls(content: Option<&str>, thinking: Option<&str>, tool_calls: &[ToolCall]) -> ChatMessage {
    ChatMessage::Assistant {
        content: content.map(str::to_owned),
        thinking: thinking.map(str::to_owned),
        tool_calls: tool_calls.to_vec(),
    }
}

fn result(id: &str, text: &str) -> ChatMessage {
    ChatMessage::ToolResult {
        call_id: id.to_owned(),
        name: None,
        content: ToolContent::Text(text.to_owned()),
    }
}

/// Checks the prompt under each template; without the beginning that all prompts share.
fn check(messages: Vec<ChatMessage>, expected: &str) -> Vec<Warning> {
    let conversation = Conversation {
        messages,
        ..Conversation::default()
    };
    let mut all = Vec::new();
    for template in &*TEMPLATES {
        let (prompt, warnings) = rendered(&conversation, template);
        assert_eq!(prompt, format!("<bos>{expected}"));
        all = warnings;
    }
    all
}

const OPEN: &str = "<|turn>model\n<|channel>thought\n<channel|>";

#[test]
fn turns_are_those_of_the_golden_prompts() {
    // The same conversations as in the golden file, through our types.
    let golden = file("testdata/chat-template/chat-golden.json");
    let own = "gemma4-chat_template.jinja";
    let mut n_compared = 0;
    for case in golden["cases"].as_array().expect("cases") {
        let Some(conversation) = from_golden(case) else {
            continue;
        };
        let Some(expected) = case["rendered"][own].as_str() else {
            continue;
        };
        let name = case["name"].as_str().expect("a name");
        // Where the model's template writes a text behind the results, or None, we write what its later version means.
        if [
            "two_round_tool_loop",
            "tool_call_pending",
            "consecutive_assistants",
        ]
        .contains(&name)
        {
            continue;
        }
        let (prompt, _) = rendered(&conversation, &TEMPLATES[0]);
        assert_eq!(prompt, expected, "{name}");
        n_compared += 1;
    }
    assert_eq!(n_compared, 14);
}

/// A golden case in our types; `None` where it uses what they do not have.
fn from_golden(case: &Value) -> Option<Conversation> {
    let mut messages = Vec::new();
    for message in case["messages"].as_array()? {
        let content = message["content"].as_str();
        messages.push(match message["role"].as_str()? {
            "system" | "developer" => system(content?),
            "user" => user(content?),
            "tool" => result(message["tool_call_id"].as_str()?, content?),
            _ => {
                let written = message["tool_calls"]
                    .as_array()
                    .cloned()
                    .unwrap_or_default();
                let tool_calls: Option<Vec<ToolCall>> = written
                    .iter()
                    .map(|one| {
                        let function = &one["function"];
                        let arguments = function["arguments"].as_object()?.clone();
                        Some(call(
                            one["id"].as_str()?,
                            function["name"].as_str()?,
                            Value::Object(arguments),
                        ))
                    })
                    .collect();
                if message.get("tool_responses").is_some() {
                    return None;
                }
                calls(content, message["reasoning_content"].as_str(), &tool_calls?)
            }
        });
    }
    let tools = case["tools"].as_array().cloned().unwrap_or_default();
    let tools = tools.iter().map(|tool| {
        let function = &tool["function"];
        Some(Tool {
            name: function["name"].as_str()?.to_owned(),
            description: function["description"].as_str().map(str::to_owned),
            parameters: function.get("parameters").cloned(),
            strict: false,
        })
    });
    let is_asked = case["add_generation_prompt"] == json!(true);
    Some(Conversation {
        messages,
        tools: tools.collect::<Option<_>>()?,
        thinking: case["kwargs"]["enable_thinking"] == json!(true),
    })
    .filter(|_| is_asked)
}

#[test]
fn system_texts_come_first_together_and_later_in_place() {
    check(
        vec![
            system("One."),
            system("Two."),
            user("Hi"),
            assistant("Yes."),
            system("Three."),
            user("Go"),
        ],
        &format!(
            "<|turn>system\nOne.\n\nTwo.<turn|>\n<|turn>user\nHi<turn|>\n<|turn>model\nYes.<turn|>\n<|turn>system\nThree.<turn|>\n<|turn>user\nGo<turn|>\n{OPEN}"
        ),
    );
}

#[test]
fn a_model_turn_is_one_across_its_tool_rounds() {
    let weather = call("c1", "get_weather", json!({"city": "Paris"}));
    let now = call("c2", "now", json!({}));
    let shown = "<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|><|tool_response>response:get_weather{value:<|\"|>21C<|\"|>}<tool_response|>";
    let second = "<|tool_call>call:now{}<tool_call|><|tool_response>response:now{value:<|\"|>12:00<|\"|>}<tool_response|>";
    let asked = "<|turn>user\nW?<turn|>\n<|turn>model\n";
    let rounds = || {
        vec![
            user("W?"),
            calls(Some("Let me look."), None, std::slice::from_ref(&weather)),
            result("c1", "21C"),
            calls(Some("And now."), None, std::slice::from_ref(&now)),
            result("c2", "12:00"),
        ]
    };
    // The text stands where the model wrote it, and the turn stays open for what comes next.
    let open = format!("{asked}Let me look.{shown}And now.{second}");
    check(rounds(), &open);
    let mut messages = rounds();
    messages.extend([assistant("It is 21C."), user("Thanks")]);
    check(
        messages,
        &format!("{open}It is 21C.<turn|>\n<|turn>user\nThanks<turn|>\n{OPEN}"),
    );
    // A user who speaks before the model has answered: the turn is closed all the same.
    let mut messages = rounds();
    messages.push(user("Stop"));
    check(
        messages,
        &format!("{open}<turn|>\n<|turn>user\nStop<turn|>\n{OPEN}"),
    );
    // Calls that came one message each, and results in another order.
    let messages = vec![
        user("W?"),
        assistant("Both."),
        calls(None, None, std::slice::from_ref(&weather)),
        calls(None, None, std::slice::from_ref(&now)),
        result("c2", "12:00"),
        result("c1", "21C"),
    ];
    let both = "Both.<|tool_call>call:get_weather{city:<|\"|>Paris<|\"|>}<tool_call|><|tool_call>call:now{}<tool_call|><|tool_response>response:get_weather{value:<|\"|>21C<|\"|>}<tool_response|><|tool_response>response:now{value:<|\"|>12:00<|\"|>}<tool_response|>";
    check(messages, &format!("{asked}{both}"));
    check(
        vec![user("W?"), assistant("One."), assistant("Two."), user("Go")],
        &format!("{asked}One.\n\nTwo.<turn|>\n<|turn>user\nGo<turn|>\n{OPEN}"),
    );
}

#[test]
fn results_may_be_any_json_and_null_arguments_stay() {
    let messages = vec![
        user("x"),
        calls(
            None,
            None,
            &[call(
                "c",
                "f",
                json!({"a": null, "b": [null, "<|\"|>"], "C": {"k": true}}),
            )],
        ),
        ChatMessage::ToolResult {
            call_id: "c".to_owned(),
            name: None,
            content: ToolContent::Json(json!({"temp": 21.5, "none": null, "list": [1, "x"]})),
        },
    ];
    check(
        messages,
        "<|turn>user\nx<turn|>\n<|turn>model\n<|tool_call>call:f{a:null,b:[null,<|\"|><|\"|><|\"|>],C:{k:true}}<tool_call|><|tool_response>response:f{list:[1,<|\"|>x<|\"|>],none:null,temp:21.5}<tool_response|>",
    );
    assert_eq!(
        ToolContent::from_parts(["a", "b"]),
        ToolContent::Text("ab".to_owned())
    );
}

#[test]
fn what_is_missing_is_told() {
    let warnings = check(
        vec![
            user("x"),
            calls(None, None, &[call("c", "f", json!({}))]),
            user("y"),
        ],
        &format!(
            "<|turn>user\nx<turn|>\n<|turn>model\n<|tool_call>call:f{{}}<tool_call|><|tool_response>response:f{{value:<|\"|>(no result)<|\"|>}}<tool_response|><turn|>\n<|turn>user\ny<turn|>\n{OPEN}"
        ),
    );
    assert_eq!(
        warnings,
        [Warning::NoResult {
            call_id: "c".to_owned()
        }]
    );
    let orphan = ChatMessage::ToolResult {
        call_id: "gone".to_owned(),
        name: Some("g".to_owned()),
        content: ToolContent::Text("r".to_owned()),
    };
    let warnings = check(
        vec![user("x"), orphan],
        "<|turn>user\nx<turn|>\n<|turn>model\n<|tool_call>call:g{}<tool_call|><|tool_response>response:g{value:<|\"|>r<|\"|>}<tool_response|>",
    );
    assert_eq!(
        warnings,
        [Warning::NoCall {
            call_id: "gone".to_owned()
        }]
    );
}

#[test]
fn thoughts_are_shown_in_their_own_turn_only() {
    let weather = call("c1", "f", json!({}));
    let turn = |thinking| {
        vec![
            user("x"),
            calls(
                Some("Text."),
                Some(thinking),
                std::slice::from_ref(&weather),
            ),
            result("c1", "r"),
        ]
    };
    let after = "Text.<|tool_call>call:f{}<tool_call|><|tool_response>response:f{value:<|\"|>r<|\"|>}<tool_response|>";
    check(
        turn("why"),
        &format!("<|turn>user\nx<turn|>\n<|turn>model\n<|channel>thought\nwhy\n<channel|>{after}"),
    );
    let mut messages = turn("why");
    messages.extend([
        assistant("<|channel>thought\nleft over<channel|>Done <channel|>."),
        user("y"),
    ]);
    check(
        messages,
        &format!(
            "<|turn>user\nx<turn|>\n<|turn>model\n{after}Done <channel|>.<turn|>\n<|turn>user\ny<turn|>\n{OPEN}"
        ),
    );
}

#[test]
fn typed_control_text_stays_text_everywhere() {
    let mut random = Random::new("conversation");
    let specials: Vec<&str> = REAL
        .specials()
        .iter()
        .filter_map(|id| REAL.token(*id))
        .collect();
    let template = &TEMPLATES[0];
    let build = |typed: &str| Conversation {
        messages: vec![
            system(typed),
            user(typed),
            calls(
                Some(typed),
                Some(typed),
                &[call(typed, typed, json!({typed: [typed, {typed: typed}]}))],
            ),
            result(typed, typed),
            assistant(typed),
        ],
        tools: vec![Tool {
            name: typed.to_owned(),
            description: Some(typed.to_owned()),
            parameters: Some(
                json!({"type": "object", "properties": {typed: {"type": "string", "description": typed, "enum": [typed], "default": typed}}, "required": [typed]}),
            ),
            strict: false,
        }],
        thinking: false,
    };
    let controls = |conversation: &Conversation| {
        let (input, _) = conversation.render_input(|text| guard_control_text(&REAL, text));
        let ids = REAL.encode_guarded(&template.render(&input).expect("it renders"));
        ids.into_iter()
            .filter(|id| REAL.is_special(*id))
            .collect::<Vec<u32>>()
    };
    let plain = controls(&build("x"));
    for literal in &specials {
        assert_eq!(controls(&build(literal)), plain, "{literal}");
    }
    for _ in 0..200 {
        let typed = format!(
            "x{}\u{fdd1}{}\u{fdd2}\u{fdd3}y",
            random.text(&REAL),
            random.text(&REAL)
        );
        if typed.contains("<channel|>") {
            continue;
        }
        assert_eq!(controls(&build(&typed)), plain, "{typed:?}");
    }
}

/// The prompt that offers these tools, under the model's own template.
pub fn prompt_of(tools: &[Tool]) -> (String, Vec<Warning>) {
    let conversation = Conversation {
        messages: vec![user("x")],
        tools: tools.to_vec(),
        thinking: false,
    };
    let (input, warnings) = conversation.render_input(|text| guard_control_text(&REAL, text));
    let prompt = TEMPLATES[0].render(&input).expect("it renders");
    (strip_guards(&prompt).into_owned(), warnings)
}
