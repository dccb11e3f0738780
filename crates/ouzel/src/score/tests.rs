use super::*;

/// Sums of three terms in f64.
const TOLERANCE: f64 = 1e-12;

#[test]
fn each_token_is_judged_by_the_row_before_it() {
    let mut scorer = Scorer::new(&[0, 2, 1]);
    scorer.add(0, &[0.0, 0.0, 0.0]);
    scorer.add(1, &[1000.0, 1000.0, f32::NEG_INFINITY]);
    scorer.add(2, &[5.0, 6.0, 7.0]);
    let score = scorer.finish();
    let expected = [3f64.ln(), 2f64.ln()];
    assert_eq!(score.nll.len(), expected.len());
    for (actual, expected) in score.nll.iter().zip(expected) {
        assert!((actual - expected).abs() < TOLERANCE, "{actual} {expected}");
    }
    let perplexity = score.perplexity().expect("two tokens were judged");
    assert!((perplexity - 6f64.sqrt()).abs() < TOLERANCE, "{perplexity}");
}

#[test]
fn one_token_alone_says_nothing() {
    let mut scorer = Scorer::new(&[0]);
    scorer.add(0, &[1.0]);
    assert_eq!(scorer.finish().perplexity(), None);
}
