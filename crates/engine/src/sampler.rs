//! The choice of the next token.
//!
//! In this order: biases and penalties on the logits, the mask that leaves only allowed tokens, top-p, min-p and top-k on the
//! distribution they give, temperature on the draw. So top-p
//! and min-p judge the model's own distribution and temperature only weighs what they left; this is the order of the
//! reference (TurboFieldfare, after mlx-lm), which warms up later than most. Nothing is renormalised between the filters, so each keeps
//! the most likely tokens down to a limit of its own and the strictest wins.
//!
//! Everything is allocated in `new`, and no token costs a sort of the vocabulary: candidates are collected in one pass and
//! only as many are ordered as survive. Sums are f64 in a fixed order, ties go to the lower id, so a seed fixes the text. Ranges of
//! options are checked where they are parsed; here no value and no logit, NaN and infinity included, panics.

use std::cmp::Ordering;
use std::hash::{BuildHasher, RandomState};

use crate::TokenId;

mod logprobs;
#[cfg(test)]
mod tests;

pub use logprobs::{Logprobs, MAX_LOGPROBS};

/// Candidates that top-p orders first, and how many times more it takes each time they do not suffice.
const FIRST_ORDERED: usize = 64;
const ORDERED_GROWTH: usize = 4;

/// How the next token is chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divides the logits in the draw; 0 takes the most likely token.
    pub temperature: f32,
    /// Keeps this many of the most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the fewest of the most likely tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens at least this many times as likely as the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Divides the positive logits of tokens of the prompt or the answer, multiplies the negative ones; 1 does nothing.
    pub repetition_penalty: f32,
    /// Taken from the logits of tokens that the answer has; 0 does nothing.
    pub presence_penalty: f32,
    /// Taken from the logits of the answer's tokens as many times as it has them; 0 does nothing.
    pub frequency_penalty: f32,
    /// Fixes the draws; `None` takes a seed from the system.
    pub seed: Option<u64>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions {
            temperature: 0.2,
            top_k: 64,
            top_p: 0.95,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
        }
    }
}

impl SamplerOptions {
    fn has_penalties(&self) -> bool {
        self.repetition_penalty != 1.0
            || self.presence_penalty != 0.0
            || self.frequency_penalty != 0.0
    }
}

/// A token that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate {
    logit: f32,
    id: u32,
}

impl Candidate {
    /// Most likely first, lower id first among equals; logits are not NaN.
    fn order(&self, other: &Candidate) -> Ordering {
        let by_logit = other.logit.partial_cmp(&self.logit);
        by_logit
            .unwrap_or(Ordering::Equal)
            .then(self.id.cmp(&other.id))
    }

    /// Its probability at temperature 1 as a multiple of the most likely token's.
    fn weight(&self, max: f32) -> f64 {
        weight(self.logit, max, 1.0)
    }
}

/// `exp((logit - max) / temperature)`.
fn weight(logit: f32, max: f32, temperature: f32) -> f64 {
    ((f64::from(logit) - f64::from(max)) / f64::from(temperature)).exp()
}

/// Chooses the tokens of one answer.
#[derive(Clone, Debug)]
pub struct Sampler {
    options: SamplerOptions,
    vocab_size: usize,
    /// How many candidates top-k leaves.
    limit: usize,
    seed: u64,
    random: Random,
    /// Where penalties are asked for.
    history: Option<History>,
    /// Added to the logits of these tokens.
    biases: Vec<(TokenId, f32)>,
    /// `[vocab_size]`: the logits with biases, penalties and mask; empty where none of them is asked for.
    adjusted: Vec<f32>,
    /// Up to `2 * limit` or the whole vocabulary; afterwards the survivors of the last choice.
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// A sampler for an answer in a vocabulary of this size, with everything it will need allocated.
    pub fn new(options: &SamplerOptions, vocab_size: usize) -> Sampler {
        let limit = match options.top_k as usize {
            0 => vocab_size,
            k => k.min(vocab_size),
        };
        let seed = options
            .seed
            .unwrap_or_else(|| RandomState::new().hash_one(0));
        Sampler {
            vocab_size,
            limit,
            seed,
            random: Random::new(seed),
            history: options
                .has_penalties()
                .then(|| History::new(options, vocab_size)),
            biases: Vec::new(),
            adjusted: if options.has_penalties() {
                vec![0.0; vocab_size]
            } else {
                Vec::new()
            },
            candidates: Vec::with_capacity(limit.saturating_mul(2).min(vocab_size)),
            options: options.clone(),
        }
    }

