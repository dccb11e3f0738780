//! Repairing a model: what is good of it is taken as landed, and an ordinary installation brings the rest.
//!
//! The directory becomes unfinished first, so that a repair which is cut short goes on like an installation. An expert is judged by its
//! checksum, any other file as a whole by its hash.

use std::collections::BTreeMap;
use std::path::Path;

use ouzel_format::{Checksums, FileRecord, Manifest, paths};
use ouzel_storage::Disk;

use crate::checkpoint::Checkpoint;
use crate::hash::hash_file;
use crate::installation::{Installation, check};
use crate::journal::Record;
use crate::plan::{Plan, PlannedFile, plan};
use crate::ranges::Transfer;
use crate::room::Room;
use crate::source::Source;
use crate::stage::{self, Landed, StageInputs};
use crate::verify::{self, refuse_links};
use crate::{Event, InstallError, InstallOptions, Installed, Phase};

/// Brings again what is damaged in the model `dir`, from the checkpoint that it was installed from. `None`: nothing is. A repair that
/// was cut short goes on.
///
/// # Errors
/// [`InstallError::NotAModel`], [`InstallError::OtherCheckpoint`], and those of an installation.
pub fn repair(
    source: &dyn Source,
    disk: &dyn Disk,
    dir: &Path,
    options: &InstallOptions,
    events: &mut dyn FnMut(Event),
) -> Result<Option<Installed>, InstallError> {
    let mut options = options.clone();
    // A model keeps its name.
    if let Ok((manifest, _)) = verify::bare_manifest(disk, dir) {
        options.model_id = Some(manifest.model_id);
    }
    if disk.exists(dir) || !stage::was_cut_short(disk, dir) {
        let checkpoint = Checkpoint::read(source)?;
        let work = Work {
            source,
            disk,
            dir,
            options: &options,
            plan: &plan(&checkpoint)?,
            checkpoint: &checkpoint,
        };
        if work.reopen(events)? {
            return Ok(None);
        }
    }
    let installation = Installation::prepare(source, disk, dir, &options)?;
    // A repair fetches what is missing; it is no word to throw away what somebody fetched before.
    if installation.discarded_bytes.is_some() {
        return Err(InstallError::OtherCheckpoint {
            dir: dir.to_owned(),
            what: "what is unfinished there is of",
        });
    }
    installation.run(events).map(Some)
}

/// A repair of a directory that is not unfinished yet.
struct Work<'a> {
    source: &'a dyn Source,
    disk: &'a dyn Disk,
    dir: &'a Path,
    options: &'a InstallOptions,
    checkpoint: &'a Checkpoint,
    plan: &'a Plan,
}

