//! Every stage of the two tiny models, one of them in shuffled shards at odd offsets with negative scales.

use ouzel_oracle::golden::Golden;
use ouzel_oracle::{Oracle, Rows, Trace};

use crate::{check, repository};

/// The goldens were computed in f32, and what separates them from f64 is their own noise: up to 1.0e-4 at any stage, measured
/// here. Twice that still catches the subtlest mistakes known: a GELU by erf moves logits by 6e-3, another epsilon by 1e-3.
const TOLERANCE: f64 = 2e-4;

fn check_sequence(model: &str, sequence: &str, trace: &Trace, golden: &Golden) -> String {
    let mut report = format!("{model} {sequence}:");
    let stages: [(&str, &[Rows]); 7] = [
        ("hidden", &trace.hidden),
        ("router_logits", &trace.router_logits),
        ("topk_weights", &trace.topk_weights),
        ("attn", &trace.attn),
        ("mlp", &trace.mlp),
        ("moe", &trace.moe),
        ("logits", std::slice::from_ref(&trace.logits)),
    ];
    for (stage, layers) in stages {
        let name = format!("{sequence}.{stage}");
        // Only the sequence of seven has the stages inside a layer.
        if !golden.has(&name) {
            assert!(
                matches!(stage, "attn" | "mlp" | "moe") && sequence != "seq7",
                "{model} lacks {name}"
            );
            continue;
        }
        let &[.., n_tokens, width] = golden.shape(&name) else {
            panic!("{name} has rows");
        };
        let mut worst: f64 = 0.0;
        let expected = golden.f32(&name).chunks_exact(n_tokens * width);
        assert_eq!(expected.len(), layers.len(), "{model} {name}");
        for (l, (rows, expected)) in layers.iter().zip(expected).enumerate() {
            let what = format!("{model} {name} {l}");
            worst = worst.max(check(
                &what,
                rows.iter().flatten().copied(),
                expected,
                TOLERANCE,
            ));
        }
        report += &format!(" {stage} {worst:.1e}");
    }
    let ids = trace.topk_ids.concat().concat();
    assert_eq!(
        ids,
        golden.u32(&format!("{sequence}.topk_ids")),
        "{model} {sequence}"
    );
    report
}

#[test]
fn every_stage_matches_the_goldens() {
    for model in ["tiny-a", "tiny-b"] {
        let oracle =
            Oracle::load(&repository(&format!("testdata/{model}/mlx"))).expect("the model");
        let golden = Golden::load(&repository(&format!("testdata/{model}/golden.safetensors")))
            .expect("the goldens");
        for sequence in ["seq1", "seq7", "seq40"] {
            let trace = oracle.forward(&golden.u32(&format!("{sequence}.ids")));
            println!("{}", check_sequence(model, sequence, &trace, &golden));
        }
    }
}

#[test]
fn a_token_does_not_depend_on_those_after_it() {
    let oracle = Oracle::load(&repository("testdata/tiny-a/mlx")).expect("the model");
    let ids: Vec<u32> = (0..20).map(|i| i * 37 % 512).collect();
    let whole = oracle.forward(&ids);
    let start = oracle.forward(&ids[..11]);
    assert_eq!(start.logits, whole.logits[..11]);
}
