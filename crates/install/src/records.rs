//! The files that say what the others are: checksums, receipt and manifest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ouzel_format::{Checksums, FileRecord, Flags, Manifest, Receipt, Sha256Hex, paths, timestamp};
use ouzel_storage::Sha256;

use crate::checkpoint::Checkpoint;
use crate::hash::Hashed;
use crate::plan::Plan;
use crate::stage::Stage;
use crate::{InstallError, InstallOptions};

/// What they are made of.
#[derive(Clone, Copy)]
pub struct RecordInputs<'a> {
    /// The source's description.
    pub checkpoint: &'a Checkpoint,
    /// What was planned.
    pub plan: &'a Plan,
    /// What each planned file turned out to be.
    pub hashed: &'a [Hashed],
    /// Where the directory will lie.
    pub output: &'a Path,
    /// Names for the records.
    pub options: &'a InstallOptions,
}

/// Checksums, receipt, and last of all the manifest, which says that the directory is complete.
///
/// # Errors
/// Those of the disk.
pub fn write_records(
    stage: &Stage<'_>,
    inputs: &RecordInputs<'_>,
) -> Result<Manifest, InstallError> {
    let RecordInputs {
        checkpoint,
        plan,
        hashed,
        output,
        options,
    } = *inputs;
    let arch = &checkpoint.config.arch;
    let checksums = Checksums {
        layers: arch.num_layers,
        experts: arch.num_experts,
        stride: plan.expert_stride,
        sums: hashed
            .iter()
            .flat_map(|file| file.strides.iter().copied())
            .collect(),
    }
    .encode();
    stage.write(paths::CHECKSUMS, &checksums)?;
    let mut files: BTreeMap<String, FileRecord> = plan
        .files
        .iter()
        .zip(hashed)
        .map(|(file, hashed)| (file.path.clone(), hashed.record))
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
