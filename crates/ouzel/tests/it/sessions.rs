//! What a session keeps between answers, and what it refuses.

use ouzel::{
    Cancel, EngineError, Error, Event, GenerateOptions, Message, Options, PrefixOptions, StopReason,
};

use crate::demo::{ask, greedy, listen, model, options, session};

const FIRST: &str = "What is a thrush?";
const SECOND: &str = "And a fieldfare?";

#[test]
fn a_second_turn_reuses_the_first_and_answers_as_a_fresh_session() {
    let mut warm = session();
    let mut messages = vec![Message::user(FIRST)];
    let (answer, first) = ask(&mut warm, &messages, &greedy());
    assert_eq!(first.reused_tokens, 0);
    messages.extend([Message::assistant(answer), Message::user(SECOND)]);
    let (text, second) = ask(&mut warm, &messages, &greedy());
    assert!(second.reused_tokens > 0);
    assert_eq!(
        second.prefill_tokens as usize,
        second.prompt_tokens - second.reused_tokens
    );
    let (fresh, cold) = ask(&mut session(), &messages, &greedy());
    assert_eq!((text, second.prompt_tokens), (fresh, cold.prompt_tokens));
}

#[test]
fn a_repeated_question_costs_one_token() {
    let mut session = session();
    let messages = [Message::user(FIRST)];
    let (first, _) = ask(&mut session, &messages, &greedy());
    let (again, stats) = ask(&mut session, &messages, &greedy());
    assert_eq!((again, stats.prefill_tokens), (first, 1));
}

#[test]
fn a_conversation_begins_anew_where_nothing_agrees() {
    let mut session = session();
    ask(&mut session, &[Message::user(FIRST)], &greedy());
    session.reset();
    assert!(session.tokens().is_empty());
    let (_, stats) = ask(&mut session, &[Message::user(FIRST)], &greedy());
    assert_eq!(stats.reused_tokens, 0);
}

#[test]
fn a_departure_that_sliding_layers_forgot_starts_again_and_answers_the_same() {
    let options = Options {
        max_context: Some(1024),
        ..options()
    };
    let window = model().config().sliding_window;
    let fresh = || model().session(&options).expect("the demo loads");
    let text = "A thrush is a songbird. ".repeat(window / 5);
    let long = [Message::user(text + "What is a thrush?")];
    let short = [Message::user(
        "A thrush is a songbird. What is a fieldfare?",
    )];
    let mut warm = fresh();
    let few = GenerateOptions {
        max_new: 8,
        ..greedy()
    };
    let (_, stats) = ask(&mut warm, &long, &few);
    assert!(stats.prompt_tokens > window, "{}", stats.prompt_tokens);
    let (answer, stats) = ask(&mut warm, &short, &few);
    assert_eq!(stats.reused_tokens, 0);
    assert_eq!(answer, ask(&mut fresh(), &short, &few).0);
}

#[test]
fn a_cancelled_answer_ends_between_two_tokens_and_can_be_had_again() {
    let mut session = session();
    let messages = [Message::user(FIRST)];
    let cancel = Cancel::new();
    let generation = session
        .chat(&messages, &greedy(), &cancel)
        .expect("it fits");
    let (mut part, mut stats) = (String::new(), None);
    for event in generation {
        match event.expect("the answer goes on") {
            Event::Answer(piece) => {
                part += &piece;
                cancel.clone().cancel();
            }
            Event::Done(done) => stats = Some(done),
            _ => {}
        }
    }
    let stats = stats.expect("a cancelled answer says what it took");
    assert_eq!(stats.stop, StopReason::Cancelled);
    let (whole, _) = ask(&mut session, &messages, &greedy());
    assert!(
        whole.starts_with(&part) && whole.len() > part.len(),
        "{part:?}"
    );
}

#[test]
fn a_cancelled_prompt_keeps_its_chunks() {
    let options = Options {
        chunk: Some(4),
        ..options()
    };
    let mut session = model().session(&options).expect("the demo loads");
    let messages = [Message::user(FIRST)];
    let cancel = Cancel::new();
    let generation = session
        .chat(&messages, &greedy(), &cancel)
        .expect("it fits");
    let mut seen = Vec::new();
    for event in generation {
        match event.expect("the prompt goes on") {
            Event::Prompt { done, .. } => {
                seen.push(done);
                if done == 8 {
                    cancel.cancel();
                }
            }
            Event::Done(stats) => {
                assert_eq!((stats.stop, stats.new_tokens), (StopReason::Cancelled, 0))
            }
            event => panic!("{event:?} after the stop"),
        }
    }
    // A chunk of four has twelve layers, and counts as it goes on.
    assert_eq!((seen, session.tokens().len()), ((1..=8).collect(), 8));
    let (text, stats) = ask(&mut session, &messages, &greedy());
    assert_eq!(stats.reused_tokens, 8);
    assert_eq!(
        text,
        ask(&mut crate::demo::session(), &messages, &greedy()).0
    );
}

