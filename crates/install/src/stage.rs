//! The unfinished directory beside the output, and the journal of what is finished in it.
//!
//! For an output `M.gturbo` there may be, and only while an installation is under way or was cut short: `M.gturbo.partial`, the
//! files so far; `M.gturbo.journal`, which ranges have landed in them; and while `--overwrite` swaps, `M.gturbo.old`. A range
//! counts as landed only after its bytes were made durable, and in a later run only after they were compared. The journal is there
//! before the first byte and removed last, so that it tells an `.old` of ours from a folder that a person named so. No folder is ever removed that holds
//! anything but the files of a model.

use std::path::{Path, PathBuf};

use ouzel_format::{Sha256Hex, paths};
use ouzel_storage::{Disk, ShowPath, WriteFile, Xxh3};

use crate::InstallError;
use crate::hash::BUFFER_BYTES;
use crate::journal::{self, Record};
use crate::plan::PlannedFile;
use crate::ranges::{Segment, Transfer};
use crate::verify::refuse_links;

/// Which ranges have landed, and what landed.
#[derive(Clone, Debug)]
pub struct Landed {
    /// Of each range.
    pub ranges: Vec<bool>,
    /// XXH3-64 of each segment; of ranges that have not landed it says nothing.
    pub digests: Vec<u64>,
}

impl Landed {
    /// Nothing has.
    pub fn nothing(transfer: &Transfer) -> Landed {
        Landed {
            ranges: vec![false; transfer.ranges.len()],
            digests: vec![0; transfer.segments.len()],
        }
    }

    /// Notes a range.
    pub fn add(&mut self, transfer: &Transfer, record: &Record) {
        let segments = transfer.ranges[record.range].segments.clone();
        self.ranges[record.range] = true;
        self.digests[segments].copy_from_slice(&record.digests);
    }

    /// Bytes of the ranges.
    pub fn bytes(&self, transfer: &Transfer) -> u64 {
        let landed = transfer.ranges.iter().zip(&self.ranges);
        landed
            .filter(|&(_, &has_landed)| has_landed)
            .map(|(range, _)| range.len)
            .sum()
    }

    fn records(&self, transfer: &Transfer) -> Vec<Record> {
        let landed = (0..self.ranges.len()).filter(|&range| self.ranges[range]);
        landed
            .map(|range| Record {
                range,
                digests: self.digests[transfer.ranges[range].segments.clone()].to_vec(),
            })
            .collect()
    }
}

/// The directory being built.
pub struct Stage<'a> {
    disk: &'a dyn Disk,
    output: PathBuf,
    /// The journal, and where its next record goes.
    journal: Box<dyn WriteFile + 'a>,
    journal_bytes: u64,
}

/// What a stage is for.
pub struct StageInputs<'a> {
    /// The finished directory.
    pub output: &'a Path,
    /// Of the plan and its source.
    pub fingerprint: &'a Sha256Hex,
    /// The planned files.
    pub files: &'a [PlannedFile],
    /// What is transferred.
    pub transfer: &'a Transfer,
}

impl<'a> Stage<'a> {
    /// Finds what an earlier run left, or starts anew. Ranges that are said to have landed are read and compared; what does not match
    /// counts as not landed. `progress` is told of the bytes compared.
    pub fn open(
        disk: &'a dyn Disk,
        inputs: &StageInputs<'_>,
        progress: &mut dyn FnMut(u64) -> Result<(), InstallError>,
    ) -> Result<(Stage<'a>, Landed), InstallError> {
        let output = inputs.output;
        if disk.exists(&journal_of(output)) {
            restore_swapped(disk, output)?;
        }
        for dir in [partial_of(output), old_of(output), output.to_owned()] {
            check_replaceable(disk, &dir)?;
        }
        if disk.is_link(&partial_of(output)) {
            return Err(in_the_way(&partial_of(output), "is a link"));
        }
        refuse_links(disk, &partial_of(output))?;
        if disk.exists(&old_of(output)) && disk.exists(output) {
            return Err(in_the_way(
                &old_of(output),
                "is in the way of the old model, which is moved there",
            ));
        }
        let mut landed = Landed::nothing(inputs.transfer);
        match claims(disk, inputs)? {
            Some(records) => {
                for record in &records {
                    landed.add(inputs.transfer, record);
                }
                compare(disk, inputs, &mut landed, progress)?;
            }
            None => {
                disk.remove_dir_all(&partial_of(output))?;
                disk.remove_file(&journal_of(output))?;
            }
        }
        make_folders(disk, output)?;
        let (journal, journal_bytes) = write_journal(disk, inputs, &landed)?;
        let stage = Stage {
            disk,
            output: output.to_owned(),
            journal,
            journal_bytes,
        };
        Ok((stage, landed))
    }

