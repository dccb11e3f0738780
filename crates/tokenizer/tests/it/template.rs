//! The golden conversations: text, ids and errors, for each of the three templates that shipped with the model.

use crate::data::{REAL, bytes, json};
use ouzel_tokenizer::{ChatTemplate, RenderInput, TemplateError};
use serde_json::Value;

const TEMPLATES: [&str; 3] = [
    "gemma4-chat_template.jinja",
    "gemma4-chat_template-20260428.jinja",
    "gemma4-chat_template-canonical-20260709.jinja",
];

pub fn template(name: &str) -> ChatTemplate {
    let source = String::from_utf8(bytes(name)).expect("templates are UTF-8");
    ChatTemplate::new(&source, "<bos>", "<eos>").expect("the template compiles")
}

pub fn input(case: &Value) -> RenderInput {
    RenderInput {
        messages: case["messages"].clone(),
        tools: Some(case["tools"].clone()).filter(|tools| !tools.is_null()),
        add_generation_prompt: case["add_generation_prompt"].as_bool().expect("a flag"),
        kwargs: case["kwargs"].as_object().expect("variables").clone(),
    }
}

#[test]
fn every_golden_conversation_renders_to_the_byte() {
    let golden = json("testdata/chat-template/chat-golden.json");
    let cases = golden["cases"].as_array().expect("cases");
    assert_eq!(cases.len(), 21);
    for name in TEMPLATES {
        let template = template(&format!("testdata/chat-template/{name}"));
        for case in cases {
            let rendered = template.render(&input(case));
            match case["rendered"][name].as_str() {
                Some(text) => {
                    assert_eq!(rendered.as_deref(), Ok(text), "{name}, {}", case["name"]);
                    let ids: Vec<u32> =
                        serde_json::from_value(case["ids"][name].clone()).expect("ids");
                    assert_eq!(REAL.encode(text), ids, "{name}, {}", case["name"]);
                    assert_eq!(REAL.encode_guarded(text), ids, "{name}, {}", case["name"]);
                }
                None => {
                    let message = case["error"][name].as_str().expect("an error");
                    let expected = TemplateError::Raised(message.to_owned());
                    assert_eq!(rendered, Err(expected), "{name}, {}", case["name"]);
                }
            }
        }
    }
}
