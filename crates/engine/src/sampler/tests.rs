//! The sampler against a twin that sorts everything, and by hand.

use super::{Random, Sampler, SamplerOptions, argmax};
use crate::TokenId;

/// Draws for a distribution check.
const N_DRAWS: usize = 40_000;
/// How far a frequency may lie from its expectation, in standard deviations; some 2,000 frequencies are checked, with fixed
/// seeds, and 5 would be exceeded by one in 1.7 million.
const MAX_DEVIATIONS: f64 = 5.0;

/// Everything off, temperature 1.
fn plain() -> SamplerOptions {
    SamplerOptions {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        min_p: 0.0,
        seed: Some(1),
        ..SamplerOptions::default()
    }
}

/// Logits as models have them: many low, few high, some equal.
fn random_logits(random: &mut Random, vocab_size: usize) -> Vec<f32> {
    let is_coarse = random.unit() < 0.3;
    let logit = |_| {
        let x = (random.unit() * random.unit() * random.unit() * 24.0 - 8.0) as f32;
        if is_coarse { x.round() } else { x }
    };
    (0..vocab_size).map(logit).collect()
}

/// Survivors with their probabilities, most likely first: sort everything, filter one after the other.
fn twin(logits: &[f32], options: &SamplerOptions) -> Vec<(u32, f64)> {
    let softmax = |temperature: f64| -> Vec<f64> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let weights: Vec<f64> = logits
            .iter()
            .map(|&logit| ((f64::from(logit) - f64::from(max)) / temperature).exp())
            .collect();
        let total: f64 = weights.iter().sum();
        weights.iter().map(|weight| weight / total).collect()
    };
    let p = softmax(1.0);
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|&a, &b| p[b].total_cmp(&p[a]).then(a.cmp(&b)));
    let highest = p[ids[0]];
    if options.top_p < 1.0 {
        let mut sum = 0.0;
        let mut kept = Vec::new();
        for id in ids {
            if kept.is_empty() || sum < f64::from(options.top_p) {
                kept.push(id);
            }
            sum += p[id];
        }
        ids = kept;
    }
    ids.retain(|&id| p[id] >= f64::from(options.min_p) * highest);
    if options.top_k > 0 {
        ids.truncate(options.top_k as usize);
    }
    let warm = softmax(f64::from(options.temperature));
    let total: f64 = ids.iter().map(|&id| warm[id]).sum();
    ids.iter()
        .map(|&id| (id as u32, warm[id] / total))
        .collect()
}

fn survivors(sampler: &Sampler) -> Vec<u32> {
    let mut candidates = sampler.candidates.clone();
    candidates.sort_by(|a, b| a.order(b));
    candidates.iter().map(|candidate| candidate.id).collect()
}

/// Some combination of filters, off ones included.
fn random_options(random: &mut Random) -> SamplerOptions {
    let mut pick = |values: &[f32]| values[(random.unit() * values.len() as f64) as usize];
    SamplerOptions {
        temperature: pick(&[0.2, 0.7, 1.0, 1.5]),
        top_k: pick(&[0.0, 0.0, 1.0, 3.0, 40.0, 150.0, 5_000.0]) as u32,
        top_p: pick(&[1.0, 1.0, 0.0, 0.31, 0.52, 0.93, 0.9991]),
        min_p: pick(&[0.0, 0.0, 0.013, 0.21]),
        seed: Some((random.unit() * 1e9) as u64),
        ..SamplerOptions::default()
    }
}

#[test]
fn survivors_equal_the_twin_that_sorts_everything() {
    let seed = 20_250_611;
    let mut random = Random::new(seed);
    for case in 0..600 {
        let vocab_size = 1 + (random.unit() * random.unit() * 3_000.0) as usize;
        let logits = random_logits(&mut random, vocab_size);
        let options = random_options(&mut random);
        let mut sampler = Sampler::new(&options, vocab_size);
        let room = sampler.candidates.capacity();
        let drawn = sampler.sample(&logits);
        let expected: Vec<u32> = twin(&logits, &options).iter().map(|&(id, _)| id).collect();
        let what = format!("case {case} of seed {seed}, {vocab_size} tokens, {options:?}");
        assert_eq!(survivors(&sampler), expected, "{what}");
        assert!(expected.contains(&drawn.0), "{what}");
        assert_eq!(
            sampler.candidates.capacity(),
            room,
            "a draw allocates nothing: {what}"
        );
    }
}

