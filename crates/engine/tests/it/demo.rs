//! The demo model against its goldens and against itself.

use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use ouzel_engine::{Model, Precision, Session, TokenId};
use serde_json::Value;
use tempfile::TempDir;

use crate::{argmax, installed, repository, session};

/// The goldens were confirmed by two f32 implementations within 1.2e-5 of each other (testdata/README.md); ours adds its own
/// rounding.
const GOLDEN_TOLERANCE: f32 = 5e-4;
/// What int8 activations and f16 keys and values may cost, in nats a token (ARCHITECTURE.md, the two precisions).
const FAST_NATS_A_TOKEN: f64 = 0.01;
/// The answers of the fast precision are read by people: at most one token in fifty may differ from the exact choice.
const MIN_AGREEMENT: f64 = 0.98;

pub struct Demo {
    pub model: Arc<Model>,
    _dir: TempDir,
}

pub static DEMO: LazyLock<Demo> = LazyLock::new(|| {
    let (dir, path) = installed("models/demo");
    Demo {
        model: Arc::new(Model::open(&path).expect("the demo model")),
        _dir: dir,
    }
});

fn json(path: &str) -> Value {
    let text = std::fs::read_to_string(repository(path)).expect(path);
    serde_json::from_str(&text).expect(path)
}

fn ids(value: &Value) -> Vec<TokenId> {
    let list = value.as_array().expect("a list of ids");
    list.iter()
        .map(|id| TokenId(id.as_u64().expect("an id") as u32))
        .collect()
}

/// 1,314 tokens, more than twice the window.
pub fn long_prompt() -> Vec<TokenId> {
    ids(&json("testdata/demo/long-prompt.json")[0])
}

pub fn prefill(session: &mut Session, ids: &[TokenId]) {
    session
        .prefill(ids, &mut |_| ControlFlow::Continue(()))
        .expect("a prefill");
}

#[test]
fn prompts_have_the_golden_logits_and_the_golden_answers() {
    let golden = json("testdata/demo/golden.json");
    for prompt in golden["prompts"].as_array().expect("prompts") {
        let prompt_ids = ids(&prompt["ids"]);
        let mut exact = session(&DEMO.model, Precision::Exact, |_| {});
        prefill(&mut exact, &prompt_ids);
        let mut worst = 0_f32;
        let top = ids(&prompt["top20_ids"]);
        for (id, expected) in top
            .iter()
            .zip(prompt["top20_logits"].as_array().expect("logits"))
        {
            let expected = expected.as_f64().expect("a logit") as f32;
            worst = worst.max((exact.logits()[id.index()] - expected).abs());
        }
        assert!(
            worst <= GOLDEN_TOLERANCE,
            "{}: off by {worst}",
            prompt["prompt"]
        );
        println!("{}: top-20 logits within {worst:.1e}", prompt["prompt"]);

        for precision in [Precision::Exact, Precision::Fast] {
            let mut session = session(&DEMO.model, precision, |_| {});
            prefill(&mut session, &prompt_ids);
            let mut next = argmax(session.logits());
            for (i, &expected) in ids(&prompt["greedy_ids"]).iter().enumerate() {
                assert_eq!(
                    next, expected,
                    "{precision:?} token {i} of {}",
                    prompt["greedy_text"]
                );
                next = argmax(session.decode(next).expect("a decode"));
            }
        }
    }
}

/// Negative log-likelihood of each token after the first, and the most likely token at each position.
fn score(session: &mut Session, ids: &[TokenId]) -> (Vec<f64>, Vec<TokenId>) {
    let (mut nll, mut best) = (Vec::new(), Vec::new());
    session
        .prefill_all(ids, &mut |i, logits| {
            best.push(argmax(logits));
            if let Some(next) = ids.get(i + 1) {
                let max = f64::from(logits[best[i].index()]);
                let sum: f64 = logits.iter().map(|&z| (f64::from(z) - max).exp()).sum();
                nll.push(max + sum.ln() - f64::from(logits[next.index()]));
            }
        })
        .expect("a forward pass");
    (nll, best)
}

#[test]
fn fast_is_as_likely_as_exact() {
    let text = long_prompt();
    let of = |precision| {
        score(
            &mut session(&DEMO.model, precision, |o| o.logits_rows = 16),
            &text,
        )
    };
    let ((exact, exact_best), (fast, fast_best)) = (of(Precision::Exact), of(Precision::Fast));
    let mean = |nll: &[f64]| nll.iter().sum::<f64>() / nll.len() as f64;
    let agreeing = exact_best
        .iter()
        .zip(&fast_best)
        .filter(|(a, b)| a == b)
        .count();
    let agreement = agreeing as f64 / exact_best.len() as f64;
    println!(
        "{} tokens: exact {:.4} nats a token, fast {:.4}, argmax agreement {:.2} %",
        text.len(),
        mean(&exact),
        mean(&fast),
        100.0 * agreement
    );
    assert!((mean(&fast) - mean(&exact)).abs() <= FAST_NATS_A_TOKEN);
    assert!(agreement >= MIN_AGREEMENT, "{agreement}");
}

