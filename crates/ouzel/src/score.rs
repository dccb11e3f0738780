//! How likely a model finds a text.

/// The likelihood of a sequence of tokens.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Score {
    /// Negative log-likelihood of each token but the first, given those before it, in nats.
    pub nll: Vec<f64>,
}

impl Score {
    /// The sum over all tokens.
    pub fn total_nll(&self) -> f64 {
        self.nll.iter().sum()
    }

    /// The mean, or `None` for a sequence of one token, which says nothing.
    pub fn mean_nll(&self) -> Option<f64> {
        (!self.nll.is_empty()).then(|| self.total_nll() / self.nll.len() as f64)
    }

    /// The exponential of the mean.
    pub fn perplexity(&self) -> Option<f64> {
        self.mean_nll().map(f64::exp)
    }
}

/// Takes the rows of logits in order.
pub(crate) struct Scorer<'a> {
    ids: &'a [u32],
    score: Score,
}

impl<'a> Scorer<'a> {
    pub fn new(ids: &'a [u32]) -> Scorer<'a> {
        let nll = Vec::with_capacity(ids.len());
        Scorer {
            ids,
            score: Score { nll },
        }
    }

    /// The logits after token `row`, by which the next token is judged.
    pub fn add(&mut self, row: usize, logits: &[f32]) {
        if let Some(&next) = self.ids.get(row + 1) {
            self.score.nll.push(nll(logits, next as usize));
        }
    }

    pub fn finish(self) -> Score {
        self.score
    }
}

/// `ln(sum(exp(x))) - x[id]`, in f64.
fn nll(logits: &[f32], id: usize) -> f64 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits
        .iter()
        .map(|&x| (f64::from(x) - f64::from(max)).exp())
        .sum();
    sum.ln() + f64::from(max) - f64::from(logits[id])
}

#[cfg(test)]
mod tests;