#[test]
fn frequencies_follow_the_distribution() {
    let seed = 7;
    let mut random = Random::new(seed);
    for case in 0..60 {
        let logits = random_logits(&mut random, 40);
        let options = random_options(&mut random);
        let mut sampler = Sampler::new(&options, logits.len());
        let mut counts = vec![0_u32; logits.len()];
        for _ in 0..N_DRAWS {
            counts[sampler.sample(&logits).index()] += 1;
        }
        for (id, p) in twin(&logits, &options) {
            let expected = p * N_DRAWS as f64;
            let deviation = (expected * (1.0 - p)).sqrt().max(1.0);
            let actual = f64::from(counts[id as usize]);
            assert!(
                (actual - expected).abs() <= MAX_DEVIATIONS * deviation,
                "token {id}: {actual} draws, {expected:.1} expected: case {case} of seed {seed}, {options:?}"
            );
        }
    }
}

#[test]
fn temperature_weighs_only_what_the_filters_left() {
    // Probabilities 0.5, 0.3, 0.2. Cooled to 0.2 the first alone has 0.92, but top-p judges the model's own distribution.
    let logits = [0.5_f32.ln(), 0.3_f32.ln(), 0.2_f32.ln()];
    let options = SamplerOptions {
        temperature: 0.2,
        top_p: 0.75,
        ..plain()
    };
    let mut sampler = Sampler::new(&options, 3);
    sampler.sample(&logits);
    assert_eq!(survivors(&sampler), [0, 1]);
}

#[test]
fn one_seed_gives_one_text_and_two_seeds_two() {
    let logits = random_logits(&mut Random::new(3), 500);
    let draws = |seed, top_k| -> Vec<u32> {
        let options = SamplerOptions {
            seed: Some(seed),
            top_k,
            ..plain()
        };
        let mut sampler = Sampler::new(&options, logits.len());
        assert_eq!(sampler.seed(), seed);
        (0..50).map(|_| sampler.sample(&logits).0).collect()
    };
    for top_k in [0, 64] {
        assert_eq!(draws(5, top_k), draws(5, top_k));
        assert_ne!(draws(5, top_k), draws(6, top_k));
    }
}

#[test]
fn without_a_seed_the_system_gives_one_that_repeats_the_draws() {
    let logits = random_logits(&mut Random::new(3), 500);
    let mut first = Sampler::new(
        &SamplerOptions {
            seed: None,
            ..plain()
        },
        500,
    );
    let again = SamplerOptions {
        seed: Some(first.seed()),
        ..plain()
    };
    let mut second = Sampler::new(&again, 500);
    for _ in 0..50 {
        assert_eq!(first.sample(&logits), second.sample(&logits));
    }
}

#[test]
fn temperature_zero_takes_the_first_of_the_most_likely() {
    let options = SamplerOptions {
        temperature: 0.0,
        ..SamplerOptions::default()
    };
    let mut sampler = Sampler::new(&options, 5);
    assert_eq!(sampler.sample(&[1.0, 3.0, -2.0, 3.0, 0.0]), TokenId(1));
    assert_eq!(sampler.sample(&[-0.0, 0.0, -1.0, 0.0, -0.0]), TokenId(0));
}

