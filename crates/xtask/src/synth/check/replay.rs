//! The engine's cache policy over recorded choices.

use ouzel_engine::{ExpertId, LayerCache, Placement, Plan, TokenId};

/// The experts that a sequence of tokens chose.
pub struct Choices {
    /// Experts of a layer.
    pub n_experts: usize,
    /// Experts of a token.
    pub k: usize,
    /// Of each layer, `[tokens, k]`.
    pub layers: Vec<Vec<u32>>,
}

impl Choices {
    /// The share of hits, over all layers, among the tokens after the first `prefill`, which go before in chunks of `chunk`, with
    /// `n_slots` retained slots a layer.
    pub fn hit_rate(&self, n_slots: usize, prefill: usize, chunk: usize) -> f64 {
        let (mut hits, mut total) = (0, 0);
        let mut plan = Plan::new(self.n_experts);
        for layer in &self.layers {
            let mut cache = LayerCache::new(self.n_experts, n_slots, self.k);
            let (before, after) = layer.split_at(prefill * self.k);
            for chosen in before.chunks(chunk * self.k) {
                cache.plan_chunk(&self.grouped(chosen), &mut plan);
            }
            for chosen in after.chunks(self.k) {
                cache.plan_chunk(&self.grouped(chosen), &mut plan);
                let is_hit = |placement: &&Placement| matches!(placement, Placement::Hit(_));
                hits += plan.placements().iter().filter(is_hit).count();
                total += self.k;
            }
        }
        hits as f64 / total as f64
    }

    /// How often each expert of a layer was chosen, most popular first.
    pub fn counts(&self, layer: usize) -> Vec<u32> {
        let mut counts = self.count(&self.layers[layer]);
        counts.sort_unstable_by(|a, b| b.cmp(a));
        counts
    }

    /// The share of a layer's choices that the token before made too.
    pub fn repeated(&self, layer: usize) -> f64 {
        let tokens: Vec<&[u32]> = self.layers[layer].chunks_exact(self.k).collect();
        let repeated: usize = tokens
            .windows(2)
            .map(|pair| pair[1].iter().filter(|e| pair[0].contains(e)).count())
            .sum();
        repeated as f64 / (tokens.len().saturating_sub(1).max(1) * self.k) as f64
    }

    /// A line for each layer and token: both, the token's id, then the experts in ascending order.
    pub fn csv(&self, ids: &[TokenId]) -> String {
        let mut text = "layer,token,id,experts\n".to_owned();
        for (l, layer) in self.layers.iter().enumerate() {
            let tokens = layer.chunks_exact(self.k).zip(ids);
            for (token, (chosen, TokenId(id))) in tokens.enumerate() {
                let mut chosen = chosen.to_vec();
                chosen.sort_unstable();
                let chosen: Vec<String> = chosen.iter().map(u32::to_string).collect();
                text += &format!("{l},{token},{id},{}\n", chosen.join(" "));
            }
        }
        text
    }

    fn count(&self, chosen: &[u32]) -> Vec<u32> {
        let mut counts = vec![0; self.n_experts];
        for &expert in chosen {
            counts[expert as usize] += 1;
        }
        counts
    }

    /// Each chosen expert once, ascending, with its rows, as the policy wants it.
    fn grouped(&self, chosen: &[u32]) -> Vec<(ExpertId, u32)> {
        let counts = (0..).map(ExpertId).zip(self.count(chosen));
        counts.filter(|&(_, n_rows)| n_rows > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_after_the_prefill_only() {
        let choices = Choices {
            n_experts: 4,
            k: 2,
            layers: vec![vec![0, 1, 0, 1, 2, 3], vec![0, 1, 2, 3, 2, 3]],
        };
        // Everything fits: of the last two tokens' choices, the first layer knows 2 of 4 and the second one 2 of 4.
        assert_eq!(choices.hit_rate(4, 1, 8), 0.5);
        assert_eq!(choices.hit_rate(4, 2, 8), 0.5);
        assert_eq!(choices.hit_rate(0, 1, 8), 0.0);
        assert_eq!(choices.counts(0), [2, 2, 1, 1]);
        assert_eq!(choices.repeated(0), 0.5);
        let csv = choices.csv(&[70, 71, 72].map(TokenId));
        assert!(
            csv.starts_with("layer,token,id,experts\n0,0,70,0 1\n0,1,71,0 1\n"),
            "{csv}"
        );
        assert!(csv.ends_with("\n1,2,72,2 3\n"), "{csv}");
    }
}
