//! Incremental decoding against decoding at once.

use crate::data::{DEMO, REAL, Random};
use crate::oracle::strange_id;
use ouzel_tokenizer::{Detokenizer, Tokenizer};

fn check(name: &str, tokenizer: &Tokenizer) {
    let mut random = Random::new(name);
    for _ in 0..3_000 {
        let mut ids = tokenizer.encode(&random.text(tokenizer));
        for _ in 0..random.below(30) {
            let id = strange_id(&mut random, tokenizer);
            ids.insert(random.below(ids.len() + 1), id);
        }
        for skip in [false, true] {
            let mut detokenizer = Detokenizer::new(tokenizer, skip);
            let mut text = String::new();
            for (n, id) in ids.iter().enumerate() {
                text += detokenizer.push(*id);
                // Nothing but a byte run at the end may be missing.
                let whole = tokenizer.decode(&ids[..=n], skip);
                let held = whole
                    .strip_prefix(&text)
                    .expect("a piece once given stands, unless its run goes on");
                let shown = |id: &&u32| {
                    tokenizer.token(**id).is_some() && !(skip && tokenizer.is_special(**id))
                };
                let run = ids[..=n]
                    .iter()
                    .rev()
                    .filter(shown)
                    .take_while(|id| is_byte(tokenizer, **id))
                    .count();
                assert!(
                    held.chars().count() <= run,
                    "{name}: {held:?} held after {:?}",
                    &ids[..=n]
                );
            }
            text += detokenizer.finish();
            assert_eq!(text, tokenizer.decode(&ids, skip), "{name}: {ids:?}");
        }
    }
}

fn is_byte(tokenizer: &Tokenizer, id: u32) -> bool {
    tokenizer
        .token(id)
        .is_some_and(|text| text.len() == 6 && text.starts_with("<0x"))
}

#[test]
fn pieces_add_up_to_the_whole_and_only_runs_are_held() {
    check("demo", &DEMO);
    check("real", &REAL);
}

#[test]
fn a_detokenizer_goes_on_after_finish() {
    let rocket = [0xf0, 0x9f, 0x9a, 0x80].map(|byte| {
        REAL.id_of(&format!("<0x{byte:02X}>"))
            .expect("a byte token")
    });
    let mut detokenizer = Detokenizer::new(&REAL, true);
    assert_eq!(
        rocket.map(|id| detokenizer.push(id).to_owned()),
        ["", "", "", ""]
    );
    assert_eq!(detokenizer.finish(), "\u{1f680}");
    assert_eq!(detokenizer.finish(), "");
    assert_eq!(detokenizer.push(rocket[0]), "");
    assert_eq!(detokenizer.finish(), "\u{fffd}");
}