#[test]
fn penalties_are_those_computed_by_hand() {
    let options = SamplerOptions {
        repetition_penalty: 2.0,
        presence_penalty: 0.25,
        frequency_penalty: 0.125,
        ..plain()
    };
    let mut sampler = Sampler::new(&options, 6);
    sampler.observe_prompt(&[TokenId(0), TokenId(1), TokenId(0)]);
    for id in [2, 2, 3] {
        sampler.observe(TokenId(id));
    }
    let logits = [4.0, -4.0, 1.0, -1.0, 7.0, 0.0];
    // Prompt: 4 / 2 and -4 * 2. Answer: 1 / 2 - 0.25 - 2 * 0.125 and -1 * 2 - 0.25 - 0.125. Twice the same: nothing adds up.
    for _ in 0..2 {
        sampler.adjust(&logits, None);
        assert_eq!(sampler.adjusted, [2.0, -8.0, 0.0, -2.375, 7.0, 0.0]);
    }
}

#[test]
fn a_penalty_turns_the_greedy_choice() {
    let options = SamplerOptions {
        temperature: 0.0,
        presence_penalty: 1.5,
        ..plain()
    };
    let mut sampler = Sampler::new(&options, 2);
    // The prompt does not count for presence.
    sampler.observe_prompt(&[TokenId(1)]);
    assert_eq!(sampler.sample(&[2.0, 3.0]), TokenId(1));
    sampler.observe(TokenId(1));
    assert_eq!(sampler.sample(&[2.0, 3.0]), TokenId(0));
}

#[test]
fn no_logit_and_no_option_panics() {
    let values = [
        0.0,
        1.0,
        -1.0,
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MIN_POSITIVE,
        f32::MAX,
    ];
    let mut random = Random::new(11);
    let mut pick = move || values[(random.unit() * values.len() as f64) as usize];
    for _ in 0..20_000 {
        let options = SamplerOptions {
            temperature: pick(),
            top_k: pick() as u32,
            top_p: pick(),
            min_p: pick(),
            repetition_penalty: pick(),
            presence_penalty: pick(),
            frequency_penalty: pick(),
            seed: Some(0),
        };
        let mut sampler = Sampler::new(&options, 4);
        sampler.observe(TokenId(2));
        let logits = [pick(), pick(), pick(), pick()];
        let drawn = sampler.sample(&logits);
        assert!(drawn.index() < 4);
    }
}

#[test]
fn nan_is_never_chosen_where_there_is_a_number() {
    assert_eq!(argmax(&[f32::NAN, f32::NEG_INFINITY, f32::NAN]), 1);
    assert_eq!(argmax(&[f32::NAN, f32::NAN]), 0);
    for options in [
        plain(),
        SamplerOptions {
            top_k: 2,
            ..plain()
        },
        SamplerOptions {
            top_p: 0.9,
            ..plain()
        },
    ] {
        let mut sampler = Sampler::new(&options, 3);
        for _ in 0..100 {
            assert_ne!(sampler.sample(&[1.0, f32::NAN, 2.0]), TokenId(1));
        }
    }
}

#[test]
fn memory_is_what_was_promised() {
    let bytes = |options: &SamplerOptions| Sampler::new(options, 262_144).resident_bytes();
    assert_eq!(bytes(&SamplerOptions::default()), 2 * 64 * 8);
    assert_eq!(bytes(&plain()), 262_144 * 8);
    let penal = SamplerOptions {
        repetition_penalty: 1.1,
        ..plain()
    };
    assert_eq!(bytes(&penal), 262_144 * (8 + 13));
}

#[test]
fn draws_are_those_of_the_published_generator() {
    // splitmix64 of 0 begins so; xoshiro256** from the state 1, 2, 3, 4 gives 11520, 0, 1509978240 first.
    assert_eq!(Random::new(0).state[0], 0xe220_a839_7b1d_cdaf);
    let mut random = Random {
        state: [1, 2, 3, 4],
    };
    assert_eq!(
        [random.next(), random.next(), random.next()],
        [11_520, 0, 1_509_978_240]
    );
}

