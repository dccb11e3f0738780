//! What budgets of the real model would give on this machine, before anything of it is downloaded.

use std::fmt::Write;

use ouzel_engine::floor::{Rates, WeightBytes, forecast, gemma4_26b_a4b};
use ouzel_engine::{EngineError, Options};

use super::table::{aligned, percent};
use crate::args::BenchArgs;
use crate::report::bytes;

/// Budgets that are forecast where none is named: with the last every expert is in a slot.
const BUDGETS: [(&str, u64); 6] = [
    ("2GiB", 2 << 30),
    ("2.2GB", 2_200_000_000),
    ("3GB", 3_000_000_000),
    ("4GB", 4_000_000_000),
    ("8GB", 8_000_000_000),
    ("16GB", 16_000_000_000),
];
/// The tokenizer's image of the real vocabulary, and 21 bytes a token for the sampler.
const TEXT_BYTES: u64 = 12_166_359 + 21 * 262_144;

/// A table of budgets and what they would give; of one where `memory` names it.
pub fn table(args: &BenchArgs, memory: Option<u64>, rates: &Rates) -> Result<String, EngineError> {
    let config = gemma4_26b_a4b();
    let weights = WeightBytes::of_shape(&config);
    let (options, session) = (Options::default(), &args.session);
    let options = Options {
        precision: args.precision.into(),
        max_context: session.max_context,
        slots: session.slots,
        chunk: session.chunk,
        threads: session.threads,
        reserved_bytes: TEXT_BYTES,
        program_bytes: crate::models::program_bytes(),
        ..options
    };
    let budgets: Vec<(String, u64)> = match memory {
        Some(memory) => vec![(bytes(memory), memory)],
        None => BUDGETS
            .map(|(name, memory)| (name.to_owned(), memory))
            .to_vec(),
    };
    let header = [
        "memory",
        "experts of a layer in slots",
        "hits",
        "decode tokens/s",
        "prefill tokens/s",
    ];
    let mut cells = vec![header.map(str::to_owned).to_vec()];
    let (mut refused, mut context) = (String::new(), 0);
    for (name, memory) in budgets {
        let options = Options {
            memory: Some(memory),
            ..options.clone()
        };
        match forecast(&config, &weights, &options, rates) {
            Ok(forecast) => {
                context = forecast.budget.context;
                let slots = forecast.budget.slots as f64 / config.n_layers() as f64;
                cells.push(vec![
                    name,
                    format!("{slots:.1} of {}", config.n_experts),
                    percent(forecast.hit_rate),
                    format!("{:.1}", forecast.decode_tokens_per_s),
                    format!("{:.1}", forecast.prefill_tokens_per_s),
                ]);
            }
            Err(EngineError::Budget { needed, .. }) => {
                let _ = writeln!(
                    refused,
                    "{name} is too little: {} are needed",
                    bytes(needed)
                );
            }
            Err(error) => return Err(error),
        }
    }
    if context == 0 {
        return Ok(refused);
    }
    Ok(format!(
        "Forecast for Gemma 4 26B-A4B with {context} tokens of context, and a prompt of 512 tokens when no expert is in a slot yet:\n{}{refused}",
        aligned(&cells)
    ))
}
