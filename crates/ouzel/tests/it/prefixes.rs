//! What is kept of conversations, through the door: where another one continues, and that it answers as if nothing had been kept.

use std::path::Path;

use ouzel::{GenerateOptions, Message, Options, PrefixOptions, Session};

use crate::demo::{ask, greedy, model, options};

fn few() -> GenerateOptions {
    GenerateOptions {
        max_new: 8,
        ..greedy()
    }
}

fn keeping(dir: &Path, memory_bytes: u64) -> Options {
    Options {
        max_context: Some(1536),
        prefixes: Some(PrefixOptions {
            memory_bytes,
            dir: Some(dir.join("kept")),
            ..PrefixOptions::default()
        }),
        ..options()
    }
}

fn open(options: &Options) -> Session {
    model().session(options).expect("the demo loads")
}

/// The answer that a session without any past gives.
fn cold(messages: &[Message], how: &GenerateOptions) -> String {
    let options = Options {
        max_context: Some(1536),
        ..options()
    };
    ask(&mut open(&options), messages, how).0
}

/// Tokens of the system's turn, which other conversations begin with.
fn shared_tokens(messages: &[Message]) -> usize {
    let ids = model()
        .chat_prompt(messages, false)
        .expect("it renders")
        .ids;
    let mark = model().tokenizer().expect("the demo's").id_of("<|turn>");
    let mut turns = (0..ids.len()).filter(|&i| Some(ids[i]) == mark);
    turns.nth(1).expect("a second turn")
}

fn conversation(system: &str, question: &str) -> [Message; 2] {
    [Message::system(system), Message::user(question)]
}

#[test]
fn conversations_that_share_a_system_turn_continue_behind_it() {
    let window = model().config().sliding_window;
    // Shorter than the window, and longer than it.
    for n_sentences in [window / 10, window / 5] {
        let system = "A thrush is a songbird. ".repeat(n_sentences);
        for memory_bytes in [0, 64 << 20] {
            let dir = tempfile::tempdir().expect("a folder");
            let options = keeping(dir.path(), memory_bytes);
            let mut session = open(&options);
            let first = conversation(&system, "What is a thrush?");
            let shared = shared_tokens(&first);
            // The name of the next turn is the same, too, and so may be the first words of questions.
            let is_behind = |n: usize| (shared..shared + 8).contains(&n);
            let (answer, stats) = ask(&mut session, &first, &few());
            assert_eq!(stats.reused_tokens, 0);
            assert_eq!(stats.prefill_tokens as usize, stats.prompt_tokens);
            assert_eq!(answer, cold(&first, &few()));
            for question in ["And a fieldfare?", "Where does a wren live?"] {
                let other = conversation(&system, question);
                // As after a conversation about something else.
                session.reset();
                let (answer, stats) = ask(&mut session, &other, &few());
                let what = format!("{shared} tokens, {memory_bytes} bytes of memory, {question}");
                assert!(is_behind(stats.reused_tokens), "{what}: {stats:?}");
                assert_eq!(answer, cold(&other, &few()), "{what}");
            }
            // One stretch for what they share, and for each its prompt and its answer.
            let kept = session.prefix_stats().expect("prefixes are kept");
            assert_eq!(kept.n_stretches, 7, "{kept:?}");
            drop(session);
            let other = conversation(&system, "What is an owl?");
            let (answer, stats) = ask(&mut open(&options), &other, &few());
            assert!(is_behind(stats.reused_tokens), "after a restart: {stats:?}");
            assert_eq!(answer, cold(&other, &few()), "after a restart");
        }
    }
}

#[test]
fn a_short_system_turn_is_not_worth_a_stop() {
    let dir = tempfile::tempdir().expect("a folder");
    let mut session = open(&keeping(dir.path(), 64 << 20));
    ask(
        &mut session,
        &conversation("Be brief.", "What is a thrush?"),
        &few(),
    );
    let kept = session.prefix_stats().expect("prefixes are kept");
    assert_eq!(kept.n_stretches, 2, "{kept:?}");
}

#[test]
fn the_end_of_a_prompt_outlives_an_answer_of_any_length() {
    let stop_ids = model().stop_ids().expect("the demo's").to_vec();
    let long = GenerateOptions {
        max_new: 300,
        logit_bias: stop_ids.iter().map(|&id| (id, f32::NEG_INFINITY)).collect(),
        ..greedy()
    };
    let window = model().config().sliding_window;
    let text = "A thrush is a songbird. ".repeat(window / 6) + "What is a thrush?";
    let messages = [Message::user(text)];
    let expected = cold(&messages, &long);
    // With no slot there is no trail; with one a layer it is soon full.
    for slots in [0, 1] {
        for memory_bytes in [0, 64 << 20] {
            let dir = tempfile::tempdir().expect("a folder");
            let options = Options {
                slots: Some(slots),
                ..keeping(dir.path(), memory_bytes)
            };
            let mut session = open(&options);
            let (answer, stats) = ask(&mut session, &messages, &long);
            assert_eq!((answer, stats.new_tokens), (expected.clone(), 300));
            let (again, stats) = ask(&mut session, &messages, &long);
            let what = format!("{slots} slots, {memory_bytes} bytes of memory");
            assert_eq!(stats.reused_tokens, stats.prompt_tokens - 1, "{what}");
            assert_eq!(again, expected, "{what}");
        }
    }
}
