//! Bodies of the fuzz targets: each takes arbitrary bytes and must return. The seeded smoke test in the suite calls the same functions.

use crate::{ChatTemplate, RenderInput, Tokenizer, image};
use serde_json::json;

/// Compiles bytes as a tokenizer.json and opens what comes out.
pub fn tokenizer_json(bytes: &[u8]) {
    if let Ok(image) = Tokenizer::compile(bytes) {
        Tokenizer::from_image(image).expect("what was compiled opens");
    }
}

/// Opens bytes as a compiled image; with `reseal`, after writing the checksum they call for, so that the tables are reached. Returns
/// whether it opened; then it was also used.
pub fn image(bytes: &[u8], reseal: bool) -> bool {
    let mut bytes = bytes.to_vec();
    if reseal {
        image::seal(&mut bytes);
    }
    let Ok(tokenizer) = Tokenizer::from_image(bytes) else {
        return false;
    };
    let ids = tokenizer.encode("<bos>Hello,  world\n> </div> caf\u{e9} \u{1f680}<turn|>");
    let _ = tokenizer.decode(&ids, false);
    let all: Vec<u32> = (0..=tokenizer.vocab_size() as u32).collect();
    let _ = tokenizer.decode(&all, true);
    true
}

/// Compiles bytes as a chat template and renders a short conversation.
pub fn template(bytes: &[u8]) {
    let Ok(source) = std::str::from_utf8(bytes) else {
        return;
    };
    let Ok(template) = ChatTemplate::new(source, "<bos>", "<eos>") else {
        return;
    };
    let messages = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Yes?"}]}]);
    let _ = template.render(&RenderInput {
        messages,
        add_generation_prompt: true,
        ..RenderInput::default()
    });
}
