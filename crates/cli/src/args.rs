//! The command line as types: commands, flags, defaults, ranges.
//!
//! Everything that can be refused without looking at a file is refused here. A flag is the long form of its option's field.

mod app;
mod bench;
mod install;
mod parse;
mod serve;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use ouzel::{GenerateOptions, IoMode, Model, Options, SamplerOptions};
use ouzel_engine::FREE_BY_AUTO;
use ouzel_storage::free_memory;

use crate::exit::usage;

pub use app::AppArgs;
pub use bench::BenchArgs;
pub use install::{InstallArgs, ModelsArgs, ModelsCommand, ProgressMode, VerifyArgs};
use parse::{
    count, count_to, memory, penalty, probability, repetition_penalty, seed, stop_string,
    temperature, top_p,
};
pub use serve::ServeArgs;

const EXIT_CODES: &str = "\
Exit codes:
  0    done; also when the reader of the output went away
  1    something that should not happen
  2    the command line or its input: flags, prompts, messages, an output that exists
  3    the model: missing, unfinished, damaged or not supported
  4    not enough memory or disk for what was asked
  5    a file, a disk or the network failed, or another ouzel is in the way
  130  interrupted with Ctrl-C; an installation is paused then

Limits:
  A file or standard input that is read whole, and a line of a conversation, may have 64 MiB.

Environment:
  OUZEL_MODELS  where models are installed, instead of the user's data folder (--models-dir outweighs it)
  OUZEL_CACHE   where compiled tokenizers are kept, instead of the user's cache folder
  OUZEL_RUNTIME where processes with a model loaded leave a note, instead of the user's runtime folder
  OUZEL_API_KEY the key of `ouzel serve`, where --api-key gives none
  OUZEL_PREFIXES  where `serve` and `app` keep what was computed of conversations, instead of the user's data folder
  OUZEL_CHATS   where the page keeps conversations, instead of the user's data folder
  OUZEL_STATE   where a start without a terminal leaves its log, instead of the user's state folder
  NO_COLOR      no dimmed text
  `ouzel install --help` lists those of the network, which no other command uses";

/// Runs Gemma 4 mixture-of-experts models in a memory budget you name.
///
/// Without an installed model, a small one that is part of this program answers; the page of `app` asks first.
/// Answers and data go to standard output, everything else to standard error.
/// Started without arguments outside a terminal, by a double click for one, it is `ouzel app`.
#[derive(Debug, Parser)]
#[command(name = "ouzel", version, after_help = EXIT_CODES, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,

    /// No statistics and no progress on standard error.
    #[arg(long, global = true)]
    pub quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// One answer.
    Generate(GenerateArgs),
    /// A conversation in the terminal.
    Chat(ChatArgs),
    /// The model for other programs, over HTTP.
    Serve(Box<ServeArgs>),
    /// The page: conversations in a browser.
    App(Box<AppArgs>),
    /// The model in a process of its own: what `serve` and `app` start, and speak to over its standard streams (docs/decode-service.md).
    #[command(hide = true)]
    DecodeService,
    /// The text of a PDF file on standard input: what the page attaches, read in a process of its own.
    #[command(hide = true)]
    PdfText,
    /// Fetch the model, or turn a checkpoint in a local folder into one.
    Install(InstallArgs),
    /// The installed models: list, choose the default, remove.
    Models(ModelsArgs),
    /// Hash every file of a model again.
    Verify(VerifyArgs),
    /// What a model holds and how its memory would be spent.
    Inspect(InspectArgs),
    /// How fast a model runs here, beside what the machine could do at best.
    Bench(Box<BenchArgs>),
    /// The likelihood of given tokens or of a text, and the logits.
    Eval(EvalArgs),
    /// Text on standard input to a JSON array of token ids.
    Tokenize(TokenizeArgs),
    /// A JSON array of token ids on standard input to text.
    Detokenize(DetokenizeArgs),
    /// What a shell needs to complete command lines.
    Completions(CompletionsArgs),
}

/// `ouzel completions`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ouzel completions bash > ~/.local/share/bash-completion/completions/ouzel
  ouzel completions fish > ~/.config/fish/completions/ouzel.fish")]