impl Work<'_> {
    /// Judges every file; unless all are good, makes the directory unfinished. Says whether they are.
    fn reopen(&self, events: &mut dyn FnMut(Event)) -> Result<bool, InstallError> {
        let Work {
            disk, dir, plan, ..
        } = *self;
        stage::check_replaceable(disk, dir)?;
        refuse_links(disk, dir)?;
        let manifest = self.manifest()?;
        let records = match &manifest {
            Some((manifest, _)) => manifest.files.clone(),
            None => self.records_of_receipt(),
        };
        let sums = match records.contains_key(paths::CHECKSUMS) {
            true => verify::required(disk, dir, paths::CHECKSUMS, Checksums::parse).ok(),
            false => None,
        };
        let transfer = Transfer::of(plan);
        let mut judged = Judged {
            disk,
            dir,
            plan,
            transfer: &transfer,
            records: &records,
            sums: sums.as_ref(),
            digests: vec![None; transfer.segments.len()],
        };
        events(Event::Begins {
            phase: Phase::Checking,
            total_bytes: plan.size(),
            done_bytes: 0,
        });
        let mut is_whole = manifest.is_some_and(|(_, has_receipt)| has_receipt)
            && sums.is_some()
            && checksums_are_listed(disk, dir, &records)?;
        let by_file = transfer.segments_by_file(plan.files.len());
        for (file, segments) in by_file.iter().enumerate() {
            is_whole &= judged.judge(file, segments, &mut |bytes| {
                events(Event::Advances { bytes });
                check(&self.options.cancel)
            })?;
        }
        if is_whole {
            return Ok(true);
        }
        // Nothing is touched where what is missing would not fit.
        Room::of(disk, (dir, dir), plan)?.check(dir)?;
        let landed = judged.landed();
        let inputs = StageInputs {
            output: dir,
            fingerprint: &plan.fingerprint(self.source),
            files: &plan.files,
            transfer: &transfer,
        };
        stage::reopen(disk, &inputs, &landed)?;
        Ok(false)
    }

    /// The manifest and whether there is a receipt, which is written anew where there is none; `None` where the manifest is damaged, or
    /// lost beside a receipt.
    fn manifest(&self) -> Result<Option<(Manifest, bool)>, InstallError> {
        let (disk, dir) = (self.disk, self.dir);
        let found = match verify::manifest(disk, dir) {
            Ok(found) => found,
            // A receipt that says nothing is as good as none.
            Err(InstallError::Damaged { .. } | InstallError::Broken { .. })
                if verify::receipt(disk, dir).is_err() =>
            {
                match verify::bare_manifest(disk, dir) {
                    Ok((manifest, _)) => (manifest, false),
                    Err(_) => return Ok(None),
                }
            }
            Err(InstallError::Damaged { .. } | InstallError::Broken { .. }) => return Ok(None),
            Err(error @ InstallError::NotAModel { .. }) => {
                let has_receipt = disk.file_len(&dir.join(paths::RECEIPT))?.is_some();
                return if has_receipt { Ok(None) } else { Err(error) };
            }
            Err(error) => return Err(error),
        };
        let hash = self.checkpoint.index_sha256.map(|hash| hash.to_string());
        if found.0.source_snapshot_hash != hash {
            return Err(InstallError::OtherCheckpoint {
                dir: dir.to_owned(),
                what: "was installed from",
            });
        }
        Ok(Some(found))
    }

    /// What the receipt says of the files, if it is of exactly this commit; then a damaged manifest costs nothing but itself. Without it
    /// nothing vouches for anything, and everything comes again.
    fn records_of_receipt(&self) -> BTreeMap<String, FileRecord> {
        let receipt = verify::receipt(self.disk, self.dir).ok().flatten();
        let from = (&self.options.repository, &self.options.revision);
        receipt
            .filter(|receipt| receipt.source_repo_id.is_some())
            .filter(|receipt| (&receipt.source_repo_id, &receipt.source_revision) == from)
            .map(|receipt| receipt.files)
            .unwrap_or_default()
    }
}

/// Whether the checksums are those that are on record.
fn checksums_are_listed(
    disk: &dyn Disk,
    dir: &Path,
    records: &BTreeMap<String, FileRecord>,
) -> Result<bool, InstallError> {
    let Some(record) = records.get(paths::CHECKSUMS) else {
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
    records: &'a BTreeMap<String, FileRecord>,
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
        progress: &mut dyn FnMut(u64) -> Result<(), InstallError>,
    ) -> Result<bool, InstallError> {
        let planned = &self.plan.files[file];
        let path = self.dir.join(&planned.path);
        let record = self.records.get(&planned.path);
        let Some(record) = record.filter(|record| record.size == planned.size()) else {
            return Ok(false);
        };
        if self.disk.file_len(&path)? != Some(record.size) {
            return Ok(false);
        }
        let stride = planned.has_experts.then_some(self.plan.expert_stride);
        let lens = self.parts(planned, segments);
        let mut part_lens = lens.iter().map(|&(len, _)| len);
        let hashed = hash_file(self.disk, &path, stride, &mut part_lens, progress)?;
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
