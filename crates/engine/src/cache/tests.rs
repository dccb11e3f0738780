//! The cache against a naive twin that follows the words of the policy, and against the recorded routing.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{DECAY_PER_TOKEN, LayerCache, Placement, Plan};
use crate::{ExpertId, SlotId};

/// The recorded hit rates have one decimal.
const HIT_RATE_TOLERANCE: f64 = 0.1;
/// A chunk spreads its choices evenly over its tokens, so its counts are near those of single tokens, not equal: hits
/// right after a prompt may differ by this many points.
const CHUNK_TOLERANCE: f64 = 1.0;

/// A small generator for test data; the tests print its seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// `k` of `n_experts`, the low ones more often.
    fn choice(&mut self, n_experts: usize, k: usize) -> Vec<u32> {
        let mut chosen = HashSet::new();
        while chosen.len() < k {
            let bound = 1 + self.below(n_experts);
            chosen.insert(self.below(bound) as u32);
        }
        let mut chosen: Vec<u32> = chosen.into_iter().collect();
        chosen.sort_unstable();
        chosen
    }
}

/// The policy, word by word.
struct Twin {
    n_slots: usize,
    counts: HashMap<u32, f64>,
    /// Slot to expert and last use.
    slots: BTreeMap<u32, (u32, u64)>,
    now: u64,
}

impl Twin {
    fn new(n_slots: usize) -> Twin {
        Twin {
            n_slots,
            counts: HashMap::new(),
            slots: BTreeMap::new(),
            now: 0,
        }
    }

    fn count(&self, expert: u32) -> f64 {
        self.counts.get(&expert).copied().unwrap_or(0.0)
    }

    fn plan(&mut self, chosen: &[(u32, u32)], n_tokens: u64) -> Vec<Placement> {
        self.now += n_tokens;
        let kept = DECAY_PER_TOKEN.powi(n_tokens as i32);
        let weight = match n_tokens {
            1 => 1.0,
            n => (1.0 - kept) / ((1.0 - DECAY_PER_TOKEN) * n as f64),
        };
        for count in self.counts.values_mut() {
            *count *= kept;
        }
        for &(expert, n_rows) in chosen {
            *self.counts.entry(expert).or_default() += f64::from(n_rows) * weight;
        }
        let mut placements: HashMap<u32, Placement> = HashMap::new();
        for (&slot, (expert, last_use)) in &mut self.slots {
            if chosen.iter().any(|&(e, _)| e == *expert) {
                *last_use = self.now;
                placements.insert(*expert, Placement::Hit(SlotId(slot)));
            }
        }
        let mut misses: Vec<u32> = chosen
            .iter()
            .map(|&(expert, _)| expert)
            .filter(|expert| !placements.contains_key(expert))
            .collect();
        misses.sort_by(|a, b| self.count(*b).total_cmp(&self.count(*a)).then(a.cmp(b)));
        for miss in misses {
            let placement = match self.victim(chosen) {
                Some((slot, holds))
                    if holds.is_none_or(|victim| {
                        self.n_slots > chosen.len() || self.count(miss) > self.count(victim)
                    }) =>
                {
                    self.slots.insert(slot, (miss, self.now));
                    Placement::Retain(SlotId(slot))
                }
                _ => Placement::Transit,
            };
            placements.insert(miss, placement);
        }
        chosen
            .iter()
            .map(|(expert, _)| placements[expert])
            .collect()
    }

    /// The slot to fill next, and what it holds.
    fn victim(&self, chosen: &[(u32, u32)]) -> Option<(u32, Option<u32>)> {
        if let Some(free) = (0..self.n_slots as u32).find(|slot| !self.slots.contains_key(slot)) {
            return Some((free, None));
        }
        let mut candidates: Vec<_> = self
            .slots
            .iter()
            .filter(|(_, (expert, _))| chosen.iter().all(|&(e, _)| e != *expert))
            .collect();
        candidates.sort_by(|(slot_a, (a, used_a)), (slot_b, (b, used_b))| {
            let by_count = self.count(*a).total_cmp(&self.count(*b));
            by_count.then(used_a.cmp(used_b)).then(slot_a.cmp(slot_b))
        });
        candidates
            .first()
            .map(|(slot, (expert, _))| (**slot, Some(*expert)))
    }
}

/// One chunk: experts ascending with their numbers of rows.
fn chunk(rows: &[Vec<u32>]) -> Vec<(u32, u32)> {
    let mut counts = BTreeMap::new();
    for expert in rows.iter().flatten() {
        *counts.entry(*expert).or_insert(0) += 1;
    }
    counts.into_iter().collect()
}

fn typed(chosen: &[(u32, u32)]) -> Vec<(ExpertId, u32)> {
    chosen
        .iter()
        .map(|&(expert, n_rows)| (ExpertId(expert), n_rows))
        .collect()
}

