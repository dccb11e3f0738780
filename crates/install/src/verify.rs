//! Compares every byte of a model directory with what was recorded when it was installed.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use ouzel_format::{
    Checksums, FileRecord, FormatError, LayerLayout, Layout, Manifest, Receipt, Sha256Hex, paths,
};
use ouzel_storage::{Disk, Sha256, ShowPath};

use crate::hash::{BUFFER_BYTES, hash_file};
use crate::installation::check;
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
    /// Everything that is not as it was installed; empty for a good model.
    pub damages: Vec<Damage>,
}

/// A file, or an expert in it, that differs from what was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub path: PathBuf,
    /// What was compared.
    pub what: &'static str,
    /// The recorded value.
    pub expected: String,
    /// The value found.
    pub actual: String,
}

impl From<Damage> for InstallError {
    fn from(damage: Damage) -> InstallError {
        let Damage {
            path,
            what,
            expected,
            actual,
        } = damage;
        InstallError::Damaged {
            path,
            what,
            expected,
            actual,
        }
    }
}

/// The largest small file read whole here; `format` has finer limits of its own.
const MAX_SMALL_BYTES: u64 = 64 << 20;

/// The same as [`find_damage`], for those who need a good model.
///
/// # Errors
/// Its own, and [`InstallError::Damaged`] for the first damage.
pub fn verify_dir(
    disk: &dyn Disk,
    dir: &Path,
    events: &mut dyn FnMut(Event),
) -> Result<Verified, InstallError> {
    let verified = find_damage(disk, dir, &AtomicBool::new(false), events)?;
    match verified.damages.first() {
        Some(damage) => Err(damage.clone().into()),
        None => Ok(verified),
    }
}

/// Hashes every file that the manifest lists, every expert that has a checksum, and the manifest itself where there is a receipt.
///
/// # Errors
/// [`InstallError::NotAModel`], [`InstallError::Broken`] and [`InstallError::Damaged`] where the files that say what the others are
/// cannot be used; [`InstallError::Paused`] where `cancel` became true.
pub fn find_damage(
    disk: &dyn Disk,
    dir: &Path,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event),
) -> Result<Verified, InstallError> {
    let (manifest, has_receipt) = manifest(disk, dir)?;
    refuse_links(disk, dir)?;
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
    let mut damages = Vec::new();
    for (name, record) in &manifest.files {
        let layer = layout
            .layers
            .iter()
            .find(|layer| paths::in_experts_dir(&layer.file) == *name);
        let experts = layer.zip(checksums.as_ref());
        let found = verify_file(disk, &dir.join(name), record, experts, &mut |bytes| {
            events(Event::Advances { bytes });
            check(cancel)
        })?;
        damages.extend(found);
    }
    Ok(Verified {
        model_id: manifest.model_id.clone(),
        n_files: manifest.files.len(),
        bytes: manifest.files.values().map(|record| record.size).sum(),
        has_checksums: checksums.is_some(),
        has_receipt,
        damages,
    })
}

/// What is read has to be what was checked: nothing in a model leads elsewhere. The directory itself may be a link.
///
/// # Errors
/// [`InstallError::NotAModel`] names the link.
pub fn refuse_links(disk: &dyn Disk, dir: &Path) -> Result<(), InstallError> {
    for folder in ["", paths::EXPERTS_DIR, paths::TOKENIZER_DIR] {
        let folder = dir.join(folder);
        for name in disk.names(&folder)?.unwrap_or_default() {
            let path = folder.join(name);
            if disk.is_link(&path) {
                return Err(InstallError::NotAModel {
                    dir: dir.to_owned(),
                    reason: format!(
                        "{} is a link, and a model has none; copy what it leads to",
                        path.shown()
                    ),
                });
            }
        }
    }
    Ok(())
}

/// The manifest as it stands, and its bytes.
pub fn bare_manifest(disk: &dyn Disk, dir: &Path) -> Result<(Manifest, Vec<u8>), InstallError> {
    let Some(bytes) = read_small(disk, &dir.join(paths::MANIFEST))? else {
        let reason = if stage::was_cut_short(disk, dir) {
            "its installation was cut short; run the same installation again, and it goes on where it stopped"
        } else if disk.exists(dir) {
            "holds no manifest.json: it is another folder, or a model that lost it, to which `ouzel install --repair` brings it again"
        } else {
            "does not exist; check the path"
        };
        return Err(InstallError::NotAModel {
            dir: dir.to_owned(),
            reason: reason.to_owned(),
        });
    };
    let manifest = Manifest::parse(&bytes).map_err(format_in(dir, paths::MANIFEST))?;
    Ok((manifest, bytes))
}

/// The manifest, itself compared with the receipt where there is one, and whether there is.
pub fn manifest(disk: &dyn Disk, dir: &Path) -> Result<(Manifest, bool), InstallError> {
    let (manifest, bytes) = bare_manifest(disk, dir)?;
    let Some(receipt) = receipt(disk, dir)? else {
        return Ok((manifest, false));
    };
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

/// The receipt, where there is one.
pub fn receipt(disk: &dyn Disk, dir: &Path) -> Result<Option<Receipt>, InstallError> {
    let path = dir.join(paths::RECEIPT);
    match read_small(disk, &path)? {
        Some(bytes) => Receipt::parse(&bytes)
            .map(Some)
            .map_err(format_in(dir, paths::RECEIPT)),
        None if disk.exists(&path) => Err(InstallError::Damaged {
            path,
            what: "the record that the manifest is compared with",
            expected: "a file".to_owned(),
            actual: "something else".to_owned(),
        }),
        None => Ok(None),
    }
}

/// Compares a file with its record and, where it holds experts, each of them with its checksum.
fn verify_file(
    disk: &dyn Disk,
    path: &Path,
    record: &FileRecord,
    experts: Option<(&LayerLayout, &Checksums)>,
    progress: &mut dyn FnMut(u64) -> Result<(), InstallError>,
) -> Result<Vec<Damage>, InstallError> {
    let damage = |what, expected: String, actual: String| Damage {
        path: path.to_owned(),
        what,
        expected,
        actual,
    };
    match disk.file_len(path)? {
        Some(size) if size == record.size => {}
        Some(size) => {
            let (expected, actual) = (record.size.to_string(), size.to_string());
            return Ok(vec![damage("size in bytes", expected, actual)]);
        }
        None => {
            let expected = format!("{} bytes", record.size);
            let none = "none".to_owned();
            return Ok(vec![damage("a file of the manifest", expected, none)]);
        }
    }
    let stride = experts.map(|(_, sums)| sums.stride);
    let actual = hash_file(disk, path, stride, &mut std::iter::empty(), progress)?;
    let mut damages = Vec::new();
    if let Some((layer, sums)) = experts {
        for (expert, &sum) in (0..).zip(&actual.strides) {
            let expected = sums.get(layer.layer, expert);
            if sum != expected {
                let expected = format!("{expected:016x} for expert {expert}");
                damages.push(damage(
                    "an expert's checksum",
                    expected,
                    format!("{sum:016x}"),
                ));
            }
        }
    }
    if damages.is_empty() && actual.record.sha256 != record.sha256 {
        let expected = record.sha256.to_string();
        damages.push(damage(
            "SHA-256",
            expected,
            actual.record.sha256.to_string(),
        ));
    }
    Ok(damages)
}

pub fn required<T>(
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
