//! The demo model on its golden prompts.

use ouzel_oracle::Oracle;
use serde_json::Value;

use crate::{check, repository};

/// The goldens were computed in f32 and written with six decimals; they lie within 8.7e-6, measured here.
const TOLERANCE: f64 = 2e-5;

fn numbers<T>(value: &Value, convert: impl Fn(&Value) -> Option<T>) -> Vec<T> {
    let values = value.as_array().expect("a list");
    values
        .iter()
        .map(|value| convert(value).expect("a number"))
        .collect()
}

#[test]
fn the_likeliest_tokens_after_each_prompt_match_the_goldens() {
    let oracle = Oracle::load(&repository("models/demo")).expect("the demo model");
    let text =
        std::fs::read_to_string(repository("testdata/demo/golden.json")).expect("the goldens");
    let golden: Value = serde_json::from_str(&text).expect("JSON");
    let prompts = golden["prompts"].as_array().expect("prompts");
    assert_eq!(prompts.len(), 3);
    for prompt in prompts {
        let id = |value: &Value| value.as_u64().map(|id| id as u32);
        let trace = oracle.forward(&numbers(&prompt["ids"], id));
        let logits = trace.logits.last().expect("a token");
        let mut ids: Vec<u32> = (0..logits.len() as u32).collect();
        ids.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
        ids.truncate(20);
        assert_eq!(
            ids,
            numbers(&prompt["top20_ids"], id),
            "{}",
            prompt["prompt"]
        );
        let expected = numbers(&prompt["top20_logits"], |value| {
            value.as_f64().map(|x| x as f32)
        });
        let actual = ids.iter().map(|&id| logits[id as usize]);
        let worst = check(&prompt["prompt"].to_string(), actual, &expected, TOLERANCE);
        println!("{}: {worst:.1e}", prompt["prompt"]);
    }
}
