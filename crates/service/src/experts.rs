//! The expert cache at work, as the engine tells it and the page shows it.

use serde::{Deserialize, Serialize};

/// The experts of all layers at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Experts {
    /// Routed experts of each layer.
    pub experts: usize,
    /// The layers, in their order.
    pub layers: Vec<LayerExperts>,
}

/// Those of one layer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerExperts {
    /// Chosen experts that were found in memory since the model was loaded.
    pub hits: u64,
    /// Chosen experts that were read since then.
    pub misses: u64,
    /// A digit for each expert: 1 lies in memory, 2 was found there since the last look, 4 was read since then, added up.
    pub marks: String,
}

impl From<&ouzel::Experts> for Experts {
    fn from(seen: &ouzel::Experts) -> Experts {
        let counts = seen.hits.iter().zip(&seen.misses);
        let marks = seen.marks.chunks_exact(seen.n_experts.max(1));
        let layer = |((&hits, &misses), marks): ((&u64, &u64), &[u8])| LayerExperts {
            hits,
            misses,
            marks: marks.iter().map(|mark| char::from(b'0' + mark)).collect(),
        };
        Experts {
            experts: seen.n_experts,
            layers: counts.zip(marks).map(layer).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_becomes_a_digit_for_each_expert() {
        let seen = ouzel::Experts {
            n_experts: 3,
            hits: vec![5, 0],
            misses: vec![1, 2],
            marks: vec![1, 3, 4, 0, 7, 5],
        };
        let told = serde_json::to_string(&Experts::from(&seen)).unwrap();
        assert_eq!(
            told,
            r#"{"experts":3,"layers":[{"hits":5,"misses":1,"marks":"134"},{"hits":0,"misses":2,"marks":"075"}]}"#
        );
    }
}
