//! What a constraint costs: `constraint IMAGE`, with an image that `footprint compile` wrote.
//!
//! Prints what the trie keeps by its own account and by the system's (Linux only), the time to build it, and the times of the masks along
//! an answer in JSON and a tool call.

use ouzel_tokenizer::grammar::{Constraint, Demand, Grammars};
use ouzel_tokenizer::{Tokenizer, Tool};
use serde_json::{Value, json};
use std::error::Error;
use std::time::{Duration, Instant};

const JSON: &str = r#"{"city":"Paris in the spring, \"la ville lumière\"","days":3,"unit":"celsius","tags":["a","bc"]}"#;
const CALL: &str = "<|tool_call>call:weather{city:<|\"|>Paris in the spring, la ville lumière<|\"|>,days:3,tags:[<|\"|>a<|\"|>,<|\"|>bc<|\"|>],unit:<|\"|>celsius<|\"|>}<tool_call|>";

fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args().nth(1).ok_or("usage: constraint IMAGE")?;
    let tokenizer = Tokenizer::from_image(std::fs::read(image)?)?;
    let start = Instant::now();
    let grammars = Grammars::new(&tokenizer)?;
    println!(
        "{} tokens, counted in {:?}",
        tokenizer.vocab_size(),
        start.elapsed()
    );
    println!("bytes {}", grammars.bytes());
    let before = status("VmRSS:");
    let start = Instant::now();
    grammars.compile(&tokenizer, &Demand::JsonObject)?;
    println!("built with the first demand in {:?}", start.elapsed());
    println!(
        "VmRSS before {before}, after {}, VmHWM {}",
        status("VmRSS:"),
        status("VmHWM:")
    );
    let schema = schema();
    let demand = Demand::JsonSchema(schema.clone());
    walk(&tokenizer, &grammars, "JSON", &demand, JSON)?;
    let demand = Demand::Tools {
        tools: vec![Tool {
            name: "weather".to_owned(),
            description: None,
            parameters: Some(schema),
            strict: true,
        }],
        at_least_one: true,
        only: None,
        parallel: true,
    };
    walk(&tokenizer, &grammars, "call", &demand, CALL)?;
    println!("VmRSS at the end {}", status("VmRSS:"));
    Ok(())
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
            "tags": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["city", "days", "unit", "tags"],
        "additionalProperties": false,
    })
}

fn walk(
    tokenizer: &Tokenizer,
    grammars: &Grammars,
    what: &str,
    demand: &Demand,
    text: &str,
) -> Result<(), Box<dyn Error>> {
    for round in ["first", "again"] {
        let start = Instant::now();
        let mut constraint = grammars.compile(tokenizer, demand)?;
        let compiled = start.elapsed();
        let (mut masks, mut accepts) = (Vec::new(), Duration::ZERO);
        for id in tokenizer.encode(text) {
            masks.push(mask(&mut constraint));
            let start = Instant::now();
            constraint.accept(id);
            accepts += start.elapsed();
        }
        masks.push(mask(&mut constraint));
        if let Some(error) = constraint.error() {
            return Err(error.into());
        }
        masks.sort_unstable();
        println!(
            "{what}, {round}: compiled in {compiled:?}; {} masks, median {:?}, longest {:?}; all ids taken in {accepts:?}",
            masks.len(),
            masks[masks.len() / 2],
            masks[masks.len() - 1],
        );
    }
    Ok(())
}

fn mask(constraint: &mut Constraint) -> Duration {
    let start = Instant::now();
    std::hint::black_box(constraint.allowed());
    start.elapsed()
}

/// A line of the process's status file.
fn status(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
}
