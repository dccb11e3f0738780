//! Guesses, right ones and wrong ones: what a layer gets and what it keeps is as without them.

use super::*;
use crate::Options;
use crate::testing::{Installed, install};

/// A small generator for test data; the test prints its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % n
    }

    /// `k` experts of `n`, ascending.
    fn choice(&mut self, n: usize, k: usize) -> Vec<u32> {
        let mut all: Vec<u32> = (0..n as u32).collect();
        while all.len() > k {
            all.remove(self.below(all.len()));
        }
        all
    }
}

fn store(installed: &Installed, slots: usize) -> ExpertStore {
    let model = &installed.model;
    let options = Options {
        slots: Some(slots as u32),
        threads: Some(1),
        ..Options::default()
    };
    let budget = model.plan_budget(&options).expect("a budget");
    let (files, k) = (model.experts.clone(), model.config().experts_per_token);
    ExpertStore::new(model.dir(), files, k, &budget, options.io).expect("a store")
}

/// What became of a request: where its experts came from, and the hashes of their bytes.
fn serve(store: &mut ExpertStore) -> (Vec<Placement>, Vec<u64>) {
    let placements = store.plan.placements().to_vec();
    let mut hashes = vec![0; placements.len()];
    let n_bytes = store.files.stride();
    let mut at_hand = Vec::new();
    store.take_hits(&mut at_hand);
    loop {
        for ready in at_hand.drain(..) {
            hashes[ready.nth] = ouzel_storage::xxh3_64(&ready.bytes[..n_bytes]);
            store.release(ready);
        }
        match store.next_arrival().expect("a read") {
            Some(ready) => at_hand.push(ready),
            None => return (placements, hashes),
        }
    }
}

fn request(store: &mut ExpertStore, l: LayerId, chosen: &[u32]) {
    let chosen: Vec<_> = chosen.iter().map(|&e| (ExpertId(e), 1)).collect();
    store.request(l, &chosen).expect("a request");
}

/// Lends blocks until `n` layers have one slot less.
fn lend_slots(store: &mut ExpertStore, n: usize) -> Vec<Region> {
    let n_slots = |store: &ExpertStore| store.slots_of_layers().sum::<usize>();
    let left = n_slots(store) - n;
    let mut blocks = Vec::new();
    while n_slots(store) > left {
        blocks.push(store.lend());
    }
    blocks
}

fn assert_all_is_back(store: &ExpertStore) {
    assert_eq!(store.transit.len(), store.n_transit);
    assert!(store.slots.iter().flatten().all(Option::is_some));
}

#[test]
fn guesses_change_neither_what_a_layer_gets_nor_what_it_keeps() {
    let installed = install("testdata/tiny-a/mlx");
    let config = installed.model.config();
    let (n_experts, k) = (config.n_experts, config.experts_per_token);
    for (slots, n_lent) in [(k + 1, 0), (k + 1, 2), (n_experts - 1, 0)] {
        let seed = 31;
        println!("seed {seed}, {slots} slots of {n_experts}, {n_lent} lent");
        let mut random = Random(seed);
        let (mut plain, mut guessing) = (store(&installed, slots), store(&installed, slots));
        // The layers that lend are left with k slots, and their misses may need the transit set beside wrong guesses.
        let lent = [&mut plain, &mut guessing].map(|store| lend_slots(store, n_lent));
        let layers = || config.layer_ids();
        let mut n_guesses = 0;
        for token in 0..200 {
            let chosen: Vec<_> = layers().map(|_| random.choice(n_experts, k)).collect();
            for (l, of_layer) in layers().zip(&chosen) {
                request(&mut plain, l, of_layer);
                request(&mut guessing, l, of_layer);
                if let Some(next) = config.layer_behind(l) {
                    // Some come true, some do not.
                    let guesses = match random.below(3) {
                        0 => chosen[next.index()].clone(),
                        _ => random.choice(n_experts, k),
                    };
                    if guessing.may_foresee(next) {
                        guessing.foresee(next, &guesses);
                        n_guesses += 1;
                    }
                }
                assert_eq!(
                    serve(&mut plain),
                    serve(&mut guessing),
                    "token {token}, {l:?}"
                );
            }
        }
        assert!(n_guesses > 0);
        let counts = |store: &ExpertStore| (store.counts.hits, store.counts.misses);
        assert_eq!(counts(&plain), counts(&guessing));
        guessing.abandon();
        assert_all_is_back(&guessing);
        drop(lent);
    }
}