fn check_against_twin(n_experts: usize, n_slots: usize, k: usize, seed: u64) {
    let case = format!("{n_slots} slots of {n_experts} experts, {k} a token, seed {seed}");
    let mut random = Random(seed);
    let mut cache = LayerCache::new(n_experts, n_slots, k);
    let mut twin = Twin::new(n_slots);
    let mut plan = Plan::new(n_experts);
    let room = plan.placements.capacity();
    for step in 0..400 {
        let n_tokens = if random.below(4) == 0 {
            1 + random.below(9)
        } else {
            1
        };
        let rows: Vec<_> = (0..n_tokens).map(|_| random.choice(n_experts, k)).collect();
        let chosen = chunk(&rows);
        cache.plan_chunk(&typed(&chosen), &mut plan);
        assert_eq!(
            plan.placements(),
            twin.plan(&chosen, n_tokens as u64),
            "step {step} of {case}"
        );
        let slots: HashSet<_> = plan
            .placements()
            .iter()
            .filter_map(|placement| match placement {
                Placement::Hit(slot) | Placement::Retain(slot) => Some(*slot),
                Placement::Transit => None,
            })
            .collect();
        let n_transit = plan
            .placements()
            .iter()
            .filter(|p| **p == Placement::Transit)
            .count();
        assert_eq!(
            slots.len() + n_transit,
            chosen.len(),
            "one slot, one expert: step {step} of {case}"
        );
        for placement in plan.placements() {
            // Some reads fail.
            if let Placement::Retain(slot) = placement
                && random.below(16) == 0
            {
                cache.forget(*slot);
                twin.slots.remove(&slot.0);
            }
        }
    }
    assert_eq!(
        plan.placements.capacity(),
        room,
        "a plan allocates nothing: {case}"
    );
}

#[test]
fn plans_equal_the_naive_twin() {
    let (n_experts, k) = (20, 4);
    for n_slots in [
        0,
        1,
        k - 1,
        k,
        k + 1,
        2 * k,
        n_experts - 1,
        n_experts,
        n_experts + 3,
    ] {
        for seed in 1..=5 {
            check_against_twin(n_experts, n_slots, k, seed);
        }
    }
    check_against_twin(3, 2, 1, 6);
    check_against_twin(8, 5, 8, 7);
}

#[test]
fn every_expert_fits_when_there_are_slots_for_all() {
    let mut cache = LayerCache::new(6, 6, 2);
    let mut plan = Plan::new(6);
    let all: Vec<_> = (0..6).map(|expert| (ExpertId(expert), 1)).collect();
    cache.plan_chunk(&all, &mut plan);
    assert!(
        plan.placements()
            .iter()
            .all(|p| matches!(p, Placement::Retain(_)))
    );
    cache.plan_chunk(&all, &mut plan);
    assert!(
        plan.placements()
            .iter()
            .all(|p| matches!(p, Placement::Hit(_)))
    );
}

#[test]
fn a_prompt_leaves_its_most_used_experts() {
    let mut cache = LayerCache::new(8, 2, 2);
    let mut plan = Plan::new(8);
    let chosen = [(0, 1), (1, 9), (3, 2), (6, 7), (7, 1)].map(|(expert, n)| (ExpertId(expert), n));
    cache.plan_chunk(&chosen, &mut plan);
    use Placement::{Retain, Transit};
    let expected = [
        Transit,
        Retain(SlotId(0)),
        Transit,
        Retain(SlotId(1)),
        Transit,
    ];
    assert_eq!(plan.placements(), expected);
}

#[test]
fn a_passing_expert_does_not_evict_where_slots_are_few() {
    let mut cache = LayerCache::new(4, 1, 1);
    let mut plan = Plan::new(4);
    let mut choose = |expert| {
        cache.plan_chunk(&[(ExpertId(expert), 1)], &mut plan);
        plan.placements()[0]
    };
    assert_eq!(choose(2), Placement::Retain(SlotId(0)));
    assert_eq!(choose(2), Placement::Hit(SlotId(0)));
    assert_eq!(choose(3), Placement::Transit);
    assert_eq!(choose(2), Placement::Hit(SlotId(0)));
}