    /// Adds a number to the logits of each of these tokens, before penalties; minus infinity forbids one.
    ///
    /// # Panics
    /// If an id is outside the vocabulary.
    pub fn with_biases(mut self, biases: &[(TokenId, f32)]) -> Sampler {
        let mut ids = biases.iter().map(|(id, _)| id.index());
        assert!(
            ids.all(|id| id < self.vocab_size),
            "a bias outside the vocabulary"
        );
        self.biases = biases.to_vec();
        self.with_masks()
    }

    /// Allocates what [`Sampler::sample_allowed`] needs.
    pub fn with_masks(mut self) -> Sampler {
        self.adjusted.resize(self.vocab_size, 0.0);
        self
    }

    /// The seed that would give these draws again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Bytes allocated.
    pub fn resident_bytes(&self) -> u64 {
        let history = self.history.as_ref().map_or(0, History::resident_bytes);
        let lists = self.candidates.capacity() * size_of::<Candidate>()
            + self.biases.capacity() * size_of::<(TokenId, f32)>()
            + self.adjusted.capacity() * size_of::<f32>();
        lists as u64 + history
    }

    /// Tells the sampler which tokens came before the answer; the repetition penalty counts them, the others do not.
    ///
    /// # Panics
    /// If an id is outside the vocabulary.
    pub fn observe_prompt(&mut self, ids: &[TokenId]) {
        if let Some(history) = &mut self.history {
            for &id in ids {
                history.see(id);
            }
        }
    }

    /// Tells the sampler that the answer goes on with this token.
    ///
    /// # Panics
    /// If the id is outside the vocabulary.
    pub fn observe(&mut self, id: TokenId) {
        if let Some(history) = &mut self.history {
            history.see(id);
            history.counts[id.index()] = history.counts[id.index()].saturating_add(1);
        }
    }

    /// Chooses a token by the logits `[vocab_size]`, which may be NaN or infinite. It enters the history only by [`Sampler::observe`].
    ///
    /// # Panics
    /// If there are not as many logits as tokens.
    pub fn sample(&mut self, logits: &[f32]) -> TokenId {
        self.sample_allowed(logits, None)
            .expect("without a mask every token is allowed")
    }

    /// The same among the allowed tokens: those whose bit, `id % 32` of word `id / 32`, is set; tokens beyond the last word are not
    /// allowed. `None` where no token is.
    ///
    /// # Panics
    /// If there are not as many logits as tokens, or there is a mask and [`Sampler::with_masks`] was not called.
    pub fn sample_allowed(&mut self, logits: &[f32], allowed: Option<&[u32]>) -> Option<TokenId> {
        assert_eq!(logits.len(), self.vocab_size, "one logit a token");
        let first_allowed = match allowed {
            Some(mask) => first_of(mask, self.vocab_size)?,
            None => 0,
        };
        self.adjust(logits, allowed);
        let logits = if self.adjusted.is_empty() {
            logits
        } else {
            &self.adjusted
        };
        let best = argmax(logits);
        let max = logits[best];
        // A negative or NaN temperature is as good as none, and no draw can be made from infinite or missing logits.
        let is_greedy = self.options.temperature.is_nan() || self.options.temperature <= 0.0;
        if is_greedy || !max.is_finite() {
            // Where every allowed logit is NaN or minus infinity, the best may be one that is not allowed.
            let is_allowed = allowed.is_none_or(|mask| holds(mask, best));
            let id = if is_allowed { best } else { first_allowed };
            return Some(TokenId(id as u32));
        }
        let total = collect(&mut self.candidates, logits, max, self.limit, &self.options);
        if self.options.top_p < 1.0 {
            keep_top_p(
                &mut self.candidates,
                max,
                f64::from(self.options.top_p) * total,
            );
        } else if self.limit < self.vocab_size {
            // What top-k left is in no order of its own, and a draw needs one.
            self.candidates.sort_unstable_by(Candidate::order);
        }
        let drawn = draw(
            &self.candidates,
            max,
            self.options.temperature,
            self.random.unit(),
        );
        Some(TokenId(drawn.unwrap_or(best as u32)))
    }

