//! Whether another engine chooses the same experts.

use std::collections::BTreeMap;

use anyhow::{Context, bail};

use super::replay::Choices;

/// How much of a layer's choices another engine shares.
pub struct Agreement {
    /// The layer.
    pub layer: usize,
    /// Share of its choices that the other made for the same token too.
    pub same: f64,
}

/// Compares `ours` with the lines of `theirs`, as [`Choices::csv`] writes them; a line's id is not looked at and may be missing.
///
/// # Errors
/// Where a line is not of that form, or one is missing.
pub fn compare(ours: &Choices, theirs: &str) -> anyhow::Result<Vec<Agreement>> {
    let theirs = parse(theirs)?;
    let mut all = Vec::new();
    for (layer, choices) in ours.layers.iter().enumerate() {
        let mut same = 0;
        for (token, chosen) in choices.chunks_exact(ours.k).enumerate() {
            let other = theirs.get(&(layer, token));
            let other =
                other.with_context(|| format!("no line for layer {layer}, token {token}"))?;
            same += chosen
                .iter()
                .filter(|expert| other.contains(expert))
                .count();
        }
        let same = same as f64 / choices.len() as f64;
        all.push(Agreement { layer, same });
    }
    Ok(all)
}

fn parse(text: &str) -> anyhow::Result<BTreeMap<(usize, usize), Vec<u32>>> {
    let mut lines = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [layer, token, .., experts] = fields[..] else {
            bail!("{line:?} is no choice of experts");
        };
        let parsed = || {
            let experts = experts.split(' ').map(str::parse).collect::<Result<_, _>>();
            anyhow::Ok(((layer.parse()?, token.parse()?), experts?))
        };
        let (place, experts) = parsed().with_context(|| format!("{line:?}"))?;
        lines.insert(place, experts);
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ouzel_engine::TokenId;

    #[test]
    fn shares_are_counted_by_layer() {
        let ours = Choices {
            n_experts: 9,
            k: 2,
            layers: vec![vec![0, 1, 4, 3], vec![7, 8, 1, 2]],
        };
        let same = |text: &str| -> anyhow::Result<Vec<f64>> {
            Ok(compare(&ours, text)?
                .iter()
                .map(|layer| layer.same)
                .collect())
        };
        assert_eq!(
            same(&ours.csv(&[TokenId(5), TokenId(6)])).expect("itself"),
            [1.0, 1.0]
        );
        let without_ids = "layer,token,experts\n1,1,3 2\n0,0,2 3\n0,1,3 4\n1,0,7 8\n";
        assert_eq!(same(without_ids).expect("any order"), [0.5, 0.75]);
        for bad in ["", "x\n0,0,0 1\n", "x\n0,0\n", "x\n0,0,a b\n"] {
            assert!(same(bad).is_err(), "{bad:?}");
        }
    }
}
