//! The work of encoding, counted instead of timed.

use super::*;

fn demo() -> Tokenizer {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/demo/tokenizer.json");
    let json = std::fs::File::open(path).expect("the demo's tokenizer");
    Tokenizer::from_image(Tokenizer::compile(json).expect("it compiles")).expect("it opens")
}

/// Symbols and heap entries a character may cost: one symbol, its own entry, and two for the merge it goes into. A character
/// outside the vocabulary is up to four symbols, but these merge with nothing.
const MAX_STEPS_PER_CHAR: u64 = 4;

#[test]
fn work_stays_linear_without_a_newline_or_a_space() {
    let tokenizer = demo();
    for unit in [
        "a",
        "abc",
        "the",
        "na\u{ef}ve",
        "\u{1f680}",
        "\n",
        " ",
        "lalilu, ",
        "> </",
    ] {
        for n_tokens in [1_000, 8_000, 64_000] {
            let text = unit.repeat(n_tokens);
            let n_chars = text.chars().count() as u64;
            let (ids, steps) = tokenizer.encode_counting(&text, Mode::Plain);
            assert!(
                steps <= MAX_STEPS_PER_CHAR * n_chars,
                "{steps} steps for {n_chars} characters of {unit:?}"
            );
            assert_eq!(tokenizer.decode(&ids, false), text);
        }
    }
}

#[test]
fn work_is_that_of_the_pieces() {
    let tokenizer = demo();
    let piece = tokenizer.encode_counting(" word", Mode::Plain).1;
    assert_eq!(
        tokenizer
            .encode_counting(&" word".repeat(500), Mode::Plain)
            .1,
        500 * piece
    );
}
