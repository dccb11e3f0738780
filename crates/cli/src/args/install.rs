//! The arguments of `ouzel install`, `ouzel models` and `ouzel verify`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::PositionalModelArgs;

/// `ouzel install`
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  ouzel install --dry-run
  ouzel install
  ouzel install --repo mlx-community/gemma-4-26b-a4b-it-qat-4bit --revision main
  ouzel install --from ~/Downloads/gemma-4-26b-a4b-it-4bit
  ouzel install --repair

Without --from it fetches byte ranges of mlx-community/gemma-4-26b-a4b-it-4bit, at a pinned revision, and makes the model the default
of every command. Vision and audio weights are not transferred. Ctrl-C pauses; the same command goes on where it stopped, also after
a power cut. A checkpoint is an MLX 4-bit one: config.json, *.safetensors, and for text tokenizer.json and chat_template.jinja.

Environment:
  HF_TOKEN       for repositories with terms to accept; else the token file of `hf auth login`. It goes to the endpoint's host only
  HF_ENDPOINT    a mirror, instead of https://huggingface.co
  HTTPS_PROXY    http://[user:password@]host:port, with NO_PROXY
  SSL_CERT_FILE  certificate authorities to trust beside those of browsers, as PEM")]
pub struct InstallArgs {
    /// Install from the checkpoint in this folder; no connection is opened.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["repo", "revision"])]
    pub from: Option<PathBuf>,

    /// Another checkpoint of the same architecture and quantization.
    #[arg(long, value_name = "OWNER/NAME")]
    pub repo: Option<String>,

    /// A branch, a tag or a commit [default: the pinned commit; main with --repo].
    #[arg(long, value_name = "REV")]
    pub revision: Option<String>,

    /// Where the model goes [default: the models folder, named after the checkpoint].
    #[arg(long, value_name = "OUT.gturbo")]
    pub output: Option<PathBuf>,

    /// Replace what is there.
    #[arg(long)]
    pub overwrite: bool,

    /// Say what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,

    /// Fetch again what is damaged in the installed model, and nothing else.
    #[arg(long, conflicts_with_all = ["overwrite", "dry_run"])]
    pub repair: bool,

    /// Remove what an installation that was cut short has left, and stop.
    #[arg(long, conflicts_with_all = ["overwrite", "dry_run", "repair"])]
    pub discard_partial: bool,

    /// How progress is shown: a bar at a terminal and lines elsewhere, or JSON lines on standard output.
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: ProgressMode,

    /// Where models are installed.
    #[arg(long, value_name = "DIR")]
    pub models_dir: Option<PathBuf>,
}

/// How progress is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProgressMode {
    /// A bar at a terminal, lines elsewhere.
    Auto,
    /// A bar.
    Bar,
    /// Lines on standard error.
    Plain,
    /// One JSON object a line on standard output.
    Json,
    /// Nothing.
    None,
}

/// `ouzel verify`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ouzel verify gemma-4-26b-a4b-it-4bit
  ouzel verify /mnt/ssd/gemma.gturbo

Each damaged file and expert is named; `ouzel install --repair` fetches those again.")]
pub struct VerifyArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,
}

/// `ouzel models`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ouzel models
  ouzel models default gemma-4-26b-a4b-it-4bit
  ouzel models remove gemma-4-26b-a4b-it-4bit")]
pub struct ModelsArgs {
    /// What to do; the list where nothing is said.
    #[command(subcommand)]
    pub command: Option<ModelsCommand>,

    /// Where models are installed.
    #[arg(long, value_name = "DIR", global = true)]
    pub models_dir: Option<PathBuf>,
}

/// What to do with a model.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// Use this model where none is named.
    Default {
        /// The model's name in the list.
        name: String,
    },
    /// Remove a model, after a question.
    Remove {
        /// The model's name in the list.
        name: String,

        /// Ask nothing.
        #[arg(long)]
        yes: bool,
    },
}
