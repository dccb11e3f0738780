//! From a checkpoint to a model directory: plan, fetch, verify, promote.
//!
//! [`plan`] decides which bytes of the checkpoint go where, and `ranges` in which pieces they come. Whatever a [`Source`] brings, from a
//! folder or over a network, one writer puts each byte at its place and digests it; ranges are recorded when they are durable, files are
//! hashed when they are complete, and the finished directory takes its place in one step. Whatever happens, the output
//! is absent, resumable or complete. This crate never changes a weight's value and knows nothing of tokens or arithmetic.
//! Progress comes as [`Event`]s.

mod checkpoint;
mod error;
mod event;
mod hash;
mod hub;
mod installation;
mod journal;
mod landing;
pub mod pinned;
mod plan;
mod ranges;
mod records;
mod repair;
mod room;
mod shapes;
mod source;
mod stage;
mod verify;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use ouzel_format::{Manifest, Sha256Hex};
use ouzel_storage::Disk;

pub use checkpoint::{Checkpoint, SourceTensor};
pub use error::InstallError;
pub use event::{Event, Phase};
pub use hash::BUFFER_BYTES;
pub use hub::{ENDPOINT, Hub, HubOptions, Patience, Proxy, SCRATCH_BYTES, Token};
pub use installation::Installation;
pub use plan::{Piece, Plan, PlannedFile, plan};
pub use ranges::{Range, Run, Segment, Transfer};
pub use repair::repair;
pub use room::Room;
pub use source::{Embedded, LocalFolder, Request, Sink, Source};
pub use stage::{discard, remove, was_cut_short};
pub use verify::{Damage, Verified, find_damage, refuse_links, verify_dir};

/// Options of an installation.
#[derive(Clone, Debug, Default)]
pub struct InstallOptions {
    /// Replace an existing output.
    pub overwrite: bool,
    /// The model's name in the manifest; the output's name where nothing is said.
    pub model_id: Option<String>,
    /// Where the checkpoint is from, for the receipt.
    pub repository: Option<String>,
    /// Its revision, for the receipt.
    pub revision: Option<String>,
    /// SHA-256 of the checkpoint's index, where it is known beforehand.
    pub index_sha256: Option<Sha256Hex>,
    /// Set to true from elsewhere, it pauses the installation.
    pub cancel: Arc<AtomicBool>,
}

/// A finished installation.
#[derive(Clone, Debug, PartialEq)]
pub struct Installed {
    /// The manifest that was written.
    pub manifest: Manifest,
    /// Bytes of the directory's payload.
    pub bytes: u64,
    /// Bytes that an earlier run had finished.
    pub resumed_bytes: u64,
}

/// Installs `source` as the model directory `output`: [`Installation::prepare`] and [`Installation::run`].
///
/// # Errors
/// Theirs.
pub fn install(
    source: &dyn Source,
    disk: &dyn Disk,
    output: &Path,
    options: &InstallOptions,
    events: &mut dyn FnMut(Event),
) -> Result<Installed, InstallError> {
    let installation = Installation::prepare(source, disk, output, options)?;
    for event in installation.missing() {
        events(event);
    }
    installation.run(events)
}