#[test]
fn a_look_tells_what_became_of_each_expert_since_the_last_one() {
    let installed = install("testdata/tiny-a/mlx");
    let config = installed.model.config();
    let (n_layers, n_experts, k) = (
        config.n_layers(),
        config.n_experts,
        config.experts_per_token,
    );
    let mut store = store(&installed, k + 1);
    let mut random = Random(7);
    let mut seen = store.unseen();
    // The slow twin: what each look should find, from the placements alone.
    let (mut hits, mut misses) = (vec![0; n_layers], vec![0; n_layers]);
    for _ in 0..20 {
        let mut marks = vec![0; n_layers * n_experts];
        for _ in 0..3 {
            for l in config.layer_ids() {
                let chosen = random.choice(n_experts, k);
                request(&mut store, l, &chosen);
                for (expert, placement) in chosen.iter().zip(serve(&mut store).0) {
                    let is_hit = matches!(placement, Placement::Hit(_));
                    let (count, mark) = match is_hit {
                        true => (&mut hits, Experts::HIT),
                        false => (&mut misses, Experts::READ),
                    };
                    count[l.index()] += 1;
                    marks[l.index() * n_experts + *expert as usize] |= mark;
                }
            }
        }
        for l in config.layer_ids() {
            for expert in 0..n_experts {
                if store.caches[l.index()].holds(ExpertId(expert as u32)) {
                    marks[l.index() * n_experts + expert] |= Experts::RESIDENT;
                }
            }
        }
        store.look(&mut seen);
        let expected = Experts {
            n_experts,
            hits: hits.clone(),
            misses: misses.clone(),
            marks,
        };
        assert_eq!(seen, expected);
    }
    store.look(&mut seen);
    let lately = Experts::HIT | Experts::READ;
    assert!(seen.marks.iter().all(|mark| mark & lately == 0));
}

#[test]
fn what_was_guessed_comes_back_when_a_token_ends_early() {
    let installed = install("testdata/tiny-a/mlx");
    let config = installed.model.config();
    let (n_experts, k) = (config.n_experts, config.experts_per_token);
    let mut random = Random(32);
    let mut store = store(&installed, k + 1);
    for _ in 0..50 {
        request(&mut store, LayerId(0), &random.choice(n_experts, k));
        store.foresee(LayerId(1), &random.choice(n_experts, k));
        if random.below(2) == 0 {
            serve(&mut store);
        }
        store.abandon();
        assert_all_is_back(&store);
    }
}

#[test]
fn nothing_is_guessed_where_misses_need_the_transit_set_or_none_can_come() {
    let installed = install("testdata/tiny-a/mlx");
    let config = installed.model.config();
    let (n_experts, k) = (config.n_experts, config.experts_per_token);
    for (slots, may) in [
        (0, false),
        (k, false),
        (k + 1, true),
        (n_experts - 1, true),
        (n_experts, false),
    ] {
        let store = store(&installed, slots);
        assert_eq!(store.may_foresee(LayerId(1)), may, "{slots} slots");
    }
}

#[test]
fn a_damaged_expert_is_reported_when_it_is_chosen_not_when_it_is_guessed() {
    let installed = install("testdata/tiny-a/mlx");
    let k = installed.model.config().experts_per_token;
    let mut store = store(&installed, k + 1);
    let (l, damaged) = (LayerId(1), ExpertId(7));
    let path = store.files.path(installed.model.dir(), l);
    let mut bytes = std::fs::read(&path).expect("the layer's file");
    bytes[store.files.offset(l, damaged) as usize] ^= 1;
    std::fs::write(&path, bytes).expect("the layer's file");
    let mut answer = |chosen: &[u32]| -> Result<(), EngineError> {
        request(&mut store, LayerId(0), &[0, 1, 2]);
        store.foresee(l, &[7, 6]);
        serve(&mut store);
        let chosen: Vec<_> = chosen.iter().map(|&e| (ExpertId(e), 1)).collect();
        store.request(l, &chosen)?;
        let mut at_hand = Vec::new();
        store.take_hits(&mut at_hand);
        for ready in at_hand {
            store.release(ready);
        }
        while let Some(ready) = store.next_arrival()? {
            store.release(ready);
        }
        Ok(())
    };
    for _ in 0..20 {
        answer(&[0, 1, 6]).expect("the damaged expert was not chosen");
        match answer(&[0, 6, 7]) {
            Err(EngineError::Checksum { layer, expert, .. }) => {
                assert_eq!((layer, expert), (l, damaged));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_all_is_back(&store);
}
