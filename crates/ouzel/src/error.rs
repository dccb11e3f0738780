//! What can go wrong between a model directory and an answer, grouped by what the caller can do about it.

use std::path::PathBuf;
use std::sync::Arc;

use ouzel_engine::EngineError;
use ouzel_storage::ShowPath;
use ouzel_tokenizer::{TemplateError, TokenizerError};
use thiserror::Error;

/// An error of the library. None of them ends a session.
#[derive(Debug, Error)]
pub enum Error {
    /// The model, its memory, its files or its tokens.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The model computes, but has no usable tokenizer or chat template.
    #[error(transparent)]
    Text(#[from] Arc<TextError>),
    /// The template refused the conversation.
    #[error("the model's chat template refuses this conversation: {0}")]
    Conversation(#[from] TemplateError),
    /// There is nothing to answer.
    #[error("the prompt is empty; give at least one word")]
    EmptyPrompt,
    /// The answer could not be held any further to what was demanded of it.
    #[error(
        "the answer cannot be held to what was demanded of it: {0}; demand something simpler, such as a schema with fewer optional properties"
    )]
    Constraint(String),
    /// The prompt and one token of an answer do not fit the context. Nothing was changed.
    #[error(
        "{needed} tokens are needed and the context has {capacity}; shorten the prompt or give a larger --max-context"
    )]
    ContextFull {
        /// Tokens of the prompt, the conversation so far included, and one for the answer.
        needed: usize,
        /// Tokens that the context holds.
        capacity: usize,
    },
}

/// Why a model has no text: such a model still computes on token ids.
#[derive(Debug, Error)]
pub enum TextError {
    /// A file is not part of the model.
    #[error("{}: no {file}, without which {missing}; put the file into the checkpoint's folder and install again (token ids work without it)", dir.shown())]
    Missing {
        /// The model directory.
        dir: PathBuf,
        /// The file that should be there.
        file: &'static str,
        /// What cannot be done.
        missing: &'static str,
    },
    /// A file differs from what the manifest recorded.
    #[error("{}: expected SHA-256 {expected}, found {actual}; the file is damaged: `ouzel install --repair`, or install the model again", path.shown())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// The recorded hash.
        expected: String,
        /// The hash of what is there.
        actual: String,
    },
    /// A file cannot be read or understood.
    #[error("{}: {reason}", path.shown())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The tokenizer cannot be used.
    #[error("{}: {source}", path.shown())]
    Tokenizer {
        /// The tokenizer's file.
        path: PathBuf,
        /// What is wrong.
        source: TokenizerError,
    },
    /// The chat template cannot be used.
    #[error("{}: {source}", path.shown())]
    Template {
        /// The template's file.
        path: PathBuf,
        /// What is wrong.
        source: TemplateError,
    },
}
