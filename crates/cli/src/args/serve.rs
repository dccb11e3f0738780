//! The arguments of `ouzel serve`.

use std::time::Duration;

use clap::Args;

use super::parse::{
    count, count_to, duration, non_empty, origin, port, size_or_nothing, temperature_of_requests,
};
use super::{PositionalModelArgs, Precision, SessionArgs};

/// Requests that may wait where nobody says.
pub const QUEUE: u32 = 16;
/// The most likely tokens that are kept where nobody says.
pub const TOP_K: u32 = 64;

/// `ouzel serve`
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Speaks OpenAI's chat completions, completions and responses, and Anthropic's messages: docs/server.md has every field, docs/clients.md
the clients. It runs no tools; its clients do.

Examples, each by itself; a second server beside the first wants another --port and --shared:
  ouzel serve
  ouzel serve gemma-4-26b-a4b-it-4bit --memory 6GiB --max-context 32768 --idle-unload 10m
  ouzel serve demo --port 8081 --shared
  OUZEL_API_KEY=secret ouzel serve --host 0.0.0.0

And a question:
  curl localhost:8080/v1/chat/completions -H 'Content-Type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is a fieldfare?\"}]}'

Ctrl-C and SIGTERM let answers that were begun come to their end; a second one cuts them off.")]
pub struct ServeArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,

    /// The address to listen on; one that is not loopback needs an API key. There is no encryption: put a proxy before it.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = non_empty)]
    pub host: String,

    /// The port; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 8080, value_parser = port, allow_negative_numbers = true)]
    pub port: u16,

    /// Refuse everyone who does not say this key. Other users see a command line; the environment variable OUZEL_API_KEY does the same.
    #[arg(long, value_name = "KEY", value_parser = non_empty)]
    pub api_key: Option<String>,

    /// What clients call the model, instead of the name of its directory; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = non_empty)]
    pub model_name: Vec<String>,

    /// Let pages of this origin ask from a browser, such as https://example.org; `*` lets all. May be given several times.
    #[arg(long, value_name = "ORIGIN", value_parser = origin)]
    pub cors_origin: Vec<String>,

    /// Requests that may wait while one is answered; further ones are sent away with 429.
    #[arg(long, value_name = "N", default_value_t = QUEUE, value_parser = count_to(0, 1024), allow_negative_numbers = true)]
    pub queue: u32,

    /// The most time for one request, waiting included; what was answered until then is its answer.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time_limit: Option<Duration>,

    /// The most likely tokens that are kept where a request does not say; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = TOP_K, value_parser = count(0), allow_negative_numbers = true)]
    pub top_k: u32,

    #[command(flatten)]
    pub served: ServedArgs,
}

impl ServeArgs {
    /// The same, with each name of the model once.
    pub fn with_names_once(mut self) -> ServeArgs {
        let mut names: Vec<String> = Vec::new();
        for name in std::mem::take(&mut self.model_name) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        self.model_name = names;
        self
    }
}

/// What stands in the place of the usual help where a model is served: its defaults differ.
const MEMORY_HELP: &str = "All that the server and its decode service may make resident; `auto` takes half of the memory that is free now, or less where the model has no use for that much [default: 2GiB]";
const CONTEXT_HELP: &str = "Tokens of context [default: the most that leaves eight expert slots a layer in --memory, or 4096 where nothing does]";

/// How a model is served, to other programs or to a page.
#[derive(Args, Clone, Debug)]
#[command(
    mut_arg("memory", |arg| arg.help(MEMORY_HELP)),
    mut_arg("max_context", |arg| arg.help(CONTEXT_HELP))
)]
pub struct ServedArgs {
    /// Give the model's memory back after this time without requests, and load it again when one comes.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub idle_unload: Option<Duration>,

    /// Memory for conversations beside the last one, so that they continue where they stopped; part of --memory [default: 128MiB; 32MiB
    /// with the bundled model].
    #[arg(long, value_name = "SIZE", value_parser = size_or_nothing, allow_negative_numbers = true)]
    pub prefix_memory: Option<u64>,

    /// Room on the disk for what the model computed of conversations that leave memory; it outlives the program. 0 keeps none.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = size_or_nothing, allow_negative_numbers = true)]
    pub prefix_disk: u64,

    /// The temperature where neither a request nor the page's settings name one, 0 to 2 [default: 0.2; 0 with the bundled model].
    #[arg(long, value_name = "T", value_parser = temperature_of_requests, allow_negative_numbers = true)]
    pub temperature: Option<f32>,

    /// `fast` computes in int8 and keeps the context in f16; `exact` does all in f32.
    #[arg(long, value_name = "P", default_value = "fast")]
    pub precision: Precision,

    /// Keep the model in this process instead of a decode service that is started for it: what ends the one then ends both.
    #[arg(long)]
    pub in_process: bool,

    #[command(flatten)]
    pub session: SessionArgs,
}
