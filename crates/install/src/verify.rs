//! Compares every byte of a model directory with what was recorded when it was installed.

use std::path::Path;

use ouzel_format::{Checksums, FormatError, Layout, Manifest, Receipt, Sha256Hex, paths};
use ouzel_storage::{Disk, Sha256};

use crate::copy::{BUFFER_BYTES, hash_file};
use crate::{Event, InstallError, stage};

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
}

/// The largest small file read whole here; `format` has finer limits of its own.
const MAX_SMALL_BYTES: u64 = 64 << 20;

/// Hashes every file that the manifest lists, every expert that has a checksum, and the manifest itself where there is a receipt.
///
/// # Errors
/// [`InstallError::NotAModel`], [`InstallError::Format`], and [`InstallError::Damaged`] for the first file that differs.
pub fn verify_dir(
    disk: &dyn Disk,
    dir: &Path,
    events: &mut dyn FnMut(Event),
) -> Result<Verified, InstallError> {
    let read = |name: &str| read_small(disk, &dir.join(name));
    let Some(manifest_bytes) = read(paths::MANIFEST)? else {
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
    let parse_in = |name: &str| InstallError::format(&dir.join(name).display().to_string());
    let manifest = Manifest::parse(&manifest_bytes).map_err(parse_in(paths::MANIFEST))?;
    if let Some(bytes) = read(paths::RECEIPT)? {
        let receipt = Receipt::parse(&bytes).map_err(parse_in(paths::RECEIPT))?;
        let actual = Sha256Hex::from_bytes(Sha256::digest(&manifest_bytes));
        if receipt.manifest_sha256 != actual {
            return Err(InstallError::Damaged {
                path: dir.join(paths::MANIFEST),
                what: "SHA-256, by verified-install.json",
                expected: receipt.manifest_sha256.to_string(),
                actual: actual.to_string(),
            });
        }
    }
    let layout = required(&read, paths::LAYOUT, Layout::parse, dir)?;
    manifest
        .check_layout(&layout)
        .map_err(parse_in(paths::LAYOUT))?;
    let checksums = match manifest.files.contains_key(paths::CHECKSUMS) {
        true => Some(required(&read, paths::CHECKSUMS, Checksums::parse, dir)?),
        false => None,
    };
    events(Event::Plan {
        total_bytes: manifest.files.values().map(|record| record.size).sum(),
        done_bytes: 0,
    });
    for (name, record) in &manifest.files {
        let path = dir.join(name);
        let damaged = |what, expected: String, actual: String| InstallError::Damaged {
            path: path.clone(),
            what,
            expected,
            actual,
        };
        match disk.file_len(&path)? {
            Some(size) if size == record.size => {}
            Some(size) => {
                return Err(damaged(
                    "size in bytes",
                    record.size.to_string(),
                    size.to_string(),
                ));
            }
            None => {
                return Err(damaged(
                    "a file of the manifest",
                    format!("{} bytes", record.size),
                    "none".to_owned(),
                ));
            }
        }
        let layer = layout
            .layers
            .iter()
            .find(|l| paths::in_experts_dir(&l.file) == *name);
        let stride = layer.and(checksums.as_ref()).map(|sums| sums.stride);
        let actual = hash_file(disk, &path, stride, &mut |n| {
            events(Event::Wrote { bytes: n })
        })?;
        if actual.record.sha256 != record.sha256 {
            return Err(damaged(
                "SHA-256",
                record.sha256.to_string(),
                actual.record.sha256.to_string(),
            ));
        }
        if let (Some(layer), Some(sums)) = (layer, &checksums) {
            for (expert, &sum) in actual.sums.iter().enumerate() {
                let expected = sums.get(layer.layer, expert as u32);
                if sum != expected {
                    return Err(damaged(
                        "an expert's checksum",
                        format!("{expected:016x} for expert {expert}"),
                        format!("{sum:016x}"),
                    ));
                }
            }
        }
    }
    Ok(Verified {
        model_id: manifest.model_id.clone(),
        n_files: manifest.files.len(),
        bytes: manifest.files.values().map(|record| record.size).sum(),
        has_checksums: checksums.is_some(),
    })
}

type ReadFile<'a> = dyn Fn(&str) -> Result<Option<Vec<u8>>, InstallError> + 'a;

fn required<T>(
    read: &ReadFile<'_>,
    name: &str,
    parse: fn(&[u8]) -> Result<T, FormatError>,
    dir: &Path,
) -> Result<T, InstallError> {
    let bytes = read(name)?.ok_or_else(|| InstallError::Damaged {
        path: dir.join(name),
        what: "a file of the format",
        expected: "a file".to_owned(),
        actual: "none".to_owned(),
    })?;
    parse(&bytes).map_err(InstallError::format(&dir.join(name).display().to_string()))
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
