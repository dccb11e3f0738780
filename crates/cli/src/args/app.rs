//! The arguments of `ouzel app`: those of `ouzel serve` that a person in front of a page may want.

use std::time::Duration;

use clap::Args;

use super::parse::{duration, size_or_nothing, temperature};
use super::serve::ServeArgs;
use super::{PositionalModelArgs, Precision, SessionArgs};

/// `ouzel app`
#[derive(Args, Debug)]
#[command(after_help = "\
Listens on loopback only and prints the page's address, which opens once: what it holds is for whoever started it. Conversations are kept in
the user's data folder. The addresses of `ouzel serve` are there as well. docs/app.md has more.

Examples:
  ouzel app
  ouzel app gemma-4-26b-a4b-it-4bit --memory 6GiB --max-context 32768
  ouzel app demo --no-open --port 8080

Ctrl-C lets an answer that was begun come to its end; a second one cuts it off, and what there is of it is kept.")]
pub struct AppArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,

    /// The port of the page; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub port: u16,

    /// Print the address and open no browser.
    #[arg(long)]
    pub no_open: bool,

    /// Give the model's memory back after this time without requests, and load it again when one comes.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub idle_unload: Option<Duration>,

    /// Memory for conversations beside the last one, so that they continue where they stopped; part of --memory [default: 128MiB; 32MiB
    /// with the bundled model].
    #[arg(long, value_name = "SIZE", value_parser = size_or_nothing)]
    pub prefix_memory: Option<u64>,

    /// Room on the disk for what the model computed of conversations that leave memory. 0 keeps none.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size_or_nothing)]
    pub prefix_disk: u64,

    /// The temperature where the page's settings name none [default: 0.2; 0 with the bundled model].
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: Option<f32>,

    /// `fast` computes in int8 and keeps the context in f16; `exact` does all in f32.
    #[arg(long, value_name = "P", default_value = "fast")]
    pub precision: Precision,

    #[command(flatten)]
    pub session: SessionArgs,
}

impl AppArgs {
    /// The server that does the same.
    pub fn serving(&self) -> ServeArgs {
        ServeArgs {
            model: self.model.clone(),
            host: "127.0.0.1".to_owned(),
            port: self.port,
            api_key: None,
            model_name: Vec::new(),
            cors_origin: Vec::new(),
            queue: 16,
            time_limit: None,
            idle_unload: self.idle_unload,
            prefix_memory: self.prefix_memory,
            prefix_disk: self.prefix_disk,
            temperature: self.temperature,
            top_k: 64,
            precision: self.precision,
            session: self.session.clone(),
        }
    }
}
