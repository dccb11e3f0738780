//! Arbitrary bytes as the schema of a tool, under the model's own template; `fuzz/src/lib.rs` explains.

#![no_main]

use ouzel_tokenizer::ChatTemplate;
use std::sync::LazyLock;

static TEMPLATE: LazyLock<ChatTemplate> = LazyLock::new(|| {
    let source = include_str!("../../testdata/chat-template/gemma4-chat_template.jinja");
    ChatTemplate::new(source, "<bos>", "<eos>").expect("the template compiles")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| ouzel_tokenizer::fuzz::tool_schema(data, &TEMPLATE));