pub struct CompletionsArgs {
    /// Which shell.
    pub shell: clap_complete::Shell,
}

/// Which model.
#[derive(Args, Clone, Debug, Default)]
pub struct ModelArgs {
    /// A model directory, the name of an installed model, or `demo`, the bundled one.
    ///
    /// Left out: the default model (`ouzel models`), else the only one that is installed; the bundled one where there is none.
    #[arg(long, value_name = "DIR|NAME")]
    pub model: Option<OsString>,

    /// Where models are installed.
    #[arg(long, value_name = "DIR")]
    pub models_dir: Option<PathBuf>,
}

/// Which model, for the commands that take it without a flag.
#[derive(Args, Clone, Debug)]
pub struct PositionalModelArgs {
    /// A model directory, the name of an installed model, or `demo`.
    #[arg(value_name = "MODEL", conflicts_with = "model")]
    positional: Option<OsString>,

    #[command(flatten)]
    flags: ModelArgs,
}

impl PositionalModelArgs {
    /// The same as if the flag had been used.
    pub fn model(&self) -> ModelArgs {
        let mut flags = self.flags.clone();
        flags.model = flags.model.or_else(|| self.positional.clone());
        flags
    }
}

/// How memory, disk and processor are used.
#[derive(Args, Clone, Debug, Default)]
pub struct SessionArgs {
    /// All that the process may make resident; `auto` takes half of the memory that is free now, or less where the model has no use for
    /// that much [default: 2GiB].
    #[arg(long, value_name = "SIZE|auto", value_parser = memory, allow_negative_numbers = true)]
    pub memory: Option<Memory>,

    /// Tokens of context [default: 4096, or the model's maximum if that is less].
    #[arg(long, value_name = "N", value_parser = count(1), allow_negative_numbers = true)]
    pub max_context: Option<u32>,

    /// Expert slots of each layer, instead of what the budget gives.
    #[arg(long, value_name = "N", value_parser = count(0), allow_negative_numbers = true)]
    pub slots: Option<u32>,

    /// Prompt tokens that go through a layer together.
    #[arg(long, value_name = "N", value_parser = count(1), allow_negative_numbers = true)]
    pub chunk: Option<u32>,

    /// How weights are read: past the page cache, through it (which then takes memory that is not counted), or as the file system
    /// allows.
    #[arg(long, value_name = "MODE", default_value = "auto")]
    pub io: Io,

    /// Computing threads [default: one a processor].
    #[arg(long, value_name = "N", value_parser = count_to(1, 1024), allow_negative_numbers = true)]
    pub threads: Option<u32>,

    /// Load the model although another process has one loaded, if memory allows both.
    #[arg(long)]
    pub shared: bool,
}

impl SessionArgs {
    /// As the library takes them. The memory of `auto` is left open, since it depends on the model: [`SessionArgs::settle`].
    pub fn options(&self, precision: Precision) -> Options {
        Options {
            precision: precision.into(),
            memory: match self.memory {
                Some(Memory::Bytes(bytes)) => Some(bytes),
                Some(Memory::Auto) | None => None,
            },
            max_context: self.max_context,
            slots: self.slots,
            chunk: self.chunk,
            io: self.io.into(),
            threads: self.threads,
            ..Options::default()
        }
    }

    /// Sets the memory of `auto`, when everything else in `options` stands.
    pub fn settle(&self, model: &Model, options: &mut Options) -> anyhow::Result<()> {
        if self.memory == Some(Memory::Auto) {
            options.memory = Some(model.auto_memory(options)?.ok_or_else(free_is_unknown)?);
        }
        Ok(())
    }

    /// The memory where there is no model that could say how much is of use.
    pub fn memory_of_any_model(&self) -> anyhow::Result<Option<u64>> {
        Ok(match self.memory {
            Some(Memory::Auto) => Some(free_memory().ok_or_else(free_is_unknown)? / FREE_BY_AUTO),
            Some(Memory::Bytes(bytes)) => Some(bytes),
            None => None,
        })
    }
}

fn free_is_unknown() -> anyhow::Error {
    usage("this system does not say how much memory is free; give --memory a size")
}

