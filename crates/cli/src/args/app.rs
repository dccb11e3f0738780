//! The arguments of `ouzel app`: those of `ouzel serve` that a person in front of a page may want.

use clap::Args;

use super::parse::port;
use super::serve::{QUEUE, ServeArgs, ServedArgs, TOP_K};
use super::{InstallArgs, PositionalModelArgs, ProgressMode};

/// `ouzel app`
#[derive(Args, Debug)]
#[command(after_help = "\
Listens on loopback only and prints the page's address, which opens once: what it holds is for whoever started it. Conversations are kept in
the user's data folder. The addresses of `ouzel serve` are there as well. docs/app.md has more.

Where no model is installed the page asks which one shall answer: the bundled one at once, or one that it downloads when it is told to. What
was chosen on the page last, with its memory, counts at the next start, unless the command line names a model or has --memory, --max-context,
--slots or --io. What was chosen and cannot be had, or does not fit the free memory, is not loaded; the page says why.

Examples:
  ouzel app
  ouzel app gemma-4-26b-a4b-it-4bit --memory 6GiB --max-context 32768
  ouzel app demo --no-open --port 8080
  ouzel app --repo OWNER/NAME --revision REV

Ctrl-C lets an answer that was begun come to its end; a second one cuts it off, and what there is of it is kept.")]
pub struct AppArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,

    /// The port of the page; 0 takes a free one.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = port, allow_negative_numbers = true)]
    pub port: u16,

    /// Print the address and open no browser.
    #[arg(long)]
    pub no_open: bool,

    /// What the page offers to download: another checkpoint of the same architecture and quantization.
    #[arg(long, value_name = "OWNER/NAME")]
    pub repo: Option<String>,

    /// A branch, a tag or a commit of it [default: the pinned commit; main with --repo].
    #[arg(long, value_name = "REV")]
    pub revision: Option<String>,

    #[command(flatten)]
    pub served: ServedArgs,
}

impl AppArgs {
    /// What its page installs.
    pub fn installing(&self) -> InstallArgs {
        InstallArgs {
            from: None,
            repo: self.repo.clone(),
            revision: self.revision.clone(),
            output: None,
            overwrite: false,
            dry_run: false,
            repair: false,
            discard_partial: false,
            progress: ProgressMode::None,
            models_dir: self.model.model().models_dir,
        }
    }

    /// The server that does the same.
    pub fn serving(&self) -> ServeArgs {
        ServeArgs {
            model: self.model.clone(),
            host: "127.0.0.1".to_owned(),
            port: self.port,
            api_key: None,
            model_name: Vec::new(),
            cors_origin: Vec::new(),
            queue: QUEUE,
            time_limit: None,
            top_k: TOP_K,
            served: self.served.clone(),
        }
    }
}