    /// Fills `adjusted`, where something changes the logits.
    fn adjust(&mut self, logits: &[f32], allowed: Option<&[u32]>) {
        if self.adjusted.is_empty() {
            assert!(allowed.is_none(), "a mask without `with_masks`");
            return;
        }
        self.adjusted.copy_from_slice(logits);
        for &(id, bias) in &self.biases {
            self.adjusted[id.index()] += bias;
        }
        if let Some(history) = &self.history {
            history.penalise(&mut self.adjusted);
        }
        // Last, so that no penalty, however odd, brings a token back.
        if let Some(mask) = allowed {
            let words = mask.iter().copied().chain(std::iter::repeat(0));
            for (logits, word) in self.adjusted.chunks_mut(u32::BITS as usize).zip(words) {
                if word == u32::MAX {
                    continue;
                }
                for (bit, logit) in logits.iter_mut().enumerate() {
                    if word >> bit & 1 == 0 {
                        *logit = f32::NEG_INFINITY;
                    }
                }
            }
        }
    }
}

/// Whether the mask has this id.
fn holds(mask: &[u32], id: usize) -> bool {
    mask.get(id / 32)
        .is_some_and(|word| word >> (id % 32) & 1 == 1)
}

/// The lowest id of the mask that is in the vocabulary.
fn first_of(mask: &[u32], vocab_size: usize) -> Option<usize> {
    let (nth, word) = mask.iter().enumerate().find(|(_, word)| **word != 0)?;
    let id = 32 * nth + word.trailing_zeros() as usize;
    (id < vocab_size).then_some(id)
}

/// The index of the largest logit, the lower one of equals; NaN is smaller than everything.
fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (i, &logit) in logits.iter().enumerate() {
        if logit > logits[best] || (logits[best].is_nan() && !logit.is_nan()) {
            best = i;
        }
    }
    best
}

/// Fills `candidates` with the `limit` most likely tokens that min-p lets pass, in no order if there were more, else by id. Returns
/// the sum of all weights if top-p will need it, else 0.
fn collect(
    candidates: &mut Vec<Candidate>,
    logits: &[f32],
    max: f32,
    limit: usize,
    options: &SamplerOptions,
) -> f64 {
    // p >= min_p * p_max, as logits; ln(0) lets everything pass.
    let floor = f64::from(max) + f64::from(options.min_p.max(0.0)).ln();
    let needs_total = options.top_p < 1.0;
    let mut total = 0.0;
    // Above the least of `limit` candidates found so far.
    let mut bar = f32::NEG_INFINITY;
    candidates.clear();
    for (id, &logit) in (0..).zip(logits) {
        if logit.is_nan() || logit == f32::NEG_INFINITY {
            continue;
        }
        if needs_total {
            total += weight(logit, max, 1.0);
        }
        // Of equals the later one has the higher id and loses.
        if logit <= bar || f64::from(logit) < floor {
            continue;
        }
        candidates.push(Candidate { logit, id });
        if candidates.len() == 2 * limit {
            keep_top_k(candidates, limit);
            bar = candidates[limit - 1].logit;
        }
    }
    keep_top_k(candidates, limit);
    total
}