/// How much memory a session may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A share of what is free.
    Auto,
    /// So many bytes.
    Bytes(u64),
}

/// How an answer is made.
#[derive(Args, Clone, Debug)]
pub struct SamplingArgs {
    /// The most new tokens.
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = count(1), allow_negative_numbers = true)]
    pub max_new: u32,

    /// 0 always takes the most likely token [default: 0.2; 0 with the bundled model].
    #[arg(long, value_name = "T", value_parser = temperature, allow_negative_numbers = true)]
    pub temperature: Option<f32>,

    /// Keep this many of the most likely tokens; 0 keeps all.
    #[arg(long, value_name = "K", default_value_t = 64, value_parser = count(0), allow_negative_numbers = true)]
    pub top_k: u32,

    /// Keep the most likely tokens up to this sum of probabilities; 1 keeps all.
    #[arg(long, value_name = "P", default_value_t = 0.95, value_parser = top_p, allow_negative_numbers = true)]
    pub top_p: f32,

    /// Keep tokens at least this many times as likely as the most likely one.
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = probability, allow_negative_numbers = true)]
    pub min_p: f32,

    /// Makes tokens of the prompt and the answer less likely; 1 does nothing.
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = repetition_penalty, allow_negative_numbers = true)]
    pub repetition_penalty: f32,

    /// Makes tokens that the answer has less likely, -2 to 2.
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = penalty, allow_negative_numbers = true)]
    pub presence_penalty: f32,

    /// The same for each time that the answer has them.
    #[arg(long, value_name = "X", default_value_t = 0.0, value_parser = penalty, allow_negative_numbers = true)]
    pub frequency_penalty: f32,

    /// Fixes the draws: the same seed gives the same text.
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    pub seed: Option<u64>,

    /// Ends the answer before this text; may be given several times.
    #[arg(long, value_name = "TEXT", value_parser = stop_string, allow_hyphen_values = true)]
    pub stop: Vec<String>,

    /// Whether the model thinks first, and whether that is shown (on standard error, dimmed).
    #[arg(long, value_name = "HOW", default_value = "off")]
    pub thinking: Thinking,

    /// `fast` computes in int8 and keeps the context in f16; `exact` does all in f32.
    #[arg(long, value_name = "P", default_value = "fast")]
    pub precision: Precision,
}

impl SamplingArgs {
    /// As the library takes them; `temperature` is for where none was given.
    pub fn options(&self, temperature: f32) -> GenerateOptions {
        GenerateOptions {
            max_new: self.max_new,
            sampler: SamplerOptions {
                temperature: self.temperature.unwrap_or(temperature),
                top_k: self.top_k,
                top_p: self.top_p,
                min_p: self.min_p,
                repetition_penalty: self.repetition_penalty,
                presence_penalty: self.presence_penalty,
                frequency_penalty: self.frequency_penalty,
                seed: self.seed,
            },
            stop: self.stop.clone(),
            thinking: self.thinking != Thinking::Off,
            ..GenerateOptions::default()
        }
    }
}

/// Whether a model thinks before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Thinking {
    /// It answers at once.
    Off,
    /// It thinks, on standard error.
    Show,
    /// It thinks, and only the answer is shown.
    Hide,
}

/// How weights are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// Directly where the file system allows it.
    #[default]
    Auto,
    /// Past the page cache, or not at all.
    Direct,
    /// Through the page cache.
    Buffered,
}

impl From<Io> for IoMode {
    fn from(io: Io) -> IoMode {
        match io {
            Io::Auto => IoMode::Auto,
            Io::Direct => IoMode::Direct,
            Io::Buffered => IoMode::Buffered,
        }
    }
}

/// How activations and the KV cache are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Precision {
    /// f32 throughout.
    Exact,
    /// int8 activations and f16 keys and values.
    Fast,
}

impl From<Precision> for ouzel::Precision {
    fn from(precision: Precision) -> ouzel::Precision {
        match precision {
            Precision::Exact => ouzel::Precision::Exact,
            Precision::Fast => ouzel::Precision::Fast,
        }
    }
}

