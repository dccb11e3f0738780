//! Numbers in the documents that a plan gives: whoever changes the plan is told what to write.

use std::fs;

use ouzel_engine::Options;
use ouzel_engine::floor::{Rates, WeightBytes, forecast, gemma4_26b_a4b};
use ouzel_server::model::{MIN_SLOTS_A_LAYER, OWN_PROCESS_BYTES, SERVER_BYTES};

use crate::tool::repository;

/// The tokenizer's image of the real vocabulary, and 21 bytes a token for the sampler.
const TEXT_BYTES: u64 = 12_166_359 + 21 * 262_144;
/// The grammars of the real vocabulary; a test of the tokenizer holds them to it.
const GRAMMAR_BYTES: u64 = 39_954_348;
/// What `serve` keeps of conversations in memory.
const PREFIX_BYTES: u64 = 128 << 20;
/// What the system may keep of the program's file: 41.3 MiB of a release build for x86-64 Linux, most of them the bundled model.
const PROGRAM_BYTES: u64 = 42 << 20;
/// Stacks are counted by thread; the document's machine has so many.
const N_THREADS: u32 = 2;

/// The least whole MiB with which `serve` gives the real model this context and eight experts of each layer.
fn least_mib(context: u32) -> u64 {
    let config = gemma4_26b_a4b();
    let weights = WeightBytes::of_shape(&config);
    // Only the plan is asked for, in which no rate has a part.
    let rates = Rates {
        disk_bytes_per_s: 1.0,
        memory_bytes_per_s: 1.0,
        int8_macs_per_s: 1.0,
        f32_macs_per_s: 1.0,
    };
    let fits = |mib: u64| {
        let options = Options {
            memory: Some(mib << 20),
            max_context: Some(context),
            threads: Some(N_THREADS),
            reserved_bytes: TEXT_BYTES,
            program_bytes: Some(PROGRAM_BYTES),
            other_bytes: SERVER_BYTES + OWN_PROCESS_BYTES + GRAMMAR_BYTES,
            kept_bytes: Some(PREFIX_BYTES),
            ..Options::default()
        };
        let wanted = MIN_SLOTS_A_LAYER as usize * config.n_layers();
        forecast(&config, &weights, &options, &rates)
            .is_ok_and(|forecast| forecast.budget.slots >= wanted)
    };
    let (mut too_little, mut enough) = (0, 64 << 10);
    while enough - too_little > 1 {
        let middle = too_little + (enough - too_little) / 2;
        if fits(middle) {
            enough = middle;
        } else {
            too_little = middle;
        }
    }
    enough
}

fn with_commas(n: u64) -> String {
    match n {
        0..1000 => n.to_string(),
        _ => format!("{},{:03}", with_commas(n / 1000), n % 1000),
    }
}

#[test]
fn the_memory_that_clients_want_is_what_the_planner_says() {
    let text = fs::read_to_string(repository("docs/clients.md")).expect("the document");
    let row = |begins: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.starts_with(begins));
        let cells = line.unwrap_or_else(|| panic!("no row {begins}")).split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    let number = |cell: &str| cell.replace(',', "").parse::<u32>().ok();
    let contexts: Vec<u32> = row("| context, tokens |")
        .iter()
        .filter_map(|cell| number(cell))
        .collect();
    let expected: Vec<String> = contexts
        .iter()
        .map(|&context| with_commas(least_mib(context)))
        .collect();
    let written = row("| `--memory`, MiB |");
    let line = format!("| `--memory`, MiB | {} |", expected.join(" | "));
    assert_eq!(written[2..written.len() - 1], expected, "write {line}");

    for program in [
        "| Claude Code, ",
        "| OpenCode, ",
        "| Codex CLI |",
        "| `llm`, ",
    ] {
        let row = row(program);
        let mib = least_mib(number(&row[3]).expect("a context"));
        assert_eq!(row[4], format!("{} MiB", with_commas(mib)), "{program}");
    }
    let example = "ouzel serve --memory ";
    let (_, example) = text.split_once(example).expect("an example");
    let (memory, rest) = example.split_once("MiB --max-context ").expect("a context");
    let context = rest.split(' ').next().and_then(number).expect("a number");
    assert_eq!(memory, least_mib(context).to_string(), "the example");
}
