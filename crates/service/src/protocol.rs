//! What the two processes say to each other: `docs/decode-service.md`, as types.
//!
//! One JSON object a line, requests one way and reports the other, each named by its first field. The first line of either side says which
//! version of this it speaks, and whoever does not speak the same ends. A change that the other side could misread is a new version.

use std::path::PathBuf;

use ouzel::{IoMode, Options, Precision, PrefixOptions};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::exact::{self, IoModeText, PrecisionText};
use crate::experts::Experts;
use crate::turn::{Generate, Outcome, Piece, Spent, Step, TokenLogprob};

/// The version that this program speaks.
pub const PROTOCOL: u32 = 1;

/// What the owner asks of the service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// The first line.
    Hello {
        /// [`PROTOCOL`]
        protocol: u32,
    },
    /// Loads a model; once.
    Load(Box<Load>),
    /// Makes an answer.
    Generate(Box<Generate>),
    /// Ends the answer of this turn soon; says nothing to any other.
    Cancel {
        /// The turn's number.
        turn: u64,
    },
    /// Gives the model's memory back to the process.
    Unload,
    /// Ends the process, and with it the memory goes back to the system.
    Shutdown,
}

/// What the service tells its owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// The first line.
    Hello {
        /// [`PROTOCOL`]
        protocol: u32,
        /// The program's version.
        version: String,
    },
    /// The weights are being read.
    Loading,
    /// The model waits for a turn: after loading, and after each turn.
    Ready {
        /// Tokens of context.
        context: usize,
        /// What the budget adds up to, the owner's share included.
        memory_bytes: u64,
        /// What could not be kept for later, and why; each trouble once.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        troubles: Vec<String>,
    },
    /// What the turn took until now; ahead of what came of it.
    Statistics {
        /// All of it since the turn began.
        spent: Spent,
    },
    /// How the experts lie, and what became of them since the last of these.
    Experts {
        /// Those of all layers.
        now: Experts,
    },
    /// So much of the prompt is computed.
    Prefill {
        /// Tokens done.
        done: usize,
        /// Tokens in all.
        total: usize,
    },
    /// A piece of the answer.
    Token {
        /// Which one.
        piece: TokenPiece,
    },
    /// The turn came to its end.
    Finished {
        /// How.
        outcome: Outcome,
    },
    /// The turn was cancelled.
    Cancelled {
        /// What it took until then.
        outcome: Outcome,
    },
    /// What was asked for went wrong.
    Failed {
        /// How.
        message: String,
    },
    /// The model's memory is given back.
    Unloaded {
        /// As of `ready`.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        troubles: Vec<String>,
    },
}

/// A piece of an answer that tokens gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenPiece {
    /// What the model answers.
    Text(String),
    /// What it thinks.
    Thinking(String),
    /// A tool that it calls.
    Call {
        /// The tool's name.
        name: String,
        /// Its arguments.
        #[serde(with = "exact::json")]
        arguments: Map<String, Value>,
    },
    /// A token and how likely it was.
    Logprob(TokenLogprob),
}

/// Which model, and how its memory is spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    /// The model's directory.
    #[serde(with = "exact::path")]
    pub model: PathBuf,
    #[serde(with = "PrecisionText")]
    precision: Precision,
    memory: Option<u64>,
    max_context: Option<u32>,
    slots: Option<u32>,
    chunk: Option<u32>,
    #[serde(with = "IoModeText")]
    io: IoMode,
    threads: Option<u32>,
    logits_rows: u32,
    program_bytes: Option<u64>,
    other_bytes: u64,
    prefixes: Option<Prefixes>,
    #[serde(with = "exact::optional_path")]
    cache_dir: Option<PathBuf>,
}

/// What is kept of conversations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Prefixes {
    memory_bytes: u64,
    #[serde(with = "exact::optional_path")]
    dir: Option<PathBuf>,
    disk_bytes: u64,
}

impl Load {
    /// A model with these options.
    pub fn new(model: PathBuf, options: Options) -> Load {
        // Named one by one, so that an option that is new has to be thought of here.
        let Options {
            precision,
            memory,
            max_context,
            slots,
            chunk,
            io,
            threads,
            logits_rows,
            program_bytes,
            other_bytes,
            prefixes,
            cache_dir,
        } = options;
        Load {
            model,
            precision,
            memory,
            max_context,
            slots,
            chunk,
            io,
            threads,
            logits_rows,
            program_bytes,
            other_bytes,
            prefixes: prefixes.map(|kept| Prefixes {
                memory_bytes: kept.memory_bytes,
                dir: kept.dir,
                disk_bytes: kept.disk_bytes,
            }),
            cache_dir,
        }
    }

    /// The options.
    pub fn options(&self) -> Options {
        let load = self.clone();
        Options {
            precision: load.precision,
            memory: load.memory,
            max_context: load.max_context,
            slots: load.slots,
            chunk: load.chunk,
            io: load.io,
            threads: load.threads,
            logits_rows: load.logits_rows,
            program_bytes: load.program_bytes,
            other_bytes: load.other_bytes,
            prefixes: load.prefixes.map(|kept| PrefixOptions {
                memory_bytes: kept.memory_bytes,
                dir: kept.dir,
                disk_bytes: kept.disk_bytes,
            }),
            cache_dir: load.cache_dir,
        }
    }
}

impl From<Step> for Report {
    fn from(step: Step) -> Report {
        let token = |piece| Report::Token { piece };
        match step {
            Step::Spent(spent) => Report::Statistics { spent },
            Step::Experts(now) => Report::Experts { now },
            Step::Piece(Piece::Prompt { done, total }) => Report::Prefill { done, total },
            Step::Piece(Piece::Token(logprob)) => token(TokenPiece::Logprob(logprob)),
            Step::Piece(Piece::Thinking(text)) => token(TokenPiece::Thinking(text)),
            Step::Piece(Piece::Text(text)) => token(TokenPiece::Text(text)),
            Step::Piece(Piece::Call { name, arguments }) => {
                token(TokenPiece::Call { name, arguments })
            }
            Step::Done(outcome) if outcome.end == crate::turn::End::Cancelled => {
                Report::Cancelled { outcome }
            }
            Step::Done(outcome) => Report::Finished { outcome },
        }
    }
}

impl Report {
    /// What it says of an answer, if it says something of one.
    pub fn into_step(self) -> Option<Step> {
        Some(match self {
            Report::Statistics { spent } => Step::Spent(spent),
            Report::Experts { now } => Step::Experts(now),
            Report::Prefill { done, total } => Step::Piece(Piece::Prompt { done, total }),
            Report::Token { piece } => Step::Piece(match piece {
                TokenPiece::Text(text) => Piece::Text(text),
                TokenPiece::Thinking(text) => Piece::Thinking(text),
                TokenPiece::Call { name, arguments } => Piece::Call { name, arguments },
                TokenPiece::Logprob(logprob) => Piece::Token(logprob),
            }),
            Report::Finished { outcome } | Report::Cancelled { outcome } => Step::Done(outcome),
            _ => return None,
        })
    }
}
