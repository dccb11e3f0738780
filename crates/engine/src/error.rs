//! What can go wrong between a model directory and a token, grouped by what the caller can do about it.

use std::path::PathBuf;

use ouzel_format::FormatError;
use ouzel_storage::{ShowPath, StorageError};
use thiserror::Error;

use crate::{ExpertId, LayerId};

/// An error of the engine. None of them ends the session: after an error in a prefill or a decode the session stands at
/// position 0 and may be used again.
#[derive(Debug, Error)]
pub enum EngineError {
    /// The directory holds no finished model: install it first, or name another.
    #[error("{}: not a model directory: {reason}", dir.shown())]
    NotAModel {
        /// The directory as given.
        dir: PathBuf,
        /// What is missing, and what to do.
        reason: String,
    },
    /// A file of the model breaks its format: install the model again.
    #[error("{}: {source}; install the model again", path.shown())]
    Format {
        /// The broken file.
        path: PathBuf,
        /// What is wrong with it.
        source: FormatError,
    },
    /// A file differs from what the manifest recorded: run `verify`, install again.
    #[error("{}: {what}: expected {expected}, found {actual}; the file is damaged: `ouzel install --repair`, or install the model again", path.shown())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What was compared.
        what: String,
        /// The recorded value.
        expected: String,
        /// The value found.
        actual: String,
    },
    /// A weight is missing or has a shape that the configuration does not allow.
    #[error("{}: tensor {name}: expected {expected}, found {actual}; install the model again", path.shown())]
    Tensor {
        /// The file that should hold it.
        path: PathBuf,
        /// The tensor.
        name: String,
        /// The shape or encoding that the configuration asks for.
        expected: String,
        /// What the file has.
        actual: String,
    },
    /// An expert's bytes do not match their checksum.
    #[error("{}: expert {expert} of layer {layer} does not match its checksum; the file is damaged, `ouzel install --repair` fetches it again, or install the model from its folder", path.shown())]
    Checksum {
        /// The layer's file.
        path: PathBuf,
        /// The layer.
        layer: LayerId,
        /// The expert.
        expert: ExpertId,
    },
    /// The model needs a feature that the engine lacks.
    #[error("the model needs {feature}, which this engine lacks: {found}")]
    Unsupported {
        /// The feature.
        feature: String,
        /// What the files say.
        found: String,
    },
    /// The memory budget is too small: ask for a larger one, or for less context.
    #[error("{needed} bytes of memory are needed ({}), the budget is {budget}: {advice}", mib(*needed))]
    Budget {
        /// The smallest budget that would do, in bytes.
        needed: u64,
        /// The budget asked for, in bytes.
        budget: u64,
        /// What to change.
        advice: String,
    },
    /// An option is out of range for this model.
    #[error("{option} {value}: {allowed}")]
    Option {
        /// The option, as its flag is called.
        option: &'static str,
        /// The value given.
        value: u64,
        /// What would be allowed.
        allowed: String,
    },
    /// The tokens do not fit the context: nothing was changed.
    #[error("{n_tokens} tokens at position {position} do not fit a context of {capacity}")]
    ContextFull {
        /// Tokens to add.
        n_tokens: usize,
        /// Tokens already there.
        position: usize,
        /// Room in all.
        capacity: usize,
    },
    /// A token id is not in the vocabulary: nothing was changed.
    #[error("token id {id} is not in the vocabulary of {vocab_size}")]
    UnknownToken {
        /// The id.
        id: u32,
        /// Size of the vocabulary.
        vocab_size: usize,
    },
    /// The caller's progress function said stop.
    #[error("cancelled")]
    Cancelled,
    /// The system could not give what was asked: threads, memory.
    #[error("{what}: {reason}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// Why it failed.
        reason: String,
    },
    /// A file could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}
