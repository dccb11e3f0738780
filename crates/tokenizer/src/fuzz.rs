//! Bodies of the fuzz targets: each takes arbitrary bytes and must return. The seeded smoke test in the suite calls the same functions.

use crate::{
    ChatMessage, ChatTemplate, Conversation, Piece, RenderInput, Tokenizer, Tool, ToolCallParser,
    call, image,
};
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

/// Reads bytes as what a model writes, whole and in pieces, and compares: the same calls, the same text, no byte lost.
pub fn tool_calls(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (whole, letters) = (read_calls(&text, usize::MAX), read_calls(&text, 1));
    assert_eq!(whole, letters, "pieces change what is read");
    assert_eq!(whole.1, text, "bytes are lost");
}

/// The calls, and all that came out in one text. The text's own marks are taken as marks.
fn read_calls(text: &str, piece_chars: usize) -> (Vec<(String, serde_json::Value)>, String) {
    let tools = ["get_weather", "now", "mcp__files__read"].map(str::to_owned);
    let mut parser = ToolCallParser::new(&tools);
    let (mut calls, mut all) = (Vec::new(), String::new());
    let mut sink = |piece: Piece<'_>| match piece {
        Piece::Text(text) => all.push_str(text),
        Piece::Call {
            name,
            arguments,
            raw,
        } => {
            calls.push((
                name.to_owned(),
                serde_json::Value::Object(arguments.clone()),
            ));
            all.push_str(raw);
        }
    };
    for (i, part) in text.split(call::OPENS).enumerate() {
        if i > 0 {
            parser.open(&mut sink);
        }
        let mut rest = part;
        while !rest.is_empty() {
            if let Some(after) = rest
                .strip_prefix(call::CLOSES)
                .filter(|_| parser.is_marked())
            {
                parser.close(&mut sink);
                rest = after;
                continue;
            }
            let first = rest.chars().next().map_or(0, char::len_utf8);
            let close = rest[first..].find(call::CLOSES).map(|at| first + at);
            let cut = rest.char_indices().nth(piece_chars).map(|(at, _)| at);
            let end = [close, cut].into_iter().flatten().min();
            let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
            parser.push(piece, &mut sink);
            rest = after;
        }
    }
    parser.finish(&mut sink);
    (calls, all)
}

/// Reads bytes as JSON, takes that for the schema of a tool, and shows it: it must render, whatever it is.
pub fn tool_schema(bytes: &[u8], template: &ChatTemplate) {
    let Ok(parameters) = serde_json::from_slice(bytes) else {
        return;
    };
    let conversation = Conversation {
        messages: vec![ChatMessage::User("Hi".to_owned())],
        tools: vec![Tool {
            name: "f".to_owned(),
            parameters: Some(parameters),
            ..Tool::default()
        }],
        thinking: false,
    };
    let (input, _) = conversation.render_input(str::to_owned);
    template.render(&input).expect("no schema costs a turn");
}
