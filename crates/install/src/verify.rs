//! Compares every byte of a model directory with what was recorded when it was installed.

use std::path::Path;

use ouzel_format::{
    Checksums, FileRecord, FormatError, LayerLayout, Layout, Manifest, Receipt, Sha256Hex, paths,
};
use ouzel_storage::{Disk, Sha256};

use crate::hash::{BUFFER_BYTES, hash_file};
use crate::{Event, InstallError, Phase, stage};

/// What was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The model's name.
    pub model_id: String,
    /// Files compared.
    pub n_files: usize,
    /// Bytes compared.
    pub bytes: u64,
    /// Whether the directory has a checksum an expert.
    pub has_checksums: bool,
    /// Whether the manifest could itself be compared: without `verified-install.json` nothing says what it was.
    pub has_receipt: bool,
}

/// The largest small file read whole here; `format` has finer limits of its own.
const MAX_SMALL_BYTES: u64 = 64 << 20;

/// Hashes every file that the manifest lists, every expert that has a checksum, and the manifest itself where there is a receipt.
///
/// # Errors
/// [`InstallError::NotAModel`], [`InstallError::Broken`], and [`InstallError::Damaged`] for the first file that differs.
pub fn verify_dir(
    disk: &dyn Disk,
    dir: &Path,
    events: &mut dyn FnMut(Event),
) -> Result<Verified, InstallError> {
    let (manifest, has_receipt) = manifest(disk, dir)?;
    let layout = required(disk, dir, paths::LAYOUT, Layout::parse)?;
    manifest
        .check_layout(&layout)
        .map_err(format_in(dir, paths::LAYOUT))?;
    let checksums = match manifest.files.contains_key(paths::CHECKSUMS) {
        true => Some(required(disk, dir, paths::CHECKSUMS, Checksums::parse)?),
        false => None,
    };
    events(Event::Begins {
        phase: Phase::Verifying,
        total_bytes: manifest.files.values().map(|record| record.size).sum(),
        done_bytes: 0,
    });
    for (name, record) in &manifest.files {
        let layer = layout
            .layers
            .iter()
            .find(|layer| paths::in_experts_dir(&layer.file) == *name);
        let experts = layer.zip(checksums.as_ref());
        verify_file(disk, &dir.join(name), record, experts, &mut |bytes| {
            events(Event::Advances { bytes })
        })?;
    }
    Ok(Verified {
        model_id: manifest.model_id.clone(),
        n_files: manifest.files.len(),
        bytes: manifest.files.values().map(|record| record.size).sum(),
        has_checksums: checksums.is_some(),
        has_receipt,
    })
}

/// The manifest, itself compared with the receipt where there is one, and whether there is.
fn manifest(disk: &dyn Disk, dir: &Path) -> Result<(Manifest, bool), InstallError> {
    let Some(bytes) = read_small(disk, &dir.join(paths::MANIFEST))? else {
        let reason = if stage::was_cut_short(disk, dir) {
            "its installation was cut short; run the same installation again, and it goes on where it stopped"
        } else if disk.exists(dir) {
            "holds no manifest.json: it is another folder or an unfinished installation; run the installation again"
        } else {
            "does not exist; check the path"
        };
        return Err(InstallError::NotAModel {
            dir: dir.to_owned(),
            reason: reason.to_owned(),
        });
    };
    let manifest = Manifest::parse(&bytes).map_err(format_in(dir, paths::MANIFEST))?;
    let path = dir.join(paths::RECEIPT);
    let Some(receipt) = read_small(disk, &path)? else {
        if disk.exists(&path) {
            return Err(InstallError::Damaged {
                path,
                what: "the record that the manifest is compared with",
                expected: "a file".to_owned(),
                actual: "something else".to_owned(),
            });
        }
        return Ok((manifest, false));
    };
    let receipt = Receipt::parse(&receipt).map_err(format_in(dir, paths::RECEIPT))?;
    let actual = Sha256Hex::from_bytes(Sha256::digest(&bytes));
    if receipt.manifest_sha256 != actual {
        return Err(InstallError::Damaged {
            path: dir.join(paths::MANIFEST),
            what: "SHA-256, by verified-install.json",
            expected: receipt.manifest_sha256.to_string(),
            actual: actual.to_string(),
        });
    }
    Ok((manifest, true))
}

/// Compares a file with its record and, where it holds experts, each of them with its checksum.
fn verify_file(
    disk: &dyn Disk,
    path: &Path,
    record: &FileRecord,
    experts: Option<(&LayerLayout, &Checksums)>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), InstallError> {
    let damaged = |what, expected: String, actual: String| {
        Err(InstallError::Damaged {
            path: path.to_owned(),
            what,
            expected,
            actual,
        })
    };
    match disk.file_len(path)? {
        Some(size) if size == record.size => {}
        Some(size) => return damaged("size in bytes", record.size.to_string(), size.to_string()),
        None => {
            let expected = format!("{} bytes", record.size);
            return damaged("a file of the manifest", expected, "none".to_owned());
        }
    }
    let stride = experts.map(|(_, sums)| sums.stride);
    let actual = hash_file(disk, path, stride, &mut std::iter::empty(), &mut |bytes| {
        progress(bytes);
        Ok(())
    })?;
    if let Some((layer, sums)) = experts {
        for (expert, &sum) in (0..).zip(&actual.strides) {
            let expected = sums.get(layer.layer, expert);
            if sum != expected {
                let expected = format!("{expected:016x} for expert {expert}");
                return damaged("an expert's checksum", expected, format!("{sum:016x}"));
            }
        }
    }
    if actual.record.sha256 != record.sha256 {
        let expected = record.sha256.to_string();
        return damaged("SHA-256", expected, actual.record.sha256.to_string());
    }
    Ok(())
}

fn required<T>(
    disk: &dyn Disk,
    dir: &Path,
    name: &str,
    parse: fn(&[u8]) -> Result<T, FormatError>,
) -> Result<T, InstallError> {
    let path = dir.join(name);
    let bytes = read_small(disk, &path)?.ok_or_else(|| InstallError::Damaged {
        path,
        what: "a file of the format",
        expected: "a file".to_owned(),
        actual: "none".to_owned(),
    })?;
    parse(&bytes).map_err(format_in(dir, name))
}

fn format_in(dir: &Path, name: &str) -> impl FnOnce(FormatError) -> InstallError + use<> {
    let path = dir.join(name);
    move |source| InstallError::Broken {
        path,
        source: Box::new(source),
    }
}

fn read_small(disk: &dyn Disk, path: &Path) -> Result<Option<Vec<u8>>, InstallError> {
    let Some(len) = disk.file_len(path)? else {
        return Ok(None);
    };
    let mut bytes = vec![0; len.min(MAX_SMALL_BYTES) as usize];
    let mut done = 0;
    while done < bytes.len() {
        let end = bytes.len().min(done + BUFFER_BYTES);
        let n = disk.read_at(path, done as u64, &mut bytes[done..end])?;
        if n == 0 {
            bytes.truncate(done);
        }
        done += n;
    }
    Ok(Some(bytes))
}