#[test]
fn a_prompt_that_leaves_no_room_changes_nothing() {
    let prompt = model()
        .chat_prompt(&[Message::user(FIRST)], false)
        .expect("it renders");
    let n = prompt.ids.len();
    let sized = |context: usize| {
        let options = Options {
            max_context: Some(context as u32),
            ..options()
        };
        model().session(&options).expect("the demo loads")
    };
    let mut exact = sized(n);
    let short = prompt.ids[..n - 1].to_vec();
    let (_, stats) = listen(
        exact
            .generate(short, &greedy(), &Cancel::new())
            .expect("one token fits"),
    );
    assert!(stats.new_tokens > 0);
    let held = exact.tokens().to_vec();
    match exact.chat(&[Message::user(FIRST)], &greedy(), &Cancel::new()) {
        Err(Error::ContextFull { needed, capacity }) => assert_eq!((needed, capacity), (n + 1, n)),
        other => panic!("{:?}", other.map(|_| "an answer")),
    }
    assert_eq!(exact.tokens(), held);
    let (_, stats) = ask(&mut sized(n + 1), &[Message::user(FIRST)], &greedy());
    assert_eq!(stats.stop, StopReason::ContextFull);
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let mut session = session();
    let (options, cancel) = (GenerateOptions::default(), Cancel::new());
    assert!(matches!(
        session.chat(&[], &options, &cancel),
        Err(Error::EmptyPrompt)
    ));
    assert!(matches!(
        session.complete("", &options, &cancel),
        Err(Error::EmptyPrompt)
    ));
    assert!(matches!(
        session.generate(vec![], &options, &cancel),
        Err(Error::EmptyPrompt)
    ));
    assert!(matches!(
        session.score(&[], &mut |_, _| ()),
        Err(Error::EmptyPrompt)
    ));
    let unknown = session.model().config().vocab_size as u32;
    for ids in [vec![unknown], vec![2, u32::MAX]] {
        let refused = session
            .generate(ids, &options, &cancel)
            .err()
            .expect("no such token");
        assert!(
            matches!(refused, Error::Engine(EngineError::UnknownToken { .. })),
            "{refused}"
        );
    }
}

#[test]
fn a_score_fills_the_context_and_ignores_what_was_there() {
    let ids = model()
        .raw_prompt("A thrush is a songbird.")
        .expect("it encodes")
        .ids;
    let options = Options {
        max_context: Some(ids.len() as u32),
        logits_rows: 3,
        ..options()
    };
    let mut session = model().session(&options).expect("the demo loads");
    let mut rows = Vec::new();
    let vocab_size = session.model().config().vocab_size;
    let first = session.score(&ids, &mut |row, logits| {
        assert_eq!(logits.len(), vocab_size);
        rows.push(row);
    });
    let first = first.expect("it fits");
    assert_eq!(rows, (0..ids.len()).collect::<Vec<_>>());
    assert_eq!(first.nll.len(), ids.len() - 1);
    assert!(first.perplexity().is_some_and(|p| p > 1.0 && p.is_finite()));
    assert_eq!(session.score(&ids, &mut |_, _| ()).expect("it fits"), first);
}

#[test]
fn a_prompt_cancelled_within_a_chunk_keeps_what_came_before_it() {
    let mut session = session();
    let first = [Message::user(FIRST)];
    ask(&mut session, &first, &greedy());
    let held = session.tokens().to_vec();
    // Continues what is held, at length, but within the window: nothing is overwritten.
    let mut prompt = held.clone();
    prompt.extend(std::iter::repeat_n(held[5], 100));
    let cancel = Cancel::new();
    let generation = session
        .generate(prompt.clone(), &greedy(), &cancel)
        .expect("it fits");
    let mut n_events = 0;
    for event in generation {
        match event.expect("the prompt goes on") {
            Event::Prompt { done, total } => {
                assert!(held.len() < done && done < total);
                n_events += 1;
                if n_events == 3 {
                    cancel.cancel();
                }
            }
            Event::Done(stats) => assert_eq!(stats.stop, StopReason::Cancelled),
            event => panic!("{event:?} after the stop"),
        }
    }
    assert_eq!(n_events, 3);
    assert_eq!(session.tokens(), held);
    // Dropped half-way it is the same.
    let mut generation = session
        .generate(prompt, &greedy(), &Cancel::new())
        .expect("it fits");
    generation.next();
    drop(generation);
    assert_eq!(session.tokens(), held);
    let few = GenerateOptions {
        max_new: 3,
        ..greedy()
    };
    assert_eq!(
        ask(&mut session, &first, &few).0,
        ask(&mut crate::demo::session(), &first, &few).0
    );
}

#[test]
fn a_long_conversation_comes_back_after_another_one_and_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options {
        max_context: Some(1024),
        prefixes: Some(PrefixOptions {
            dir: Some(dir.path().join("kept")),
            ..PrefixOptions::default()
        }),
        ..options()
    };
    let few = GenerateOptions {
        max_new: 8,
        ..greedy()
    };
    let open = || model().session(&options).expect("the demo loads");
    let window = model().config().sliding_window;
    let text = "A thrush is a songbird. ".repeat(window / 5);
    let long = [Message::user(text + "What is a thrush?")];
    let mut session = open();
    let (cold, stats) = ask(&mut session, &long, &few);
    assert!(stats.prompt_tokens > window && stats.reused_tokens == 0);
    ask(&mut session, &[Message::user(FIRST)], &few);
    let kept = session.prefix_stats().expect("prefixes are kept");
    assert!(kept.n_stretches > 2 && kept.disk_bytes > 0, "{kept:?}");
    for restarted in [false, true] {
        if restarted {
            drop(session);
            session = open();
        }
        let (warm, stats) = ask(&mut session, &long, &few);
        assert_eq!(stats.reused_tokens, stats.prompt_tokens - 1);
        assert_eq!(warm, cold);
    }
}
