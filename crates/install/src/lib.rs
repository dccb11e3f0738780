//! From a checkpoint to a model directory: plan, copy, verify, promote.
//!
//! [`plan`] decides which bytes of the checkpoint go where; [`install`] copies them through one buffer of 512 KiB, hashing on the way,
//! and puts the finished directory in its place in one step. Whatever happens, the output is absent, resumable or complete.
//! This crate never changes a weight's value and knows nothing of tokens or arithmetic. Progress comes as [`Event`]s.

mod checkpoint;
mod copy;
mod error;
mod plan;
mod shapes;
mod source;
mod stage;
mod verify;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ouzel_format::{Checksums, FileRecord, Flags, Manifest, Receipt, Sha256Hex, paths, timestamp};
use ouzel_storage::{Disk, Sha256};

pub use checkpoint::{Checkpoint, SourceTensor};
pub use copy::BUFFER_BYTES;
pub use error::InstallError;
pub use plan::{Piece, Plan, PlannedFile, plan};
pub use source::{Embedded, LocalFolder, Source};
pub use verify::{Verified, verify_dir};

use stage::Stage;

/// The most that is left free on the disk beside the files of a model, in bytes: for its records, and for whoever else writes meanwhile.
const MAX_RESERVE_BYTES: u64 = 64 << 20;
/// A small model needs no more reserve than this part of its size.
const RESERVE_SHARE: u64 = 8;

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
}

/// What an installation or a verification tells of its progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A well-known file is absent from the checkpoint; the model installs without it.
    Missing {
        /// The file.
        file: &'static str,
        /// What will not work.
        consequence: &'static str,
    },
    /// The work is planned.
    Plan {
        /// Bytes in all.
        total_bytes: u64,
        /// Bytes that an earlier run finished.
        done_bytes: u64,
    },
    /// Bytes were written, or compared.
    Wrote {
        /// How many.
        bytes: u64,
    },
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

/// Installs `source` as the model directory `output`.
///
/// # Errors
/// [`InstallError::Exists`], [`InstallError::NoRoom`] and [`InstallError::NotAModel`] (what would be replaced is no model) before
/// anything is written, those of [`plan`] likewise; disk and source errors leave a partial directory from which the same call goes
/// on.
pub fn install(
    source: &dyn Source,
    disk: &dyn Disk,
    output: &Path,
    options: &InstallOptions,
    events: &mut dyn FnMut(Event),
) -> Result<Installed, InstallError> {
    let checkpoint = Checkpoint::read(source)?;
    let plan = plan(&checkpoint)?;
    if disk.exists(output) && !options.overwrite {
        return Err(InstallError::Exists {
            path: output.to_owned(),
        });
    }
    stage::check_replaceable(disk, output)?;
    check_room(disk, output, &plan)?;
    for &file in &checkpoint.missing {
        events(Event::Missing {
            file,
            consequence: consequence(file),
        });
    }
    let fingerprint = plan.fingerprint(source);
    let mut stage = Stage::open(disk, output, fingerprint, plan.expert_stride, &mut |_| {})?;
    let resumed_bytes = stage.finished_bytes();
    events(Event::Plan {
        total_bytes: plan.size(),
        done_bytes: resumed_bytes,
    });

    for file in &plan.files {
        if stage.finished(&file.path).is_none() {
            let path = stage.path(&file.path);
            let mut progress = |bytes| events(Event::Wrote { bytes });
            let written = copy::copy_file(source, &plan, file, disk, &path, &mut progress)?;
            stage.finish(&file.path, written)?;
        }
    }
    let manifest = write_records(&stage, &checkpoint, &plan, output, options)?;
    stage.promote()?;
    Ok(Installed {
        bytes: manifest.files.values().map(|record| record.size).sum(),
        manifest,
        resumed_bytes,
    })
}

