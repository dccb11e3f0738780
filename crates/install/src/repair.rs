//! Repairing a model: what is good of it is taken as landed, and an ordinary installation brings the rest.
//!
//! The directory becomes unfinished first, so that a repair which is cut short goes on like an installation. An expert is judged by its
//! checksum, any other file as a whole by its hash.

use std::path::Path;

use ouzel_format::{Checksums, Manifest, paths};
use ouzel_storage::Disk;

use crate::checkpoint::Checkpoint;
use crate::hash::hash_file;
use crate::installation::Installation;
use crate::journal::Record;
use crate::plan::{Plan, PlannedFile, plan};
use crate::ranges::Transfer;
use crate::source::Source;
use crate::stage::{self, Landed, StageInputs};
use crate::verify::{self, refuse_links};
use crate::{Event, InstallError, InstallOptions, Installed, Phase};

/// Brings again what is damaged in the model `dir`, from the checkpoint that it was installed from. `None`: nothing is. A repair that
/// was cut short goes on.
///
/// # Errors
/// [`InstallError::NotAModel`], [`InstallError::Foreign`] for another checkpoint, and those of an installation.
pub fn repair(
    source: &dyn Source,
    disk: &dyn Disk,
    dir: &Path,
    options: &InstallOptions,
    events: &mut dyn FnMut(Event),
) -> Result<Option<Installed>, InstallError> {
    let mut options = options.clone();
    // A model keeps its name.
    if let Ok((manifest, _)) = verify::manifest(disk, dir) {
        options.model_id = Some(manifest.model_id);
    }
    if disk.exists(dir) || !stage::was_cut_short(disk, dir) {
        let checkpoint = Checkpoint::read(source)?;
        let plan = plan(&checkpoint)?;
        let is_whole = reopen(source, disk, dir, (&checkpoint, &plan), events)?;
        if is_whole {
            return Ok(None);
        }
    }
    Installation::prepare(source, disk, dir, &options)?
        .run(events)
        .map(Some)
}

/// Judges every file; unless all are good, makes the directory unfinished. Says whether they are.
fn reopen(
    source: &dyn Source,
    disk: &dyn Disk,
    dir: &Path,
    (checkpoint, plan): (&Checkpoint, &Plan),
    events: &mut dyn FnMut(Event),
) -> Result<bool, InstallError> {
    stage::check_replaceable(disk, dir)?;
    refuse_links(disk, dir)?;
    // A manifest that is itself damaged vouches for nothing; then everything comes again.
    let manifest = match verify::manifest(disk, dir) {
        Ok((manifest, _)) => Some(manifest),
        Err(InstallError::Damaged { .. } | InstallError::Broken { .. }) => None,
        Err(error) => return Err(error),
    };
    let hash = checkpoint.index_sha256.map(|hash| hash.to_string());
    if let Some(manifest) = &manifest
        && manifest.source_snapshot_hash != hash
    {
        return Err(InstallError::Foreign {
            file: dir.display().to_string(),
            reason: "was installed from another checkpoint than this one".to_owned(),
        });
    }
    let listed = manifest
        .as_ref()
        .is_some_and(|m| m.files.contains_key(paths::CHECKSUMS));
    let sums = match listed {
        true => verify::required(disk, dir, paths::CHECKSUMS, Checksums::parse).ok(),
        false => None,
    };
    let transfer = Transfer::of(plan);
    let mut judged = Judged {
        disk,
        dir,
        plan,
        transfer: &transfer,
        manifest: manifest.as_ref(),
        sums: sums.as_ref(),
        digests: vec![None; transfer.segments.len()],
    };
    events(Event::Begins {
        phase: Phase::Checking,
        total_bytes: plan.size(),
        done_bytes: 0,
    });
    let mut is_whole = sums.is_some() && checksums_are_listed(disk, dir, manifest.as_ref())?;
    for (file, segments) in transfer
        .segments_by_file(plan.files.len())
        .iter()
        .enumerate()
    {
        is_whole &= judged.judge(file, segments, &mut |bytes| {
            events(Event::Advances { bytes });
        })?;
    }
    if is_whole {
        return Ok(true);
    }
    let landed = judged.landed();
    let inputs = StageInputs {
        output: dir,
        fingerprint: &plan.fingerprint(source),
        files: &plan.files,
        transfer: &transfer,
    };
    stage::reopen(disk, &inputs, &landed)?;
    Ok(false)
}

