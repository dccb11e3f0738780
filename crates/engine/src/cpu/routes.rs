//! Which experts each row of a chunk chose, and the same seen from the experts.
//!
//! Rows choose; experts compute. `group` turns `[rows, k]` choices into one list of rows per expert, experts ascending, so that
//! an expert is read and unpacked once for all its rows. Every pair of a row and an expert has one place in that list,
//! so that its output is added to the row's sum in ascending order of expert.

use ouzel_kernels as kernels;

use crate::ExpertId;
use crate::config::Config;

/// One divided by the share of a token's experts that is not guessed. Of eight guesses the first six come true in 82 to 100 % of all cases,
/// the last two in 69 and 53, and reading those as well won less at 3 and 4 GB (`docs/experiments.md`).
const DOUBTFUL_SHARE: usize = 4;

/// The choices of a chunk.
pub struct Routes {
    k: usize,
    /// `[chunk, k]`, by descending score.
    ids: Vec<u32>,
    /// `[chunk, k]`, softmax over the chosen scores times the expert's own scale.
    weights: Vec<f32>,
    groups: Groups,
    /// What a router was guessed to choose, by descending score, and the scores.
    guessed: Vec<u32>,
    guessed_scores: Vec<f32>,
}

/// The rows of each chosen expert.
pub struct Groups {
    /// Chosen experts, ascending, with the number of rows that chose each.
    pub experts: Vec<(ExpertId, u32)>,
    /// Start of each chosen expert's pairs, and the end of the last.
    starts: Vec<u32>,
    /// Pairs `row * k + rank`, grouped by expert, rows ascending.
    pairs: Vec<u32>,
    /// Rows that chose each expert, then the next free place of each; `[n_experts]`.
    counts: Vec<u32>,
}

impl Routes {
    pub fn new(config: &Config, chunk: usize) -> Routes {
        let k = config.experts_per_token;
        Routes {
            k,
            ids: vec![0; chunk * k],
            weights: vec![0.0; chunk * k],
            groups: Groups {
                experts: Vec::with_capacity(config.n_experts),
                starts: Vec::with_capacity(config.n_experts + 1),
                pairs: vec![0; chunk * k],
                counts: vec![0; config.n_experts],
            },
            guessed: vec![0; k - k / DOUBTFUL_SHARE],
            guessed_scores: vec![0.0; k - k / DOUBTFUL_SHARE],
        }
    }

    /// Row `row` chooses the k best of `scores`; `g_e = softmax(scores[chosen])_e * scale[e]`.
    pub fn choose(&mut self, row: usize, scores: &[f32], scale: &[f32]) {
        let range = row * self.k..(row + 1) * self.k;
        let (ids, weights) = (&mut self.ids[range.clone()], &mut self.weights[range]);
        kernels::top_k(scores, ids, weights);
        kernels::softmax(weights);
        for (weight, &id) in weights.iter_mut().zip(&*ids) {
            *weight *= scale[id as usize];
        }
    }

    /// Guesses that a row would choose the best of `scores`; fewer than it will.
    pub fn guess(&mut self, scores: &[f32]) {
        kernels::top_k(scores, &mut self.guessed, &mut self.guessed_scores);
    }

    /// The guessed experts, by descending score.
    pub fn guessed(&self) -> &[u32] {
        &self.guessed
    }

    /// The experts and weights of a row, by descending score.
    pub fn of_row(&self, row: usize) -> (&[u32], &[f32]) {
        let range = row * self.k..(row + 1) * self.k;
        (&self.ids[range.clone()], &self.weights[range])
    }

    /// Groups the choices of the first `n_rows` rows by expert.
    pub fn group(&mut self, n_rows: usize) {
        let groups = &mut self.groups;
        let ids = &self.ids[..n_rows * self.k];
        groups.counts.fill(0);
        for &id in ids {
            groups.counts[id as usize] += 1;
        }
        groups.experts.clear();
        groups.starts.clear();
        let mut next = 0;
        for (expert, count) in groups.counts.iter_mut().enumerate() {
            if *count > 0 {
                groups.experts.push((ExpertId(expert as u32), *count));
                groups.starts.push(next);
                next += std::mem::replace(count, next);
            }
        }
        groups.starts.push(next);
        for (pair, &id) in ids.iter().enumerate() {
            let place = &mut groups.counts[id as usize];
            groups.pairs[*place as usize] = pair as u32;
            *place += 1;
        }
    }

    /// The chosen experts and their rows, as the last `group` left them.
    pub fn groups(&self) -> &Groups {
        &self.groups
    }

    /// The row of the chunk that a place belongs to, and the weight of its expert there.
    pub fn at_place(&self, place: usize) -> (usize, f32) {
        let pair = self.groups.pairs[place] as usize;
        (pair / self.k, self.weights[pair])
    }
}

impl Groups {
    /// The places of the `nth` chosen expert.
    pub fn places(&self, nth: usize) -> std::ops::Range<usize> {
        self.starts[nth] as usize..self.starts[nth + 1] as usize
    }
}
