//! The few numbers that make a random model behave: how fast the residual stream grows, and what the routers listen to.
//!
//! They are not derived; they are set so that `synth-check` measures the hit rates that the skews stand for.

use super::preset::Skew;

/// The numbers of one skew.
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    /// Deviation of the experts' popularity over that of the noise in their scores.
    popularity: f32,
}

impl Balance {
    /// Share of a token embedding's energy that all tokens have in common.
    pub const SHARED: f32 = 0.1;
    /// Share that the tokens of its topic have in common.
    pub const TOPIC: f32 = 0.38;
    /// Share of the noise in the scores that lasts as long as a topic.
    const LASTING_NOISE: f32 = 0.45;
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

    /// The numbers of `skew`. A replay of the cache policy over scores made of such a popularity, noise and topics comes within 2 points
    /// of the hit rates wanted, at every size.
    pub fn of(skew: Skew) -> Balance {
        Balance {
            popularity: match skew {
                Skew::Trace => 1.0,
                Skew::Hard => 0.8,
            },
        }
    }

    /// Length of a router's row along the shared direction for an expert of popularity 1.
    ///
    /// The random part of the row answers to whatever all tokens have in common, which is a popularity too; so only what lacks is added.
    pub fn popularity_gain(&self, layer: u32) -> f32 {
        let stream = Stream::before_router(layer);
        let noise = 1.0 - stream.common + stream.topic_answer();
        let lacking = self.popularity.powi(2) * noise - stream.common;
        (lacking.max(0.0) * stream.energy / Balance::SHARED).sqrt()
    }

    /// Length of a router's row along each topic's direction: again what lacks.
    pub fn topic_gain(&self, layer: u32) -> f32 {
        let stream = Stream::before_router(layer);
        (stream.topic_answer() * stream.energy / Balance::TOPIC).sqrt()
    }
}

/// What the residual stream is made of where the router of a layer reads it. Embeddings start with energy 1, and what layers add is
/// normed and points anywhere, so that energies add up.
struct Stream {
    /// Mean square.
    energy: f32,
    /// Share that all tokens have in common.
    common: f32,
    /// Share that the tokens of one stretch have in common beyond that.
    topical: f32,
}

impl Stream {
    /// How much of what attention and experts add is the same for all tokens, and how much of both for one topic's tokens: read off the
    /// scores of the full preset over 640 tokens, layer by layer.
    const COMMON_OF_ATTENTION: f32 = 0.85;
    const COMMON_OF_EXPERTS: f32 = 0.15;
    const TOPICAL: f32 = 0.09;

    fn before_router(layer: u32) -> Stream {
        let layer = layer as f32;
        let attention = (layer + 1.0) * Balance::POST_ATTENTION.powi(2);
        let experts = layer * Balance::POST_FEEDFORWARD.powi(2);
        let energy = 1.0 + attention + experts;
        let common = Balance::SHARED
            + Stream::COMMON_OF_ATTENTION * attention
            + Stream::COMMON_OF_EXPERTS * experts;
        Stream {
            energy,
            common: common / energy,
            topical: (Balance::TOPIC + Stream::TOPICAL * (attention + experts)) / energy,
        }
    }

    /// The variance that topics have to add to the scores, beside the 1 of the random part, so that the wanted share of the noise lasts.
    fn topic_answer(&self) -> f32 {
        let lacking = Balance::LASTING_NOISE * (1.0 - self.common) - self.topical;
        lacking.max(0.0) / (1.0 - Balance::LASTING_NOISE)
    }
}