/// Whether the checksums are those of the manifest.
fn checksums_are_listed(
    disk: &dyn Disk,
    dir: &Path,
    manifest: Option<&Manifest>,
) -> Result<bool, InstallError> {
    let Some(record) = manifest.and_then(|manifest| manifest.files.get(paths::CHECKSUMS)) else {
        return Ok(false);
    };
    let path = dir.join(paths::CHECKSUMS);
    let hashed = hash_file(disk, &path, None, &mut std::iter::empty(), &mut |_| Ok(()))?;
    Ok(hashed.record == *record)
}

struct Judged<'a> {
    disk: &'a dyn Disk,
    dir: &'a Path,
    plan: &'a Plan,
    transfer: &'a Transfer,
    manifest: Option<&'a Manifest>,
    sums: Option<&'a Checksums>,
    /// Of the segments that are good.
    digests: Vec<Option<u64>>,
}

impl Judged<'_> {
    /// Takes the digests of what is good in a file; says whether all of it is.
    fn judge(
        &mut self,
        file: usize,
        segments: &[usize],
        progress: &mut dyn FnMut(u64),
    ) -> Result<bool, InstallError> {
        let planned = &self.plan.files[file];
        let path = self.dir.join(&planned.path);
        let record = self.manifest.and_then(|m| m.files.get(&planned.path));
        let Some(record) = record.filter(|record| record.size == planned.size()) else {
            return Ok(false);
        };
        if self.disk.file_len(&path)? != Some(record.size) {
            return Ok(false);
        }
        let stride = planned.has_experts.then_some(self.plan.expert_stride);
        let lens = self.parts(planned, segments);
        let mut part_lens = lens.iter().map(|&(len, _)| len);
        let hashed = hash_file(self.disk, &path, stride, &mut part_lens, &mut |bytes| {
            progress(bytes);
            Ok(())
        })?;
        let is_whole = hashed.record == *record;
        let mut at = 0;
        for (&(len, segment), &digest) in lens.iter().zip(&hashed.parts) {
            if let Some(segment) = segment
                && (is_whole || self.is_good_stride(planned, &hashed.strides, at, len))
            {
                self.digests[segment] = Some(digest);
            }
            at += len;
        }
        Ok(is_whole)
    }

    /// Lengths of the parts of a file: segments, and what lies between them.
    fn parts(&self, file: &PlannedFile, segments: &[usize]) -> Vec<(u64, Option<usize>)> {
        let (mut parts, mut at) = (Vec::new(), 0);
        for &i in segments {
            let segment = &self.transfer.segments[i];
            if segment.at > at {
                parts.push((segment.at - at, None));
            }
            parts.push((segment.len, Some(i)));
            at = segment.at + segment.len;
        }
        if at < file.size() {
            parts.push((file.size() - at, None));
        }
        parts
    }

    /// Whether bytes lie in experts whose checksums are right.
    fn is_good_stride(&self, file: &PlannedFile, strides: &[u64], at: u64, len: u64) -> bool {
        let (Some(sums), true) = (self.sums, file.has_experts) else {
            return false;
        };
        let layers = self.plan.files.iter().filter(|file| file.has_experts);
        let Some(layer) = (0..).zip(layers).find(|(_, other)| other.path == file.path) else {
            return false;
        };
        let stride = self.plan.expert_stride;
        (at / stride..=(at + len - 1) / stride)
            .all(|expert| strides.get(expert as usize) == Some(&sums.get(layer.0, expert as u32)))
    }

    /// The ranges of which every segment is good.
    fn landed(&self) -> Landed {
        let mut landed = Landed::nothing(self.transfer);
        for (range, planned) in self.transfer.ranges.iter().enumerate() {
            let digests = &self.digests[planned.segments.clone()];
            if let Some(digests) = digests.iter().copied().collect::<Option<Vec<u64>>>() {
                landed.add(self.transfer, &Record { range, digests });
            }
        }
        landed
    }
}