/// `ouzel generate`
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("input").required(true),
    after_help = "\
Examples:
  ouzel generate \"What is a fieldfare?\"
  ouzel generate --temperature 0.8 --seed 7 \"Define serendipity.\"
  ouzel generate --prompt \"A thrush is\" --max-new 20
  echo '[{\"role\":\"user\",\"content\":\"What is 17 + 25?\"}]' | ouzel generate --messages-file -"
)]
pub struct GenerateArgs {
    /// What the model is asked; the model's chat template is put around it.
    #[arg(group = "input")]
    pub instruction: Option<String>,

    /// A text that the model continues, as it stands: no template, and control tokens count.
    #[arg(long, value_name = "TEXT", group = "input", allow_hyphen_values = true)]
    pub prompt: Option<String>,

    /// A JSON array of {"role", "content"}; roles user, assistant (or model), system. `-` is standard input.
    #[arg(long, value_name = "FILE", group = "input")]
    pub messages_file: Option<PathBuf>,

    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub session: SessionArgs,
}

/// `ouzel chat`
#[derive(Args, Debug)]
#[command(after_help = "\
In the conversation: /help lists the commands, Ctrl-C stops an answer, Ctrl-D quits.

Examples:
  ouzel chat
  ouzel chat --model gemma-4-26b-a4b-it-4bit --memory 4GiB --max-context 8192
  printf 'What is a thrush?\\nAnd a fieldfare?\\n' | ouzel chat --quiet")]
pub struct ChatArgs {
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub session: SessionArgs,
}

/// `ouzel inspect`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  ouzel inspect
  ouzel inspect gemma-4-26b-a4b-it-4bit --memory 4GiB --max-context 16384")]
pub struct InspectArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,
    /// The precision to plan for.
    #[arg(long, value_name = "P", default_value = "fast")]
    pub precision: Precision,
    #[command(flatten)]
    pub session: SessionArgs,
}

/// `ouzel eval`
#[derive(Args, Debug)]
#[command(
    group = ArgGroup::new("input").required(true),
    after_help = "\
Examples:
  ouzel eval demo --token-ids ids.json --logits logits.safetensors
  ouzel eval --text chapter.txt --precision fast

Standard output gets one JSON object: tokens, scored_tokens, nll_per_token (mean negative log-likelihood in nats), perplexity,
and the same for each sequence together with nll, the value of each token but the first."
)]
pub struct EvalArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,

    /// A JSON array of arrays of token ids; each starts from an empty context. `-` is standard input.
    #[arg(long, value_name = "FILE.json", group = "input")]
    pub token_ids: Option<PathBuf>,

    /// A text, as one sequence behind the token that begins a prompt. `-` is standard input.
    #[arg(long, value_name = "FILE", group = "input")]
    pub text: Option<PathBuf>,

    /// Write the logits: tensors seq0.logits, seq1.logits, ... f32 [tokens, vocabulary]. OUT must not exist yet, unless it is a FIFO
    /// or a device.
    #[arg(long, value_name = "OUT.safetensors")]
    pub logits: Option<PathBuf>,

    /// `exact` does all in f32; `fast` computes in int8 and keeps the context in f16.
    #[arg(long, value_name = "P", default_value = "exact")]
    pub precision: Precision,

    #[command(flatten)]
    pub session: SessionArgs,
}

/// `ouzel tokenize`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  echo -n 'What is a fieldfare?' | ouzel tokenize
  ouzel tokenize demo --chat messages.json

With --chat, FILE is a messages array, or an object with messages and, where wanted, tools, add_generation_prompt (true) and
kwargs, the variables of the template such as enable_thinking.")]
pub struct TokenizeArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,

    /// Put a messages file through the chat template and print {"text", "ids"}. `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub chat: Option<PathBuf>,
}

/// `ouzel detokenize`
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  echo '[650, 610, 590, 2584, 524]' | ouzel detokenize
  ouzel tokenize < letter.txt | ouzel detokenize")]
pub struct DetokenizeArgs {
    #[command(flatten)]
    pub model: PositionalModelArgs,
}

#[cfg(test)]
mod tests;
