//! The one error type of this room.
//!
//! Each rule of the format has its own variant, and each variant carries what a person needs to find the fault: the field, tensor or
//! path, where it lies, what was expected and what was found. Nothing here is retryable: the same bytes fail the same way.

use std::fmt;

/// Why bytes are not what they claim to be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs)] // The message of each variant documents its fields.
pub enum FormatError {
    // Text that cannot be read at all.
    #[error("{what} is not valid JSON: {message} (line {line}, column {column})")]
    Json {
        what: &'static str,
        line: usize,
        column: usize,
        message: String,
    },
    #[error("{what}: the key {key} occurs twice")]
    DuplicateKey { what: &'static str, key: String },
    #[error("{what} has {actual} bytes, more than the limit of {limit}")]
    TooLarge {
        what: &'static str,
        limit: u64,
        actual: u64,
    },
    #[error("{what} is cut short: {actual} bytes instead of {expected}")]
    Truncated {
        what: &'static str,
        expected: u64,
        actual: u64,
    },

    // A field of a JSON document.
    #[error("{what}: the field {field} is missing")]
    MissingField { what: &'static str, field: String },
    #[error("{what}: the field {field} should be {expected}, not {actual}")]
    WrongType {
        what: &'static str,
        field: String,
        expected: &'static str,
        actual: String,
    },
    #[error("{field} is {actual}, but has to be finite and greater than zero")]
    NotPositive { field: String, actual: String },
    #[error("{field} is {actual}, but has to be {expected}")]
    OutOfRange {
        field: String,
        expected: String,
        actual: String,
    },
    #[error("{field} is {actual}, but {other} is {expected}")]
    Disagreement {
        field: String,
        actual: String,
        other: String,
        expected: String,
    },

    // Another format, another version, or a model of another kind.
    #[error("{what} starts with {actual:?} instead of {expected:?}: it is not of this format")]
    WrongMagic {
        what: &'static str,
        expected: &'static str,
        actual: String,
    },
    #[error("{what} has version {actual}; this program reads version {expected}")]
    UnsupportedVersion {
        what: &'static str,
        expected: u64,
        actual: u64,
    },
    #[error("manifest.json has the unknown flag {flag}: a newer program wrote this model")]
    UnknownFlag { flag: String },
    #[error("manifest.json has the flag {flag} = {actual}, which this program does not support")]
    UnsupportedFlag { flag: &'static str, actual: bool },
    #[error("the model needs {feature} = {value}, which this program does not support")]
    UnsupportedFeature { feature: String, value: String },

    // The shape of the model.
    #[error("topKExperts is {top_k}, more than the {num_experts} experts of a layer")]
    TopKExceedsExperts { top_k: u32, num_experts: u32 },
    #[error("{field} has {actual} entries for {expected} layers")]
    MaskLength {
        field: &'static str,
        expected: u32,
        actual: usize,
    },
    #[error("{field} is {actual}, but has to be a multiple of 16384 greater than zero")]
    StrideNotAligned { field: &'static str, actual: u64 },
    #[error("rows of {n_in} values in {packed_cols} words are neither 4 nor 8 bits each")]
    BitsFromShape { packed_cols: u64, n_in: u64 },
    #[error("{name} holds {actual}-bit values, but the configuration says {expected}")]
    BitsDisagree {
        name: String,
        expected: u32,
        actual: u32,
    },

    // Lists of files.
    #[error("{path}: {actual:?} is not a SHA-256 of 64 hexadecimal digits")]
    BadHash { path: String, actual: String },
    #[error("the path {path:?} is not safe: it {fault}")]
    UnsafePath { path: String, fault: PathFault },
    #[error("{path:?} must not be listed among the files")]
    ReservedPath { path: String },
    #[error("the paths {path:?} and {other:?} are the same file on some systems")]
    DuplicatePath { path: String, other: String },
    #[error("{ancestor:?} is listed as a file, but {path:?} needs it as a folder")]
    AncestorPath { path: String, ancestor: String },
    #[error("manifest.json does not list {path:?}")]
    FileNotListed { path: String },

    // Tables of tensors: the resident index, the layout and safetensors headers.
    #[error("the index claims {actual} bytes, more than the limit of {limit}")]
    IndexTooLarge { limit: u64, actual: u64 },
    #[error("the index claims {actual} bytes instead of {expected}")]
    IndexSize { expected: u64, actual: u64 },
    #[error("{n_entries} entries do not fit an index of {index_size} bytes")]
    TooManyEntries { n_entries: u64, index_size: u64 },
    #[error("entry {entry} of the index puts its name at {actual} instead of {expected}")]
    NamePosition {
        entry: u64,
        expected: u64,
        actual: u64,
    },
    #[error("entry {entry} of the index has a name that is not UTF-8")]
    NameNotUtf8 { entry: u64 },
    #[error("entry {entry} of the index has a name of {actual} bytes instead of 1 to 65535")]
    NameLength { entry: u64, actual: usize },
    #[error("the tensor {name} occurs twice")]
    DuplicateName { name: String },
    #[error("the tensor {name} has the unknown type {dtype}")]
    UnknownDtype { name: String, dtype: String },
    #[error("the tensor {name} has the impossible shape {shape:?}")]
    BadShape { name: String, shape: Vec<u64> },
    #[error("byte {offset} of the index is {actual}, but has to be zero")]
    ReservedNotZero { offset: u64, actual: u8 },
    #[error("the tensor {name} is empty")]
    EmptyTensor { name: String },
    #[error(
        "the {companion} of {name} have an offset of {offset} and a size of {size}: both or neither have to be zero"
    )]
    HalfCompanion {
        name: String,
        companion: &'static str,
        offset: u64,
        size: u64,
    },
    #[error("{name}: {offset} + {size} bytes is past the end of any file")]
    Overflow {
        name: String,
        offset: u64,
        size: u64,
    },
    #[error("{name} lies at {offset}..{end}, outside {from}..{to}")]
    OutOfBounds {
        name: String,
        offset: u64,
        end: u64,
        from: u64,
        to: u64,
    },
    #[error("{name} and {other} overlap at {offset}")]
    Overlap {
        name: String,
        other: String,
        offset: u64,
    },
    #[error("{name} has {actual} bytes, but its shape and type need {expected}")]
    SizeMismatch {
        name: String,
        expected: u64,
        actual: u64,
    },
    #[error("expert {expert} of layer {layer} has no {part}")]
    MissingPart {
        layer: u32,
        expert: u32,
        part: &'static str,
    },
    #[error("{what} is damaged: its checksum is {actual:016x}, not {expected:016x}")]
    ChecksumMismatch {
        what: &'static str,
        expected: u64,
        actual: u64,
    },

    // Names of tensors.
    #[error("the tensor {name} is of no known kind")]
    UnknownTensor { name: String },
    #[error("the tensor {name} is missing")]
    MissingTensor { name: String },
}

/// What is wrong with a path inside a model directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFault {
    /// It has no characters.
    Empty,
    /// It has more bytes than [`crate::paths::MAX_PATH_BYTES`].
    TooLong,
    /// It starts with a slash.
    Absolute,
    /// Two slashes follow each other, or it ends with one.
    EmptyComponent,
    /// A component is `.` or `..`.
    DotComponent,
    /// It holds a NUL.
    Nul,
    /// It holds a backslash, which separates folders on Windows.
    Backslash,
    /// It holds a colon, which names a drive or a stream on Windows.
    Colon,
    /// It names a folder where a bare file name is due.
    Folder,
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathFault::Empty => "is empty",
            PathFault::TooLong => "is too long",
            PathFault::Absolute => "is absolute",
            PathFault::EmptyComponent => "has an empty component",
            PathFault::DotComponent => "has a component . or ..",
            PathFault::Nul => "holds a NUL",
            PathFault::Backslash => "holds a backslash",
            PathFault::Colon => "holds a colon",
            PathFault::Folder => "names a folder",
        })
    }
}