    /// Where a file of the directory is being built.
    pub fn path(&self, file: &str) -> PathBuf {
        partial_of(&self.output).join(file)
    }

    /// Makes the names of all files durable, so that what is recorded of them can be found again.
    pub fn sync_names(&self) -> Result<(), InstallError> {
        for dir in FOLDERS {
            self.disk.sync_dir(&self.path(dir))?;
        }
        Ok(())
    }

    /// Notes that ranges, whose bytes are durable, have landed.
    pub fn record(&mut self, records: &[Record]) -> Result<(), InstallError> {
        let mut bytes = Vec::new();
        journal::encode(records, &mut bytes);
        for part in bytes.chunks(BUFFER_BYTES) {
            self.journal.write_at(self.journal_bytes, part)?;
            self.journal_bytes += part.len() as u64;
        }
        self.journal.sync()?;
        Ok(())
    }

    /// Writes a small file whose bytes are at hand.
    pub fn write(&self, file: &str, bytes: &[u8]) -> Result<(), InstallError> {
        let path = self.path(file);
        write_whole(self.disk, &path, bytes)?;
        self.disk.sync_dir(parent(&path))?;
        Ok(())
    }

    /// Puts the finished directory in the output's place; an older one is moved aside first and removed last.
    pub fn promote(self) -> Result<(), InstallError> {
        let old = old_of(&self.output);
        if self.disk.exists(&self.output) {
            self.disk.rename(&self.output, &old)?;
        }
        self.disk.rename(&partial_of(&self.output), &self.output)?;
        self.disk.sync_dir(parent(&self.output))?;
        self.disk.remove_dir_all(&old)?;
        self.disk.sync_dir(parent(&self.output))?;
        // Where an open file cannot be removed, it has to be closed first.
        drop(self.journal);
        self.disk.remove_file(&journal_of(&self.output))?;
        self.disk.sync_dir(parent(&self.output))?;
        Ok(())
    }
}

/// The folders of a model directory.
const FOLDERS: [&str; 3] = ["", paths::EXPERTS_DIR, paths::TOKENIZER_DIR];

/// Makes the folders of the partial directory, and makes their names and those of the folders above them durable.
fn make_folders(disk: &dyn Disk, output: &Path) -> Result<(), InstallError> {
    let partial = partial_of(output);
    let new: Vec<&Path> = partial
        .ancestors()
        .skip(1)
        .take_while(|dir| *dir != Path::new("") && !disk.exists(dir))
        .collect();
    for dir in FOLDERS {
        disk.create_dir_all(&partial.join(dir))?;
    }
    // What the partial directory holds is made durable when the first ranges are recorded.
    disk.sync_dir(parent(&partial))?;
    for dir in new {
        disk.sync_dir(parent(dir))?;
    }
    Ok(())
}

