//! The arguments of `ouzel bench`.

use std::path::PathBuf;

use clap::Args;

use super::parse::count;
use super::{PositionalModelArgs, Precision, SessionArgs};

/// `ouzel bench`
#[derive(Args, Debug)]
#[command(after_help = "\
Every run starts cold: an empty context, and no expert in a slot. It takes a fixed sequence of tokens, never the model's own
output: a prompt as long as the frontier, then --decode tokens one by one. Shares are of the least time that this machine's
disk, memory and arithmetic would need, as probed before and after. bench/README.md has the protocol.

Examples:
  ouzel bench --quick
  ouzel bench gemma-4-26b-a4b-it-4bit --memory 3GiB --frontiers 512,4096 --csv rows.csv
  ouzel bench --report > row.md
  ouzel bench --probe")]
pub struct BenchArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,

    /// Tokens in the context to measure at [default: 64,512,2048,8192,... as far as the context goes].
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', value_parser = count(1), allow_negative_numbers = true)]
    pub frontiers: Vec<u32>,

    /// Tokens decoded at each frontier [default: 64; 16 with --quick].
    #[arg(long, value_name = "N", value_parser = count(1), allow_negative_numbers = true)]
    pub decode: Option<u32>,

    /// Chooses the sequence of tokens.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        allow_negative_numbers = true
    )]
    pub seed: u64,

    /// Runs of each frontier, whose medians count; they take turns [default: 3; 1 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=99), allow_negative_numbers = true)]
    pub runs: Option<u32>,

    /// A short measurement: at most 512 tokens of context, one run, shorter probes.
    #[arg(long)]
    pub quick: bool,

    /// Write the rows as CSV; `-` is standard output, instead of the table.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,

    /// Print Markdown to paste instead of the table: machine, system, memory, probes, budget, commit, medians.
    #[arg(long, conflicts_with = "probe")]
    pub report: bool,

    /// Measure disk, memory and arithmetic alone, and forecast what budgets would give. Needs no model: where none is installed,
    /// it reads a scratch file of 2 GiB in the models folder.
    #[arg(long, conflicts_with_all = ["frontiers", "decode", "runs"])]
    pub probe: bool,

    /// `fast` computes in int8 and keeps the context in f16; `exact` does all in f32.
    #[arg(long, value_name = "P", default_value = "fast")]
    pub precision: Precision,

    #[command(flatten)]
    pub session: SessionArgs,
}