/// Keeps the `limit` most likely candidates; if there were more, the least likely of them is the last.
fn keep_top_k(candidates: &mut Vec<Candidate>, limit: usize) {
    if candidates.len() > limit {
        candidates.select_nth_unstable_by(limit - 1, Candidate::order);
        candidates.truncate(limit);
    }
}

/// Orders the candidates and keeps each whose more likely ones have less than `mass`, and the first in any case.
fn keep_top_p(candidates: &mut Vec<Candidate>, max: f32, mass: f64) {
    let mut sum = 0.0;
    let mut n_ordered = 0;
    let mut n_more = FIRST_ORDERED;
    while n_ordered < candidates.len() {
        let rest = &mut candidates[n_ordered..];
        let n = n_more.min(rest.len());
        if n < rest.len() {
            rest.select_nth_unstable_by(n - 1, Candidate::order);
        }
        rest[..n].sort_unstable_by(Candidate::order);
        for i in n_ordered..n_ordered + n {
            if i > 0 && sum >= mass {
                candidates.truncate(i);
                return;
            }
            sum += candidates[i].weight(max);
        }
        n_ordered += n;
        n_more *= ORDERED_GROWTH;
    }
}

/// The candidate at `unit`, in [0, 1), of their cumulated weights; `None` if there is none.
fn draw(candidates: &[Candidate], max: f32, temperature: f32, unit: f64) -> Option<u32> {
    let weights = || {
        candidates
            .iter()
            .map(|candidate| weight(candidate.logit, max, temperature))
    };
    let total: f64 = weights().sum();
    let target = unit * total;
    let mut sum = 0.0;
    for (candidate, weight) in candidates.iter().zip(weights()) {
        sum += weight;
        if sum > target {
            return Some(candidate.id);
        }
    }
    None
}

/// The tokens so far, for the penalties.
#[derive(Clone, Debug)]
struct History {
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    /// `[vocab_size]`: how often the answer has each token.
    counts: Vec<u32>,
    /// `[vocab_size]`: whether prompt or answer have it.
    is_seen: Vec<bool>,
    /// Those that are.
    seen: Vec<TokenId>,
}

impl History {
    fn new(options: &SamplerOptions, vocab_size: usize) -> History {
        History {
            repetition_penalty: options.repetition_penalty,
            presence_penalty: options.presence_penalty,
            frequency_penalty: options.frequency_penalty,
            counts: vec![0; vocab_size],
            is_seen: vec![false; vocab_size],
            seen: Vec::with_capacity(vocab_size),
        }
    }

    fn resident_bytes(&self) -> u64 {
        let bytes_a_token = size_of::<u32>() + size_of::<bool>() + size_of::<TokenId>();
        (self.counts.len() * bytes_a_token) as u64
    }

    fn see(&mut self, id: TokenId) {
        if !std::mem::replace(&mut self.is_seen[id.index()], true) {
            self.seen.push(id);
        }
    }

    /// First the repetition penalty, then presence and frequency.
    fn penalise(&self, logits: &mut [f32]) {
        for &id in &self.seen {
            let logit = &mut logits[id.index()];
            if *logit > 0.0 {
                *logit /= self.repetition_penalty;
            } else {
                *logit *= self.repetition_penalty;
            }
            let count = self.counts[id.index()];
            if count > 0 {
                *logit -= self.presence_penalty + self.frequency_penalty * count as f32;
            }
        }
    }
}

/// The generator xoshiro256** of Blackman and Vigna, its state filled by splitmix64 as they advise.
#[derive(Clone, Debug)]
struct Random {
    state: [u64; 4],
}

impl Random {
    fn new(seed: u64) -> Random {
        let mut x = seed;
        let state = std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        });
        Random { state }
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        b.wrapping_mul(5).rotate_left(7).wrapping_mul(9)
    }

    /// Even over [0, 1): the top 53 bits.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