#[test]
fn a_mask_leaves_only_what_it_allows_whatever_else_is_asked_for() {
    let mut random = Random::new(11);
    for round in 0..300 {
        let vocab_size = 1 + (random.unit() * 200.0) as usize;
        let mut options = random_options(&mut random);
        if round % 3 == 0 {
            options.temperature = 0.0;
        }
        let mut sampler = Sampler::new(&options, vocab_size).with_masks();
        let logits = random_logits(&mut random, vocab_size);
        let share = random.unit();
        let mut mask: Vec<u32> = vec![0; vocab_size.div_ceil(32)];
        let allowed: Vec<u32> = (0..vocab_size as u32)
            .filter(|_| random.unit() < share)
            .collect();
        for id in &allowed {
            mask[*id as usize / 32] |= 1 << (id % 32);
        }
        // A mask may end early, and may have bits beyond the vocabulary.
        while mask.last() == Some(&0) {
            mask.pop();
        }
        mask.resize(mask.len() + 1, 0);
        let greedy = allowed.iter().copied().max_by(|&a, &b| {
            let by_logit = logits[a as usize].total_cmp(&logits[b as usize]);
            by_logit.then(b.cmp(&a))
        });
        for _ in 0..5 {
            let id = sampler.sample_allowed(&logits, Some(&mask));
            assert_eq!(id.is_some(), !allowed.is_empty());
            let Some(id) = id else { continue };
            assert!(allowed.contains(&id.0), "round {round}");
            if options.temperature == 0.0 {
                assert_eq!(Some(id.0), greedy, "round {round}");
            }
            sampler.observe(id);
            if options.has_penalties() {
                break;
            }
        }
    }
}

#[test]
fn a_mask_holds_where_logits_are_no_numbers() {
    let greedy = SamplerOptions {
        temperature: 0.0,
        ..plain()
    };
    let mut sampler = Sampler::new(&greedy, 3).with_masks();
    let none = [f32::NAN, 1.0, f32::NEG_INFINITY];
    assert_eq!(
        sampler.sample_allowed(&none, Some(&[0b101])),
        Some(TokenId(0))
    );
    assert_eq!(sampler.sample_allowed(&none, Some(&[0b1000])), None);
    assert_eq!(sampler.sample_allowed(&none, Some(&[])), None);
}

#[test]
fn biases_come_before_penalties() {
    let options = SamplerOptions {
        repetition_penalty: 2.0,
        ..plain()
    };
    let mut sampler =
        Sampler::new(&options, 3).with_biases(&[(TokenId(0), 3.0), (TokenId(2), -1.0)]);
    sampler.observe_prompt(&[TokenId(0)]);
    sampler.adjust(&[1.0, 5.0, 2.0], None);
    assert_eq!(sampler.adjusted, [2.0, 5.0, 1.0]);
}

#[test]
fn logprobs_are_those_of_a_sorted_twin() {
    let mut random = Random::new(12);
    for n in [0, 1, 5, 20, 33] {
        let mut logprobs = super::Logprobs::new(n);
        for _ in 0..20 {
            let vocab_size = 1 + (random.unit() * 300.0) as usize;
            let logits = random_logits(&mut random, vocab_size);
            let total: f64 = logits.iter().map(|&z| f64::from(z).exp()).sum();
            let expected = |id: u32| f64::from(logits[id as usize]) - total.ln();
            let mut ids: Vec<u32> = (0..vocab_size as u32).collect();
            ids.sort_by(|&a, &b| {
                logits[b as usize]
                    .total_cmp(&logits[a as usize])
                    .then(a.cmp(&b))
            });
            ids.truncate(n.min(super::MAX_LOGPROBS));
            let chosen = TokenId((random.unit() * vocab_size as f64) as u32);
            // f32 results of sums in f64.
            let is_close = |actual: f32, expected: f64| (f64::from(actual) - expected).abs() < 1e-5;
            assert!(is_close(logprobs.of(&logits, chosen), expected(chosen.0)));
            let top: Vec<u32> = logprobs.top().iter().map(|(id, _)| id.0).collect();
            assert_eq!(top, ids);
            assert!(
                logprobs
                    .top()
                    .iter()
                    .all(|&(id, p)| is_close(p, expected(id.0)))
            );
        }
    }
}
