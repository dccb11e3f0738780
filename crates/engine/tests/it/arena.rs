//! What shares the arena: slots, keys and values, a long prompt; and that tokens are decoded without an allocation.

use ouzel_engine::{Experts, Options, Precision, Sampler, SamplerOptions, Session, TokenId};
use ouzel_storage::counting::count;

use crate::argmax;
use crate::demo::{DEMO, long_prompt, prefill};

/// Room for every expert and a long chunk beside them.
const AMPLE: u64 = 128 << 20;

fn options(memory: u64, threads: u32) -> Options {
    Options {
        memory: Some(memory),
        max_context: Some(2048),
        threads: Some(threads),
        precision: Precision::Fast,
        ..Options::default()
    }
}

fn session(memory: u64, threads: u32) -> Session {
    Session::new(DEMO.model.clone(), &options(memory, threads)).expect("a session")
}

/// The smallest budget that is accepted.
fn least() -> u64 {
    let budget = DEMO.model.plan_budget(&options(AMPLE, 2));
    budget.expect("a budget").smallest_bytes
}

/// Room for some of the experts.
fn scarce() -> u64 {
    least() + (6 << 20)
}

#[test]
fn tokens_are_decoded_without_an_allocation() {
    // One thread: what it asks for is all that computing asks for.
    let mut session = session(scarce(), 1);
    let text = long_prompt();
    let vocab_size = DEMO.model.config().vocab_size;
    let mut sampler = Sampler::new(&SamplerOptions::default(), vocab_size);
    prefill(&mut session, &text[..100]);
    sampler.observe_prompt(&text[..100]);
    let mut step = |session: &mut Session, id| {
        session.decode(id).expect("a decode");
        sampler.sample(session.logits());
    };
    // The first tokens open what the system opens once for each thread.
    text[100..104].iter().for_each(|&id| step(&mut session, id));
    let before = (session.n_slots(), session.stats().misses);
    let mut seen = session.unseen();
    let ((), counts) = count(|| {
        for &id in &text[104..400] {
            step(&mut session, id);
            // Whoever watches the experts costs none either.
            session.look(&mut seen);
        }
    });
    let n_resident = seen.marks.iter().filter(|&&m| m & Experts::RESIDENT != 0);
    assert!((1..=session.n_slots()).contains(&n_resident.count()));
    assert!(session.n_slots() < before.0, "the context took blocks");
    assert!(session.stats().misses > before.1, "experts were read");
    let config = DEMO.model.config();
    let few = config.experts_per_token * config.n_layers();
    assert!(session.n_slots() > few, "tokens looked ahead");
    assert_eq!(counts.n_allocations, 0);
}

#[test]
fn a_prompt_of_one_chunk_reads_each_expert_at_most_once() {
    let mut session = session(AMPLE, 2);
    let text = long_prompt();
    assert!(
        session.budget().chunk >= text.len(),
        "{}",
        session.budget().chunk
    );
    prefill(&mut session, &text);
    let config = DEMO.model.config();
    let stats = session.stats();
    // Nothing was in a slot, so every expert that a layer chose at all is a miss.
    assert_eq!(stats.hits, 0);
    assert!(stats.misses <= (config.n_layers() * config.n_experts) as u64);
    assert_eq!(
        stats.bytes_read,
        stats.misses * DEMO.model.bytes().expert_stride
    );
}

#[test]
fn a_longer_context_takes_slots_and_a_reset_returns_them() {
    let mut session = session(scarce(), 2);
    let text = long_prompt();
    let at_start = session.n_slots();
    assert_eq!(at_start, session.budget().slots_at_start);
    let mut last = at_start;
    for part in text[..1200].chunks(400) {
        prefill(&mut session, part);
        assert!(session.n_slots() < last, "{} of {last}", session.n_slots());
        assert!(session.n_slots() >= session.budget().slots);
        last = session.n_slots();
    }
    let bits =
        |session: &Session| -> Vec<u32> { session.logits().iter().map(|z| z.to_bits()).collect() };
    let first = bits(&session);
    session.reset();
    assert_eq!(session.n_slots(), at_start);
    prefill(&mut session, &text[..1200]);
    assert_eq!(
        bits(&session),
        first,
        "the same tokens, cut otherwise, with warm slots"
    );
}

#[test]
fn a_budget_at_its_least_still_runs_and_says_the_same() {
    let too_small = options(least() - 1, 2);
    assert!(DEMO.model.plan_budget(&too_small).is_err());
    let text = long_prompt();
    let answer = |memory| -> Vec<TokenId> {
        let mut session = session(memory, 2);
        prefill(&mut session, &text[..200]);
        (0..8)
            .map(|_| {
                let next = argmax(session.logits());
                session.decode(next).expect("a decode");
                next
            })
            .collect()
    };
    assert_eq!(answer(least()), answer(AMPLE));
}
