//! Test data, each file loaded once per test binary.

use ouzel_tokenizer::Tokenizer;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A file of the repository.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

pub fn bytes(name: &str) -> Vec<u8> {
    let path = path(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

pub fn json(name: &str) -> Value {
    serde_json::from_slice(&bytes(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The real tokenizer.json, unpacked.
pub fn real_json() -> Vec<u8> {
    use std::io::Read;
    let packed = bytes("testdata/tokenizer/tokenizer.json.xz");
    let mut json = Vec::new();
    lzma_rust2::XzReader::new(packed.as_slice(), false)
        .read_to_end(&mut json)
        .expect("tokenizer.json.xz unpacks");
    json
}

fn compiled(json: &[u8]) -> Tokenizer {
    let image = Tokenizer::compile(json).expect("the tokenizer compiles");
    Tokenizer::from_image(image).expect("its image opens")
}

pub static REAL: LazyLock<Tokenizer> = LazyLock::new(|| compiled(&real_json()));
pub static DEMO: LazyLock<Tokenizer> =
    LazyLock::new(|| compiled(&bytes("models/demo/tokenizer.json")));