#[test]
fn a_prompt_longer_than_the_window_has_one_result_however_it_is_cut() {
    let text = long_prompt();
    assert!(text.len() >= 1300 && DEMO.model.config().sliding_window == 512);
    let k = DEMO.model.config().experts_per_token as u32;
    let all = DEMO.model.config().n_experts as u32;
    for precision in [Precision::Exact, Precision::Fast] {
        let last_logits = |chunk: u32, slots: u32, threads: u32| {
            let mut session = session(&DEMO.model, precision, |options| {
                options.chunk = Some(chunk);
                options.slots = Some(slots);
                options.threads = Some(threads);
            });
            prefill(&mut session, &text);
            session
                .logits()
                .iter()
                .map(|z| z.to_bits())
                .collect::<Vec<_>>()
        };
        let whole = last_logits(4096, 8, 2);
        for (chunk, slots, threads) in [
            (1, all, 2),
            (64, 0, 1),
            (500, 1, 2),
            (513, k - 1, 1),
            (4096, k, 2),
        ] {
            assert!(
                last_logits(chunk, slots, threads) == whole,
                "{precision:?}: chunk {chunk}, {slots} slots, {threads} threads"
            );
        }
        // The first turn lies outside every window of the last token, and still counts: full layers see it.
        let mut changed = text.clone();
        changed[7] = TokenId(text[7].0 + 1);
        let mut session = session(&DEMO.model, precision, |_| {});
        prefill(&mut session, &changed);
        let other: Vec<u32> = session.logits().iter().map(|z| z.to_bits()).collect();
        assert!(
            other != whole,
            "{precision:?}: a token near the start does not matter"
        );
    }
}

#[test]
fn attention_over_more_than_one_span_of_positions_has_one_result() {
    let text = long_prompt();
    // Spans are cut every 2,048 positions (budget.rs): this crosses one cut, in the middle of a block and between blocks.
    let longer: Vec<TokenId> = text.iter().chain(&text).copied().take(2100).collect();
    for precision in [Precision::Exact, Precision::Fast] {
        let logits = |chunk: u32, threads: u32| {
            let mut session = session(&DEMO.model, precision, |options| {
                options.chunk = Some(chunk);
                options.threads = Some(threads);
                options.slots = Some(32);
            });
            prefill(&mut session, &longer[..2090]);
            let mut all: Vec<u32> = session.logits().iter().map(|z| z.to_bits()).collect();
            for &id in &longer[2090..] {
                all.extend(
                    session
                        .decode(id)
                        .expect("a decode")
                        .iter()
                        .map(|z| z.to_bits()),
                );
            }
            all
        };
        let whole = logits(4096, 2);
        assert!(logits(100, 1) == whole, "{precision:?}: chunks of 100");
        assert!(logits(2048, 2) == whole, "{precision:?}: chunks of 2,048");
    }
}

#[test]
fn a_cancelled_prefill_keeps_whole_chunks_and_can_go_on() {
    let text = long_prompt();
    let text = &text[..300];
    let chunk = |options: &mut ouzel_engine::Options| options.chunk = Some(100);
    let mut whole = session(&DEMO.model, Precision::Fast, chunk);
    prefill(&mut whole, text);
    let mut cut = session(&DEMO.model, Precision::Fast, chunk);
    let error = cut
        .prefill(text, &mut |progress| {
            if progress.done >= 200 {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })
        .expect_err("cancelled");
    assert!(matches!(error, ouzel_engine::EngineError::Cancelled));
    assert_eq!(cut.position(), 200);
    prefill(&mut cut, &text[200..]);
    assert!(cut.logits() == whole.logits());
}

#[test]
fn tokens_that_do_not_fit_or_do_not_exist_change_nothing() {
    let mut session = session(&DEMO.model, Precision::Fast, |options| {
        options.max_context = Some(20)
    });
    prefill(&mut session, &[TokenId(2); 15]);
    let mut go_on = |_| ControlFlow::Continue(());
    let full = session
        .prefill(&[TokenId(2); 6], &mut go_on)
        .expect_err("no room");
    assert!(
        matches!(
            full,
            ouzel_engine::EngineError::ContextFull { capacity: 20, .. }
        ),
        "{full}"
    );
    let unknown = session
        .prefill(&[TokenId(8192)], &mut go_on)
        .expect_err("no such token");
    assert!(
        matches!(unknown, ouzel_engine::EngineError::UnknownToken { .. }),
        "{unknown}"
    );
    assert_eq!(session.position(), 15);
}

#[test]
fn a_trace_shows_every_layer_of_every_token_and_leaves_the_context_of_a_prefill() {
    // Several chunks of several blocks.
    let prompt: Vec<TokenId> = (0..500).map(|n| TokenId(300 + 7 * n)).collect();
    let chunked = |options: &mut ouzel_engine::Options| options.chunk = Some(200);
    let mut traced = session(&DEMO.model, Precision::Exact, chunked);
    let config = DEMO.model.config();
    let mut seen = vec![0; config.n_layers()];
    traced
        .trace_layers(&prompt, &mut |l, trace| {
            assert_eq!(trace.first, seen[l.index()], "chunks come in order");
            let n = trace.chosen.len();
            assert_eq!(trace.hidden.len(), n * config.hidden_size);
            for chosen in trace.chosen {
                assert_eq!(chosen.len(), config.experts_per_token);
                assert!(chosen.iter().all(|&e| (e as usize) < config.n_experts));
            }
            seen[l.index()] += n;
        })
        .expect("a trace");
    assert_eq!(seen, vec![prompt.len(); config.n_layers()]);
    let mut plain = session(&DEMO.model, Precision::Exact, chunked);
    prefill(&mut plain, &prompt);
    let next = TokenId(400);
    assert_eq!(
        traced.decode(next).expect("a token"),
        plain.decode(next).expect("a token")
    );
}
