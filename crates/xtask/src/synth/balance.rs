//! The few numbers that make a random model behave: how fast the residual stream grows, and what the routers listen to.
//!
//! They are not derived; they are set so that `synth-check` measures the hit rates that the skews stand for.

use super::preset::Skew;

/// The numbers of one skew.
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    /// Share of a token embedding's energy that all tokens have in common.
    pub shared: f32,
    /// Share that the tokens of its topic have in common.
    pub topic: f32,
    /// Deviation of the experts' popularity, where the noise of the scores has deviation 1 or less.
    popularity: f32,
    /// Deviation of what a topic adds to the scores beyond its share of the noise.
    topic_answer: f32,
}

impl Balance {
    /// Deviation of an embedding's entries in steps of its scale: the parts' largest sum stays within the 7.5 steps there are.
    pub const EMBEDDING_DEVIATION: f32 = 3.0;
    /// Weight of the norm of the attention's output. Without training, attention looks at everything and gives every token nearly the
    /// same; more of it would drown the tokens.
    pub const POST_ATTENTION: f32 = 0.15;
    /// Weight of the norm of the experts' output.
    pub const POST_FEEDFORWARD: f32 = 0.25;
    /// Weight of the norms of query and key heads. Attention has no scale of its own, so that scores have deviation
    /// `0.25^2 * sqrt(head_dim)`: 1 for 256 entries a head.
    pub const QUERY_KEY: f32 = 0.25;

    /// The numbers of `skew`.
    pub fn of(skew: Skew) -> Balance {
        Balance {
            shared: 0.1,
            topic: 0.38,
            popularity: match skew {
                Skew::Trace => 1.0,
                Skew::Hard => 0.8,
            },
            topic_answer: 0.0,
        }
    }

    /// Length of a router's row along the shared direction for an expert of popularity 1.
    pub fn popularity_gain(&self, layer: u32) -> f32 {
        self.popularity * residual_rms(layer) / self.shared.sqrt()
    }

    /// Length of a router's row along each topic's direction.
    pub fn topic_gain(&self, layer: u32) -> f32 {
        self.topic_answer * residual_rms(layer) / self.topic.sqrt()
    }
}

/// Root mean square of the stream where the router of a layer reads it: embeddings start it at 1, and what layers add is normed and
/// points anywhere, so that squares add up.
pub fn residual_rms(layer: u32) -> f32 {
    let layer = layer as f32;
    let attention = (layer + 1.0) * Balance::POST_ATTENTION.powi(2);
    let feedforward = layer * Balance::POST_FEEDFORWARD.powi(2);
    (1.0 + attention + feedforward).sqrt()
}