/// Replaces the journal by one that has these ranges.
fn write_journal<'a>(
    disk: &'a dyn Disk,
    inputs: &StageInputs<'_>,
    landed: &Landed,
) -> Result<(Box<dyn WriteFile + 'a>, u64), InstallError> {
    let mut bytes = journal::header(inputs.fingerprint);
    journal::encode(&landed.records(inputs.transfer), &mut bytes);
    let new = with_suffix(inputs.output, ".journal.new");
    let renamed = write_whole(disk, &new, &bytes)
        .and_then(|()| Ok(disk.rename(&new, &journal_of(inputs.output))?));
    if renamed.is_err() {
        // On a full disk not even this much is left behind; where it cannot be removed, the next run replaces it.
        let _ = disk.remove_file(&new);
    }
    renamed?;
    disk.sync_dir(parent(inputs.output))?;
    let file = disk.open_write(&journal_of(inputs.output))?;
    Ok((file, bytes.len() as u64))
}

/// A swap that was cut short left the old directory aside: put it back, so that there is a whole one while this run works.
fn restore_swapped(disk: &dyn Disk, output: &Path) -> Result<(), InstallError> {
    let old = old_of(output);
    if !disk.exists(&old) {
        return Ok(());
    }
    if disk.exists(output) {
        disk.remove_dir_all(&old)?;
    } else {
        disk.rename(&old, output)?;
    }
    disk.sync_dir(parent(output))?;
    Ok(())
}

