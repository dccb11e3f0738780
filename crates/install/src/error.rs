//! What can go wrong between a checkpoint and a model directory, grouped by what the caller can do.

use std::path::{Path, PathBuf};

use ouzel_format::FormatError;
use ouzel_storage::{ShowPath, StorageError};
use thiserror::Error;

/// An error of an installation or a verification. Whatever it is, the output is absent, resumable or complete.
#[derive(Debug, Error)]
pub enum InstallError {
    /// The folder to install from is no checkpoint: name another.
    #[error("{}: not an MLX checkpoint: {reason}; give the folder that holds config.json and the safetensors files", dir.shown())]
    NotACheckpoint {
        /// The folder as given.
        dir: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A file of the checkpoint cannot be read.
    #[error("{file} of the checkpoint {reason}")]
    Source {
        /// The file's name.
        file: String,
        /// What happened.
        reason: String,
    },
    /// A file of the checkpoint breaks its format, or the checkpoint needs what this program lacks.
    #[error("{}", located(Path::new(file), source))]
    Format {
        /// The file.
        file: String,
        /// What is wrong.
        source: FormatError,
    },
    /// A tensor of the checkpoint is not as the configuration says.
    #[error("{file}: tensor {name}: expected {expected}, found {actual}")]
    Tensor {
        /// The shard.
        file: String,
        /// The tensor.
        name: String,
        /// What the configuration asks for.
        expected: String,
        /// What the shard has.
        actual: String,
    },
    /// There is something at the output already.
    #[error("{}: already exists; give --overwrite to replace it, or another --output", path.shown())]
    Exists {
        /// The output.
        path: PathBuf,
    },
    /// What lies at the output, or beside it where the work goes on, is no model, and nobody's to remove: choose another place.
    #[error("{}: {what}, so it is left alone; move it away first", path.shown())]
    InTheWay {
        /// Where it lies.
        path: PathBuf,
        /// What it is.
        what: String,
    },
    /// What is to be repaired came from another checkpoint than the one at hand: name the right one.
    #[error("{}: {what} another checkpoint than this one; name its repository with --repo and --revision, or its folder with --from", dir.shown())]
    OtherCheckpoint {
        /// The model, or the place of one.
        dir: PathBuf,
        /// How it has to do with that checkpoint.
        what: &'static str,
    },
    /// The disk has too little room; nothing was written.
    #[error("{}: {needed} bytes are needed, {reserve} of them as a reserve, and {free} are free; make room, or choose a folder on another disk", path.shown())]
    NoRoom {
        /// The output.
        path: PathBuf,
        /// Bytes still to be written, with the reserve.
        needed: u64,
        /// The part of them that stays free.
        reserve: u64,
        /// Bytes free.
        free: u64,
    },
    /// The directory to verify is not a finished model.
    #[error("{}: {reason}", dir.shown())]
    NotAModel {
        /// The directory.
        dir: PathBuf,
        /// What it is instead, and what to do.
        reason: String,
    },
    /// A file of a model breaks its format.
    #[error("{}; `ouzel install --repair` brings it again", located(path, source))]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: Box<FormatError>,
    },
    /// A file of a model differs from what was recorded.
    #[error("{}: {what}: expected {expected}, found {actual}; `ouzel install --repair` fetches it again", path.shown())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What was compared.
        what: &'static str,
        /// The recorded value.
        expected: String,
        /// The value found.
        actual: String,
    },
    /// An address, a name or a token that was given cannot be used: give another.
    #[error("{text}: {reason}")]
    Address {
        /// What was given, without secrets.
        text: String,
        /// Why not.
        reason: String,
    },
    /// The hub does not give the repository: another name, another revision or a token may help.
    #[error("{repository}: {reason}")]
    Refused {
        /// The repository.
        repository: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The hub did not answer the first question: look at the connection.
    #[error(
        "{repository}: {reason}; look at the connection, and at HF_ENDPOINT and HTTPS_PROXY where they are set"
    )]
    Unreachable {
        /// The repository.
        repository: String,
        /// What happened last.
        reason: String,
    },
    /// The hub cannot be reached any more, or does not give what was asked for, after all tries.
    #[error("{file}: {reason}; what has come is kept, and the same command goes on later")]
    Network {
        /// The file of the repository, or the repository.
        file: String,
        /// What happened last.
        reason: String,
    },
    /// The hub holds something else than what is pinned, or than it held before.
    #[error("{file}: {reason}; the hub or something before it gives out another file")]
    Foreign {
        /// The file.
        file: String,
        /// What is different.
        reason: String,
    },
    /// The disk gives back other bytes than were written.
    #[error("{}: the bytes at offset {offset} are not those that were written; the disk may be failing; the same command checks everything again and goes on", path.shown())]
    Unkept {
        /// The file.
        path: PathBuf,
        /// Where.
        offset: u64,
    },
    /// It was asked to pause; what was done is kept.
    #[error("paused; the same command goes on where it stopped")]
    Paused,
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What is wrong with a file, which is named once: most of these errors begin with its name.
fn located(path: &Path, source: &FormatError) -> String {
    let said = source.to_string();
    let name = path.file_name().map(|name| name.to_string_lossy());
    match name.and_then(|name| said.strip_prefix(&*name)) {
        Some(rest) => format!("{}{rest}", path.shown()),
        None => format!("{}: {said}", path.shown()),
    }
}

impl InstallError {
    /// Wraps a format error with the file that caused it.
    pub(crate) fn format(file: &str) -> impl FnOnce(FormatError) -> InstallError + use<> {
        let file = file.to_owned();
        move |source| InstallError::Format { file, source }
    }
}
