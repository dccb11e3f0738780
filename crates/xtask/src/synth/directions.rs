//! What the token embeddings share, and what the routers make of it.
//!
//! An embedding is a part that all tokens share, a part that its topic shares, and a part of its own; the residual stream carries all three
//! to every layer. A router's row is noise, which answers to all of the stream, plus the shared direction times the expert's
//! popularity, plus its answers to the topics. So the score of an expert is a static popularity plus noise that is correlated for as
//! long as a topic lasts. Directions are vectors of signs: exact, and of equal length.

use ouzel::N_TOPICS;
use ouzel_format::Arch;

use super::balance::Balance;
use super::random::Random;

/// Fraction bits of an embedding's values, in steps of its scale.
const FRACTION: i32 = 12;

/// The shared direction and the topics' directions, `hidden_size` signs each.
pub struct Directions {
    shared: Vec<i8>,
    topics: Vec<Vec<i8>>,
}

impl Directions {
    /// Those of the model of `seed`.
    pub fn new(seed: u64, arch: &Arch) -> Directions {
        let signs = |name, row| {
            let mut random = Random::new(seed, name, row);
            (0..arch.hidden_size).map(|_| random.sign()).collect()
        };
        Directions {
            shared: signs("shared direction", 0),
            topics: (0..u64::from(N_TOPICS))
                .map(|topic| signs("topic direction", topic))
                .collect(),
        }
    }

    /// The rows of a router, `[num_experts, hidden_size]`, before they are rounded.
    pub fn router(&self, seed: u64, layer: u32, arch: &Arch, balance: &Balance) -> Vec<Vec<f32>> {
        let name = format!("router {layer}");
        let popularity = popularity(seed, layer, arch.num_experts as usize);
        // The router divides the stream by its length, so that a direction's entries are signs over the root.
        let root = (arch.hidden_size as f32).sqrt();
        let popularity_gain = balance.popularity_gain(layer) / root;
        let topic_gain = balance.topic_gain(layer) / root;
        let row = |(expert, popularity): (u64, f32)| {
            let mut random = Random::new(seed, &name, expert);
            let mut row: Vec<f32> = (0..arch.hidden_size).map(|_| random.normal()).collect();
            add_scaled(&mut row, popularity_gain * popularity, &self.shared);
            for topic in &self.topics {
                add_scaled(&mut row, topic_gain * random.normal(), topic);
            }
            row
        };
        (0..).zip(popularity).map(row).collect()
    }
}

fn add_scaled(row: &mut [f32], factor: f32, direction: &[i8]) {
    for (x, &sign) in row.iter_mut().zip(direction) {
        *x += factor * f32::from(sign);
    }
}

/// The popularity of each expert of a layer, of mean 0 and deviation 1 exactly, so that layers and seeds are alike.
pub fn popularity(seed: u64, layer: u32, n_experts: usize) -> Vec<f32> {
    let mut random = Random::new(seed, "popularity", layer.into());
    let mut all: Vec<f32> = (0..n_experts).map(|_| random.normal()).collect();
    let n = n_experts as f32;
    let mean = all.iter().sum::<f32>() / n;
    let deviation = (all.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / n).sqrt();
    all.iter_mut().for_each(|x| *x = (*x - mean) / deviation);
    all
}

/// Makes the rows of the embedding.
pub struct Embedding {
    vocab_size: usize,
    /// `[N_TOPICS + 1, hidden_size]`, the last one for tokens of no topic: what `q` is without the token's own part, and a half for
    /// rounding, in fixed point.
    bases: Vec<Vec<i32>>,
    /// The own part is this times an odd number from -255 to 255.
    own: i32,
}

impl Embedding {
    /// Sets up the rows for `directions`.
    pub fn new(arch: &Arch, directions: &Directions) -> Embedding {
        let fixed = |steps: f32| (steps * (1 << FRACTION) as f32).round() as i32;
        let steps = Balance::EMBEDDING_DEVIATION;
        let (shared, topic) = (
            fixed(steps * Balance::SHARED.sqrt()),
            fixed(steps * Balance::TOPIC.sqrt()),
        );
        let own = steps * (1.0 - Balance::SHARED - Balance::TOPIC).sqrt();
        // An odd number from -255 to 255, each as likely, has deviation 256 / sqrt(3).
        let own = fixed(own * 3f32.sqrt() / 256.0);
        // 7.5 is the middle of 0 to 15.
        let middle = 8 << FRACTION;
        let base = |signs: Option<&Vec<i8>>| {
            let topic_part = |i: usize| signs.map_or(0, |signs| topic * i32::from(signs[i]));
            let parts = directions.shared.iter().enumerate();
            parts
                .map(|(i, &sign)| middle + shared * i32::from(sign) + topic_part(i))
                .collect()
        };
        let topics = directions.topics.iter().map(Some);
        Embedding {
            vocab_size: arch.vocab_size as usize,
            bases: topics.chain([None]).map(base).collect(),
            own,
        }
    }

    /// Fills the packed row of token `id`, two values a byte, the first one low.
    pub fn fill(&self, id: u32, random: &mut Random, out: &mut [u8]) {
        let topic = ouzel::topic_of(self.vocab_size, id).unwrap_or(N_TOPICS);
        let base = &self.bases[topic as usize];
        let mut bytes = [0; 128];
        for (out, base) in out.chunks_mut(64).zip(base.chunks(128)) {
            random.fill(&mut bytes);
            for ((out, base), bytes) in out
                .iter_mut()
                .zip(base.chunks_exact(2))
                .zip(bytes.chunks_exact(2))
            {
                let q = |i: usize| {
                    let odd = 2 * i32::from(bytes[i]) - 255;
                    ((base[i] + self.own * odd) >> FRACTION).clamp(0, 15) as u8
                };
                *out = q(0) | q(1) << 4;
            }
        }
    }
}
