//! Which experts a layer keeps: the plan of plan, read, compute.
//!
//! One [`LayerCache`] a layer. It holds a table of retained slots and a decayed count of every expert, and turns the experts that
//! the router chose into placements. It is pure: it reads nothing, allocates nothing after `new`, and nothing it decides can
//! change a result, only how much is read.
//!
//! The policy, found by replaying a recorded routing (`testdata/traces`): a token multiplies every count of the layer by
//! [`DECAY_PER_TOKEN`] and adds 1 to each expert it chose. Counts outlive eviction, and a prompt seeds them. A miss goes into a free slot,
//! else into the slot of the lowest (count, last use) among those that hold no expert chosen now. Where the chosen experts
//! could replace every slot, that would throw away a good expert for a passing one, so there a miss has to have
//! a higher count than the expert it replaces; otherwise it stays in transit.

use crate::{ExpertId, SlotId};

#[cfg(test)]
mod tests;

/// What is left of a count after one more token. Half is forgotten after 23 tokens.
const DECAY_PER_TOKEN: f64 = 0.97;

/// Where a chosen expert is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// It lies in this slot already.
    Hit(SlotId),
    /// It is missing, and is read into this slot, to stay there.
    Retain(SlotId),
    /// It is missing, and is read into a buffer of the transit set, not to stay.
    Transit,
}

/// The placements of one request, one for each chosen expert in the order they were named.
#[derive(Debug)]
pub struct Plan {
    placements: Vec<Placement>,
    /// Scratch: which of the chosen experts are missing, most wanted first.
    misses: Vec<usize>,
}

impl Plan {
    /// Room for a request of up to `n_experts` experts.
    pub fn new(n_experts: usize) -> Plan {
        Plan {
            placements: Vec::with_capacity(n_experts),
            misses: Vec::with_capacity(n_experts),
        }
    }

    /// Placements, one for each chosen expert.
    pub fn placements(&self) -> &[Placement] {
        &self.placements
    }
}

/// What a retained slot holds.
#[derive(Clone, Copy, Debug)]
struct Resident {
    expert: ExpertId,
    /// The token that chose it last.
    last_use: u64,
}

/// The retained slots of one layer and what is remembered of its experts.
#[derive(Clone, Debug)]
pub struct LayerCache {
    experts_per_token: usize,
    /// `[n_slots]`; `None` is free.
    slots: Vec<Option<Resident>>,
    /// `[n_experts]`: the slot that holds each expert.
    slot_of: Vec<Option<SlotId>>,
    /// `[n_experts]`: decayed counts.
    counts: Vec<f64>,
    /// Tokens so far.
    n_tokens: u64,
}

impl LayerCache {
    /// An empty cache of `n_slots` slots, any number, 0 included; slots beyond `n_experts` stay free.
    ///
    /// # Panics
    /// If a token chooses no expert.
    pub fn new(n_experts: usize, n_slots: usize, experts_per_token: usize) -> LayerCache {
        assert!(experts_per_token > 0, "a token chooses at least one expert");
        LayerCache {
            experts_per_token,
            slots: slots_with_room(n_slots, n_experts),
            slot_of: vec![None; n_experts],
            counts: vec![0.0; n_experts],
            n_tokens: 0,
        }
    }

    /// Whether `expert` lies in a slot.
    pub fn holds(&self, expert: ExpertId) -> bool {
        self.slot_of[expert.index()].is_some()
    }

    /// Decides where each expert that a chunk of tokens chose comes from, and takes it that all of them will be read.
    ///
    /// `chosen` names every expert once, in ascending order, with the number of tokens that chose it. One token is a chunk of one. No
    /// slot that holds a chosen expert is evicted, so a plan can be carried out in any order.
    ///
    /// # Panics
    /// In debug builds, if `chosen` is out of order or not the choice of whole tokens.
    pub fn plan_chunk(&mut self, chosen: &[(ExpertId, u32)], plan: &mut Plan) {
        debug_assert!(
            chosen.is_sorted_by(|a, b| a.0 < b.0),
            "ascending, each expert once"
        );
        plan.placements.clear();
        plan.misses.clear();
        self.count(chosen);
        for (nth, &(expert, _)) in chosen.iter().enumerate() {
            match self.slot_of[expert.index()] {
                Some(slot) => {
                    self.fill(slot, expert);
                    plan.placements.push(Placement::Hit(slot));
                }
                None => {
                    plan.placements.push(Placement::Transit);
                    plan.misses.push(nth);
                }
            }
        }
        // Every slot could be replaced at once: let only better experts in, the best first.
        let is_tight = self.slots.len() <= chosen.len();
        let count_of = |&nth: &usize| self.counts[chosen[nth].0.index()];
        plan.misses
            .sort_unstable_by(|a, b| count_of(b).total_cmp(&count_of(a)).then(a.cmp(b)));
        for &nth in &plan.misses {
            let expert = chosen[nth].0;
            let Some(slot) = self.slot_for(expert, is_tight) else {
                // The next ones have lower counts still.
                break;
            };
            self.evict(slot);
            self.fill(slot, expert);
            plan.placements[nth] = Placement::Retain(slot);
        }
    }

