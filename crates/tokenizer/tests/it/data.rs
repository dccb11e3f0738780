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

/// Seed of the random tests unless `OUZEL_SEED` gives another.
const SEED: u64 = 20_260_709;

/// SplitMix64: enough for tests, and the same everywhere.
pub struct Random(u64);

impl Random {
    /// Prints the seed, so that a failing run can be repeated with `OUZEL_SEED`.
    pub fn new(test: &str) -> Random {
        let seed = std::env::var("OUZEL_SEED")
            .ok()
            .map_or(SEED, |s| s.parse().expect("OUZEL_SEED is a number"));
        println!("{test}: OUZEL_SEED={seed}");
        Random(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }

    /// Any scalar value; three in four from the planes and scripts that texts use.
    pub fn scalar(&mut self) -> char {
        let ranges = [
            (0x20, 0x7f),
            (0, 0x300),
            (0x900, 0xe00),
            (0x2000, 0x3100),
            (0x4e00, 0xa000),
            (0x1_f300, 0x1_fa00),
            (0xfd00, 0x1_0000),
            (0, 0x11_0000),
        ];
        let (low, high) = ranges[self.below(ranges.len())];
        loop {
            if let Some(c) = char::from_u32(low + self.below((high - low) as usize) as u32) {
                return c;
            }
        }
    }

    /// A text of some fragments that are hard for a tokenizer.
    pub fn text(&mut self, tokenizer: &Tokenizer) -> String {
        const CODE: [&str; 10] = [
            "> </",
            ">\u{2581}</",
            "<div> </div>\n",
            "> <",
            " > </",
            "fn main() {\n\t\tx\n}",
            "\r\n",
            "\u{2581}",
            "<0x41>",
            "1234567 89",
        ];
        let mut text = String::new();
        for _ in 0..1 + self.below(7) {
            match self.below(9) {
                0 | 1 => {
                    for _ in 0..1 + self.below(8) {
                        let id = self.below(tokenizer.vocab_size()) as u32;
                        text += &tokenizer
                            .token(id)
                            .expect("an id of the vocabulary")
                            .replace('\u{2581}', " ");
                    }
                }
                2 => {
                    text += tokenizer
                        .token(tokenizer.specials()[self.below(tokenizer.specials().len())])
                        .expect("a special token")
                }
                3 => {
                    let literal = tokenizer
                        .token(tokenizer.specials()[self.below(tokenizer.specials().len())])
                        .expect("a special token");
                    text += &literal[..self.below(literal.len())];
                }
                4 => {
                    text += &self
                        .pick(&["\n", " ", "\t", " \n", "\u{2581} ", "\n\n\n "])
                        .repeat(1 + self.below(70))
                }
                5 => text.extend((0..1 + self.below(12)).map(|_| self.scalar())),
                6 => text += &self.scalar().to_string().repeat(1 + self.below(200)),
                7 => text += self.pick(&CODE),
                _ => {
                    text += self.pick(&[
                        "The quick brown fox",
                        " jumps",
                        "\u{1f469}\u{200d}\u{1f680}",
                        "\u{1f1e9}\u{1f1ea}",
                        "e\u{301}",
                        "\u{ac00}\u{ac01}",
                        " \u{645}\u{631}\u{62d}\u{628}\u{627}",
                    ])
                }
            }
        }
        text
    }
}