/// Checksums, receipt, and last of all the manifest, which says that the directory is complete.
fn write_records(
    stage: &Stage<'_>,
    checkpoint: &Checkpoint,
    plan: &Plan,
    output: &Path,
    options: &InstallOptions,
) -> Result<Manifest, InstallError> {
    let arch = &checkpoint.config.arch;
    let written = |file: &PlannedFile| {
        stage
            .finished(&file.path)
            .expect("every planned file was finished")
    };
    let checksums = Checksums {
        layers: arch.num_layers,
        experts: arch.num_experts,
        stride: plan.expert_stride,
        sums: plan
            .files
            .iter()
            .flat_map(|file| written(file).sums.iter().copied())
            .collect(),
    }
    .encode();
    stage.write(paths::CHECKSUMS, &checksums)?;
    let mut files: BTreeMap<String, FileRecord> = plan
        .files
        .iter()
        .map(|file| (file.path.clone(), written(file).record))
        .collect();
    files.insert(paths::CHECKSUMS.to_owned(), record(&checksums));

    let name = || {
        output
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
    };
    let manifest = Manifest {
        version_minor: 0,
        model_id: options.model_id.clone().or_else(name).unwrap_or_default(),
        source_snapshot_hash: checkpoint.index_sha256.map(|hash| hash.to_string()),
        flags: Flags::default(),
        arch: arch.clone(),
        quant: Some(checkpoint.config.quantization.summary()),
        experts_per_layer: arch.num_experts,
        num_layers: arch.num_layers,
        expert_stride: plan.expert_stride,
        bit_width_overrides_honored: Some(checkpoint.config.quantization.overrides.len() as u32),
        files,
    };
    manifest
        .check()
        .map_err(InstallError::format(paths::MANIFEST))?;
    let manifest_bytes = manifest.encode();
    let receipt = receipt(&manifest, &manifest_bytes, output, options);
    receipt
        .check()
        .map_err(InstallError::format(paths::RECEIPT))?;
    stage.write(paths::RECEIPT, &receipt.encode())?;
    stage.write(paths::MANIFEST, &manifest_bytes)?;
    Ok(manifest)
}

fn receipt(
    manifest: &Manifest,
    manifest_bytes: &[u8],
    output: &Path,
    options: &InstallOptions,
) -> Receipt {
    let manifest_record = record(manifest_bytes);
    let mut files = manifest.files.clone();
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Receipt {
        manifest_sha256: manifest_record.sha256,
        model_directory_path: output.to_string_lossy().into_owned(),
        verification_timestamp: timestamp(now.as_secs()),
        tool_version: concat!("ouzel ", env!("CARGO_PKG_VERSION")).to_owned(),
        files: {
            files.insert(paths::MANIFEST.to_owned(), manifest_record);
            files
        },
        source_repo_id: options.repository.clone(),
        source_revision: options.revision.clone(),
    }
}

fn record(bytes: &[u8]) -> FileRecord {
    FileRecord {
        size: bytes.len() as u64,
        sha256: Sha256Hex::from_bytes(Sha256::digest(bytes)),
    }
}

fn check_room(disk: &dyn Disk, output: &Path, plan: &Plan) -> Result<(), InstallError> {
    let reserve = (plan.size() / RESERVE_SHARE).min(MAX_RESERVE_BYTES);
    let needed = plan.size() + reserve;
    let partial = stage::partial_bytes(disk, output, &plan.files);
    let free = disk.free_space(output)?;
    if free.saturating_add(partial) < needed {
        return Err(InstallError::NoRoom {
            path: output.to_owned(),
            needed: needed - partial.min(needed),
            reserve,
            free,
        });
    }
    Ok(())
}

fn consequence(file: &str) -> &'static str {
    match file {
        "tokenizer.json" => "chat, generate and eval --text will not work; eval --token-ids will",
        "tokenizer_config.json" => "other programs may miss it; Ouzel does not need it",
        "chat_template.jinja" => "chat and instructions will not work; generate --prompt will",
        "generation_config.json" => "the tokens that end an answer are taken from config.json",
        _ => "the model may not run",
    }
}