    /// Frees the slot of an expert that was planned but could not be read.
    pub fn forget(&mut self, slot: SlotId) {
        self.evict(slot);
    }

    /// Frees every slot and forgets every count.
    pub fn clear(&mut self) {
        self.slots.fill(None);
        self.slot_of.fill(None);
        self.counts.fill(0.0);
    }

    /// One more slot, free, with the highest number.
    pub fn add_slot(&mut self) {
        self.slots.push(None);
    }

    /// Gives up the slot that is worth least: a free one, else that of the lowest (count, last use). The highest slot takes its
    /// number. Must not be called between a plan and its end; `None` where there is no slot.
    pub fn remove_slot(&mut self) -> Option<SlotId> {
        let worth = |slot: &Option<Resident>| {
            slot.map(|resident| (self.counts[resident.expert.index()], resident.last_use))
        };
        let (least, _) = self.slots.iter().enumerate().min_by(|(_, a), (_, b)| {
            worth(a)
                .partial_cmp(&worth(b))
                .expect("counts are sums of finite numbers")
        })?;
        let removed = SlotId(least as u32);
        self.evict(removed);
        self.slots.swap_remove(least);
        if let Some(Some(moved)) = self.slots.get(least) {
            self.slot_of[moved.expert.index()] = Some(removed);
        }
        Some(removed)
    }

    /// Counts the choices of a chunk as if its tokens had spread them evenly, so that long chunks and short ones leave nearly the
    /// same counts; for one token it is exact.
    fn count(&mut self, chosen: &[(ExpertId, u32)]) {
        let n_choices: u64 = chosen.iter().map(|&(_, n_rows)| u64::from(n_rows)).sum();
        let k = self.experts_per_token as u64;
        debug_assert!(
            n_choices.is_multiple_of(k),
            "{n_choices} choices, {k} a token"
        );
        let n_tokens = n_choices / k;
        self.n_tokens += n_tokens;
        if n_tokens == 0 {
            return;
        }
        let (kept, weight) = decay_over(n_tokens);
        for count in &mut self.counts {
            *count *= kept;
        }
        for &(expert, n_rows) in chosen {
            self.counts[expert.index()] += f64::from(n_rows) * weight;
        }
    }

    /// The slot that a miss may have: a free one, else that of the lowest (count, last use) among those not in use now.
    fn slot_for(&self, expert: ExpertId, is_tight: bool) -> Option<SlotId> {
        let count = |resident: &Resident| self.counts[resident.expert.index()];
        let mut lowest: Option<(SlotId, &Resident)> = None;
        for (i, slot) in (0..).zip(&self.slots) {
            let Some(resident) = slot else {
                return Some(SlotId(i));
            };
            if resident.last_use == self.n_tokens {
                continue;
            }
            let is_lower = lowest.is_none_or(|(_, other)| {
                (count(resident), resident.last_use) < (count(other), other.last_use)
            });
            if is_lower {
                lowest = Some((SlotId(i), resident));
            }
        }
        let (slot, victim) = lowest?;
        let is_wanted = !is_tight || self.counts[expert.index()] > count(victim);
        is_wanted.then_some(slot)
    }

    fn fill(&mut self, slot: SlotId, expert: ExpertId) {
        let last_use = self.n_tokens;
        self.slots[slot.index()] = Some(Resident { expert, last_use });
        self.slot_of[expert.index()] = Some(slot);
    }

    fn evict(&mut self, slot: SlotId) {
        if let Some(resident) = self.slots[slot.index()].take() {
            self.slot_of[resident.expert.index()] = None;
        }
    }
}

/// `n_slots` free slots, and room for one an expert, so that slots can come and go without an allocation.
fn slots_with_room(n_slots: usize, n_experts: usize) -> Vec<Option<Resident>> {
    let mut slots = Vec::with_capacity(n_slots.max(n_experts));
    slots.resize(n_slots, None);
    slots
}

/// What is left of a count after `n_tokens` more, and what one choice among them counts for at their end on average.
fn decay_over(n_tokens: u64) -> (f64, f64) {
    // A longer chunk leaves nothing of what was before it, up to rounding.
    let kept = DECAY_PER_TOKEN.powi(n_tokens.min(10_000) as i32);
    let weight = if n_tokens == 1 {
        1.0
    } else {
        (1.0 - kept) / ((1.0 - DECAY_PER_TOKEN) * n_tokens as f64)
    };
    (kept, weight)
}