#[test]
fn a_slot_that_is_given_up_takes_the_least_wanted_expert_with_it() {
    let mut cache = LayerCache::new(8, 0, 2);
    let mut plan = Plan::new(8);
    assert_eq!(cache.remove_slot(), None);
    for _ in 0..4 {
        cache.add_slot();
    }
    // Experts 0, 1, 2 enter slots 2, 0, 1 by their counts; slot 3 stays free.
    let chosen = [(0, 1), (1, 9), (2, 8)].map(|(expert, n)| (ExpertId(expert), n));
    cache.plan_chunk(&chosen, &mut plan);
    use Placement::Hit;
    assert_eq!(cache.remove_slot(), Some(SlotId(3)), "the free one");
    assert_eq!(cache.remove_slot(), Some(SlotId(2)), "expert 0");
    cache.add_slot();
    cache.plan_chunk(&[(ExpertId(2), 2)], &mut plan);
    assert_eq!(plan.placements(), [Hit(SlotId(1))]);
    assert_eq!(cache.remove_slot(), Some(SlotId(2)), "free again");
    for _ in 0..40 {
        cache.plan_chunk(&[(ExpertId(2), 2)], &mut plan);
    }
    assert_eq!(cache.remove_slot(), Some(SlotId(0)), "expert 1");
    // Expert 2 lay in the highest slot and took the number that was given up.
    cache.plan_chunk(&[(ExpertId(2), 2)], &mut plan);
    assert_eq!(plan.placements(), [Hit(SlotId(0))]);
    assert_eq!(cache.remove_slot(), Some(SlotId(0)), "the last one");
    assert_eq!(cache.remove_slot(), None);
}

#[test]
fn nothing_chosen_plans_nothing() {
    let mut cache = LayerCache::new(4, 2, 2);
    let mut plan = Plan::new(4);
    cache.plan_chunk(&[], &mut plan);
    assert!(plan.placements().is_empty());
}

/// The recorded routing: for each phase, `[steps][layers]` choices.
fn trace() -> [Vec<Vec<Vec<u32>>>; 2] {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../testdata/traces/gemma4-26b-a4b.route.csv"
    );
    let text = std::fs::read_to_string(path).expect("the trace");
    let mut phases = [Vec::new(), Vec::new()];
    let lines = text
        .lines()
        .filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    for line in lines {
        let fields: Vec<usize> = line
            .split(',')
            .take(6)
            .map(|field| field.parse().expect("a number"))
            .collect();
        let &[_, phase, step, layer, _, expert] = fields.as_slice() else {
            panic!("six columns: {line}");
        };
        let steps: &mut Vec<Vec<Vec<u32>>> = &mut phases[phase];
        steps.resize(steps.len().max(step + 1), Vec::new());
        let layers = &mut steps[step];
        layers.resize(layers.len().max(layer + 1), Vec::new());
        layers[layer].push(expert as u32);
    }
    // Steps are numbered through, so those of the other phase are empty.
    phases.map(|mut steps| {
        steps.retain(|layers| !layers.is_empty());
        steps
    })
}

/// The share of hits, in percent, over the decode steps, with the prompt fed before in chunks of `chunk_tokens`.
fn hit_rate(n_slots: usize, chunk_tokens: usize) -> f64 {
    let [prefill, decode] = trace();
    let n_layers = decode[0].len();
    let mut plan = Plan::new(128);
    let (mut n_hits, mut n_chosen) = (0, 0);
    for layer in 0..n_layers {
        let mut cache = LayerCache::new(128, n_slots, 6);
        let of_layer = |steps: &[Vec<Vec<u32>>]| -> Vec<Vec<u32>> {
            steps.iter().map(|layers| layers[layer].clone()).collect()
        };
        for rows in of_layer(&prefill).chunks(chunk_tokens) {
            cache.plan_chunk(&typed(&chunk(rows)), &mut plan);
        }
        for row in of_layer(&decode) {
            cache.plan_chunk(&typed(&chunk(&[row])), &mut plan);
            let hits = plan
                .placements()
                .iter()
                .filter(|p| matches!(p, Placement::Hit(_)));
            n_hits += hits.count();
            n_chosen += plan.placements().len();
        }
    }
    100.0 * n_hits as f64 / n_chosen as f64
}

#[test]
fn replay_reaches_the_recorded_hit_rates() {
    let recorded = [
        (4, 29.7),
        (8, 45.7),
        (12, 57.6),
        (16, 65.2),
        (24, 75.1),
        (32, 81.8),
    ];
    for (n_slots, expected) in recorded {
        let actual = hit_rate(n_slots, 1);
        println!("{n_slots} slots: {actual:.1} % hits, recorded {expected} %");
        assert!(
            (actual - expected).abs() <= HIT_RATE_TOLERANCE,
            "{n_slots} slots: {actual:.2} % hits instead of {expected} %"
        );
    }
}

#[test]
fn the_length_of_prefill_chunks_hardly_matters() {
    for n_slots in [4, 8, 16, 32] {
        let one_by_one = hit_rate(n_slots, 1);
        for chunk_tokens in [7, 29] {
            let chunked = hit_rate(n_slots, chunk_tokens);
            println!(
                "{n_slots} slots, chunks of {chunk_tokens}: {chunked:.2} %, one by one {one_by_one:.2} %"
            );
            assert!(
                (chunked - one_by_one).abs() <= CHUNK_TOLERANCE,
                "{n_slots} slots, chunks of {chunk_tokens}: {chunked:.2} % instead of {one_by_one:.2} %"
            );
        }
    }
}
