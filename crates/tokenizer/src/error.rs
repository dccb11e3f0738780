//! What can go wrong in this room, grouped by what the caller can do about it.
//!
//! A `TokenizerError` speaks of files (a tokenizer.json or a compiled image), a `TemplateError` of a template or of one conversation.
//! Text and token ids never fail: every text can be encoded and every list of ids can be decoded.

/// Why a tokenizer.json could not be compiled, or why a compiled image could not be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The reader failed.
    #[error("cannot read the tokenizer: {0}")]
    Io(#[from] std::io::Error),
    /// Not JSON, or JSON of another shape than a tokenizer.json has.
    #[error("tokenizer.json is not valid: {0}")]
    Json(String),
    /// The file is larger than any tokenizer.json this room accepts.
    #[error("tokenizer.json is larger than {limit} bytes")]
    TooLarge {
        /// The largest size accepted.
        limit: u64,
    },
    /// The tokenizer uses something that would make our ids differ from its own library's.
    #[error("tokenizer.json uses a feature that Ouzel does not implement: {feature} = {value}")]
    UnsupportedFeature {
        /// Where in the file, in dots: `model.dropout`.
        feature: String,
        /// What stands there, shortened.
        value: String,
    },
    /// A part that is needed is missing.
    #[error("tokenizer.json has no {0}")]
    Missing(&'static str),
    /// Two parts of the file contradict each other.
    #[error("tokenizer.json contradicts itself: {0}")]
    Inconsistent(String),
    /// The bytes are no compiled tokenizer, or one of another version: compile it again.
    #[error(
        "not a compiled tokenizer of version {expected} (found magic and version {actual:02x?})"
    )]
    NotAnImage {
        /// The version this build reads.
        expected: u32,
        /// The first twelve bytes found (fewer where the image is shorter).
        actual: Vec<u8>,
    },
    /// The image was cut short, or has bytes after its end: compile it again.
    #[error("the compiled tokenizer has {actual} bytes, its header announces {expected}")]
    ImageSize {
        /// What the header says.
        expected: u64,
        /// What is there.
        actual: u64,
    },
    /// The image's bytes are not the ones that were compiled: compile it again.
    #[error("the compiled tokenizer is damaged: checksum {actual:016x}, expected {expected:016x}")]
    ImageChecksum {
        /// What the header says.
        expected: u64,
        /// What the bytes give.
        actual: u64,
    },
    /// A table of the image breaks an invariant: compile it again.
    #[error("the compiled tokenizer is damaged: {table}, entry {index}")]
    ImageTable {
        /// Which table.
        table: &'static str,
        /// Which entry of it.
        index: usize,
    },
}

/// Why a chat template could not be read or a conversation could not be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The template's source is not valid Jinja.
    #[error("the chat template is not valid: {0}")]
    Syntax(String),
    /// The template itself refused the conversation; the message is the template's own.
    #[error("{0}")]
    Raised(String),
    /// Rendering failed: the conversation has a shape that the template cannot handle.
    #[error("the chat template cannot render this conversation: {0}")]
    Render(String),
}
