//! The tokenizer of a synthetic model: the real one, from the repository's test data, where the vocabulary is the real one.

use std::fs;
use std::io::Read;
use std::path::Path;

use anyhow::Context;
use ouzel_format::{Arch, paths};
use serde_json::json;

use crate::process::root;

/// Tokens of the real vocabulary.
const VOCAB_SIZE: u32 = 262_144;
/// The largest `tokenizer.json` that is unpacked.
const MAX_BYTES: u64 = 64 << 20;

/// The files below `tokenizer/`, with their paths, beside `config.json`. `dir` names a folder with others; a model of another vocabulary
/// has none of them, and takes token ids only.
pub fn files(arch: &Arch, dir: Option<&Path>) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    if let Some(dir) = dir {
        return of_folder(dir);
    }
    if arch.vocab_size != VOCAB_SIZE {
        return Ok(Vec::new());
    }
    let data = root()?.join("testdata");
    let packed = data.join("tokenizer/tokenizer.json.xz");
    let file = fs::File::open(&packed).with_context(|| packed.display().to_string())?;
    let mut tokenizer = Vec::new();
    lzma_rust2::XzReader::new(file, false)
        .take(MAX_BYTES)
        .read_to_end(&mut tokenizer)
        .with_context(|| packed.display().to_string())?;
    let template = data.join("chat-template/gemma4-chat_template.jinja");
    let template = fs::read(&template).with_context(|| template.display().to_string())?;
    let tokenizer_config = json!({
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "tokenizer_class": "GemmaTokenizer",
    });
    let generation = json!({
        "bos_token_id": 2,
        "do_sample": true,
        "eos_token_id": [1, 106, 50],
        "pad_token_id": 0,
        "temperature": 1.0,
        "top_k": 64,
        "top_p": 0.95,
    });
    let pretty = |value| format!("{value:#}\n").into_bytes();
    Ok(vec![
        (paths::TOKENIZER.to_owned(), tokenizer),
        (paths::CHAT_TEMPLATE.to_owned(), template),
        (paths::GENERATION_CONFIG.to_owned(), pretty(generation)),
        (
            in_tokenizer_dir("tokenizer_config.json"),
            pretty(tokenizer_config),
        ),
    ])
}

/// The files of `dir` that a model keeps, as far as they are there.
fn of_folder(dir: &Path) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let names = [
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "chat_template.jinja",
        "generation_config.json",
    ];
    let mut files = Vec::new();
    for name in names {
        let path = dir.join(name);
        if path.is_file() || name == names[0] {
            let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
            files.push((in_tokenizer_dir(name), bytes));
        }
    }
    Ok(files)
}

fn in_tokenizer_dir(name: &str) -> String {
    format!("{}/{name}", paths::TOKENIZER_DIR)
}
