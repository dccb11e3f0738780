//! How likely the model found a token, and which it found likeliest.
//!
//! Log-softmax of the model's own logits at temperature 1, before biases, penalties and masks: what other servers report, and what
//! says something about the model rather than about the options.

use super::{Candidate, weight};
use crate::TokenId;

/// The most alternatives that may be asked for.
pub const MAX_LOGPROBS: usize = 20;

/// The likeliest tokens of one row of logits, with everything it needs allocated.
#[derive(Clone, Debug)]
pub struct Logprobs {
    n: usize,
    best: Vec<Candidate>,
    top: Vec<(TokenId, f32)>,
}

impl Logprobs {
    /// For `n` alternatives, of which no more than [`MAX_LOGPROBS`] are given.
    pub fn new(n: usize) -> Logprobs {
        let n = n.min(MAX_LOGPROBS);
        Logprobs {
            n,
            best: Vec::with_capacity(n + 1),
            top: Vec::with_capacity(n),
        }
    }

    /// The natural logarithm of the token's probability. NaN where the logits have no distribution.
    ///
    /// # Panics
    /// If the id is outside the vocabulary.
    pub fn of(&mut self, logits: &[f32], id: TokenId) -> f32 {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits
            .iter()
            .filter(|logit| !logit.is_nan())
            .map(|&logit| weight(logit, max, 1.0))
            .sum();
        let log_total = f64::from(max) + sum.ln();
        let logprob = |logit: f32| (f64::from(logit) - log_total) as f32;
        self.find_best(logits);
        self.top.clear();
        let named = |found: &Candidate| (TokenId(found.id), logprob(found.logit));
        self.top.extend(self.best.iter().map(named));
        logprob(logits[id.index()])
    }

    /// The likeliest tokens of the last row with their logarithms, likeliest first, of equals the lower id.
    pub fn top(&self) -> &[(TokenId, f32)] {
        &self.top
    }

    /// Few are wanted of many, so nearly every logit fails the first comparison.
    fn find_best(&mut self, logits: &[f32]) {
        self.best.clear();
        if self.n == 0 {
            return;
        }
        for (id, &logit) in (0..).zip(logits) {
            let is_full = self.best.len() == self.n;
            if logit.is_nan() || (is_full && logit <= self.best[self.n - 1].logit) {
                continue;
            }
            let at = self.best.partition_point(|other| other.logit >= logit);
            self.best.insert(at, Candidate { logit, id });
            self.best.truncate(self.n);
        }
    }
}