/// What the journal of an earlier run says about this plan; `None` without one, or where it is of another plan. Nothing is
/// compared yet.
pub fn claims(
    disk: &dyn Disk,
    inputs: &StageInputs<'_>,
) -> Result<Option<Vec<Record>>, InstallError> {
    let path = journal_of(inputs.output);
    let len = disk.file_len(&path)?.unwrap_or(0);
    if !disk.exists(&partial_of(inputs.output)) || len > journal::MAX_BYTES {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    let mut done = 0;
    while done < bytes.len() {
        let end = bytes.len().min(done + BUFFER_BYTES);
        let n = disk.read_at(&path, done as u64, &mut bytes[done..end])?;
        if n == 0 {
            return Ok(None);
        }
        done += n;
    }
    Ok(journal::decode(&bytes, inputs.fingerprint, inputs.transfer))
}

/// Reads every segment that is said to have landed, file by file, and strikes the ranges whose bytes are others.
fn compare(
    disk: &dyn Disk,
    inputs: &StageInputs<'_>,
    landed: &mut Landed,
    progress: &mut dyn FnMut(u64) -> Result<(), InstallError>,
) -> Result<(), InstallError> {
    let transfer = inputs.transfer;
    let mut range_of = vec![0; transfer.segments.len()];
    for (i, range) in transfer.ranges.iter().enumerate() {
        range_of[range.segments.clone()].fill(i);
    }
    let mut buffer = vec![0; BUFFER_BYTES];
    let by_file = transfer.segments_by_file(inputs.files.len());
    for (file, segments) in inputs.files.iter().zip(&by_file) {
        let path = partial_of(inputs.output).join(&file.path);
        let exists = disk.file_len(&path)?.is_some();
        for &i in segments {
            if !landed.ranges[range_of[i]] {
                continue;
            }
            let segment = &transfer.segments[i];
            let digest = match exists {
                true => digest_at(disk, &path, segment, &mut buffer)?,
                false => None,
            };
            progress(segment.len)?;
            if digest != Some(landed.digests[i]) {
                landed.ranges[range_of[i]] = false;
            }
        }
    }
    Ok(())
}

/// The digest of a segment as it is on the disk; `None` where the file ends before it.
fn digest_at(
    disk: &dyn Disk,
    path: &Path,
    segment: &Segment,
    buffer: &mut [u8],
) -> Result<Option<u64>, InstallError> {
    let mut hash = Xxh3::new();
    let mut done = 0;
    while done < segment.len {
        let n = (segment.len - done).min(buffer.len() as u64) as usize;
        if disk.read_at(path, segment.at + done, &mut buffer[..n])? < n {
            return Ok(None);
        }
        hash.update(&buffer[..n]);
        done += n as u64;
    }
    Ok(Some(hash.take()))
}

/// Turns a finished directory into an unfinished one in which these ranges have landed. A power cut leaves the one or the other.
pub fn reopen(
    disk: &dyn Disk,
    inputs: &StageInputs<'_>,
    landed: &Landed,
) -> Result<(), InstallError> {
    let (output, partial) = (inputs.output, partial_of(inputs.output));
    if disk.exists(&partial) {
        return Err(in_the_way(&partial, "is in the way of the repair"));
    }
    drop(write_journal(disk, inputs, landed)?);
    disk.rename(output, &partial)?;
    disk.sync_dir(parent(output))?;
    Ok(())
}

/// Removes what an installation of `output` left when it was cut short, and says whether there was anything.
///
/// # Errors
/// [`InstallError::InTheWay`] if it holds anything else; those of the disk.
pub fn discard(disk: &dyn Disk, output: &Path) -> Result<bool, InstallError> {
    let (partial, journal) = (partial_of(output), journal_of(output));
    let was_there = was_cut_short(disk, output);
    if disk.exists(&journal) {
        restore_swapped(disk, output)?;
    }
    check_replaceable(disk, &partial)?;
    disk.remove_dir_all(&partial)?;
    disk.remove_file(&with_suffix(output, ".journal.new"))?;
    disk.remove_file(&journal)?;
    if was_there {
        disk.sync_dir(parent(output))?;
    }
    Ok(was_there)
}

/// Removes a model and what belongs to it.
///
/// # Errors
/// [`InstallError::InTheWay`] if there is anything in it that is no part of a model; those of the disk.
pub fn remove(disk: &dyn Disk, output: &Path) -> Result<(), InstallError> {
    check_replaceable(disk, output)?;
    discard(disk, output)?;
    // Without its manifest it is no model any more, whatever happens then.
    disk.remove_file(&output.join(paths::MANIFEST))?;
    disk.remove_dir_all(output)?;
    if disk.exists(parent(output)) {
        disk.sync_dir(parent(output))?;
    }
    Ok(())
}

/// Where the files of an unfinished installation lie.
pub fn partial_of(output: &Path) -> PathBuf {
    with_suffix(output, ".partial")
}

fn journal_of(output: &Path) -> PathBuf {
    with_suffix(output, ".journal")
}

fn old_of(output: &Path) -> PathBuf {
    with_suffix(output, ".old")
}

/// What a model directory has at its top.
const TOP_NAMES: [&str; 5] = [
    paths::MANIFEST,
    paths::RECEIPT,
    paths::WEIGHTS,
    paths::EXPERTS_DIR,
    paths::TOKENIZER_DIR,
];
/// What file managers drop everywhere.
const CLUTTER: [&str; 3] = [".DS_Store", "Thumbs.db", "desktop.ini"];

/// Whether `path` may be removed when a model takes its place: it is absent, or a folder with nothing in it but a model's files,
/// whole or damaged.
///
/// # Errors
/// [`InstallError::InTheWay`] names what is there instead.
pub fn check_replaceable(disk: &dyn Disk, path: &Path) -> Result<(), InstallError> {
    let Some(names) = disk.names(path)? else {
        return match disk.exists(path) {
            true => Err(in_the_way(path, "is no folder")),
            false => Ok(()),
        };
    };
    let foreign = names.iter().find(|name| {
        !name
            .to_str()
            .is_some_and(|name| TOP_NAMES.contains(&name) || CLUTTER.contains(&name))
    });
    match foreign {
        None => Ok(()),
        Some(name) => Err(in_the_way(
            path,
            &format!("holds {}, which is no part of a model", name.shown()),
        )),
    }
}

fn in_the_way(path: &Path, what: &str) -> InstallError {
    InstallError::InTheWay {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

/// What is known of an output that is not there: whether an installation of it was cut short.
pub fn was_cut_short(disk: &dyn Disk, output: &Path) -> bool {
    [".journal", ".partial"]
        .iter()
        .any(|suffix| disk.exists(&with_suffix(output, suffix)))
}

fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), InstallError> {
    let mut file = disk.create(path)?;
    let mut at = 0;
    for part in bytes.chunks(BUFFER_BYTES) {
        file.write_at(at, part)?;
        at += part.len() as u64;
    }
    file.sync()?;
    Ok(())
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
