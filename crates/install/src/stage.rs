//! The unfinished directory beside the output, and the journal of what is finished in it.
//!
//! For an output `M.gturbo` there may be, and only while an installation is under way or was cut short: `M.gturbo.partial`, the
//! files so far; `M.gturbo.journal`, which of them are whole; and while `--overwrite` swaps, `M.gturbo.old`. A file
//! counts as finished only after its bytes were made durable, and again only after its hash was compared. The journal is
//! removed last, so that it tells an `.old` of ours from a folder that a person named so. No folder is ever removed that holds
//! anything but the files of a model.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ouzel_format::{FileRecord, Sha256Hex, paths};
use ouzel_storage::Disk;
use serde::{Deserialize, Serialize};

use crate::InstallError;
use crate::copy::{BUFFER_BYTES, Written, hash_file};
use crate::plan::PlannedFile;

const JOURNAL_VERSION: u32 = 1;
/// A journal lists some thirty files with a checksum an expert; anything larger is not one.
const MAX_JOURNAL_BYTES: u64 = 16 << 20;

#[derive(Serialize, Deserialize)]
struct Journal {
    version: u32,
    /// Of the checkpoint that the files come from.
    fingerprint: String,
    files: BTreeMap<String, JournalEntry>,
}

#[derive(Serialize, Deserialize)]
struct JournalEntry {
    size: u64,
    sha256: String,
    sums: Vec<u64>,
}

/// The directory being built.
pub struct Stage<'a> {
    disk: &'a dyn Disk,
    output: PathBuf,
    fingerprint: Sha256Hex,
    finished: BTreeMap<String, Written>,
}

impl<'a> Stage<'a> {
    /// Finds what an earlier run left, or starts anew. Finished files are hashed again; what does not match is written again.
    pub fn open(
        disk: &'a dyn Disk,
        output: &Path,
        fingerprint: Sha256Hex,
        stride: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Stage<'a>, InstallError> {
        let mut stage = Stage {
            disk,
            output: output.to_owned(),
            fingerprint,
            finished: BTreeMap::new(),
        };
        let is_ours = disk.exists(&stage.journal());
        if is_ours {
            stage.restore_swapped()?;
        }
        for dir in [stage.partial(), stage.old(), output.to_owned()] {
            check_replaceable(disk, &dir)?;
        }
        if disk.exists(&stage.old()) && disk.exists(output) {
            return Err(in_the_way(
                &stage.old(),
                "is in the way of the old model, which is moved there",
            ));
        }
        let journal = stage
            .read_journal()?
            .filter(|_| disk.exists(&stage.partial()));
        match journal {
            Some(journal) => stage.trust(journal, stride, progress)?,
            None => {
                disk.remove_dir_all(&stage.partial())?;
                disk.remove_file(&stage.journal())?;
            }
        }
        stage.make_folders()?;
        Ok(stage)
    }

    /// Makes the folders of the partial directory, and makes their names and those of the folders above them durable.
    fn make_folders(&self) -> Result<(), InstallError> {
        let partial = self.partial();
        let new: Vec<&Path> = partial
            .ancestors()
            .skip(1)
            .take_while(|dir| *dir != Path::new("") && !self.disk.exists(dir))
            .collect();
        for dir in ["", paths::EXPERTS_DIR, paths::TOKENIZER_DIR] {
            self.disk.create_dir_all(&partial.join(dir))?;
        }
        // What the partial directory holds is made durable file by file.
        self.disk.sync_dir(parent(&partial))?;
        for dir in new {
            self.disk.sync_dir(parent(dir))?;
        }
        Ok(())
    }

    /// Where a file of the directory is being built.
    pub fn path(&self, file: &str) -> PathBuf {
        self.partial().join(file)
    }

    /// A file that is finished already.
    pub fn finished(&self, file: &str) -> Option<&Written> {
        self.finished.get(file)
    }

    /// Bytes of the files that are finished.
    pub fn finished_bytes(&self) -> u64 {
        self.finished
            .values()
            .map(|written| written.record.size)
            .sum()
    }

    /// Notes that a file, whose bytes are durable, is finished.
    pub fn finish(&mut self, file: &str, written: Written) -> Result<(), InstallError> {
        if let Some(dir) = self.path(file).parent() {
            self.disk.sync_dir(dir)?;
        }
        self.finished.insert(file.to_owned(), written);
        let journal = Journal {
            version: JOURNAL_VERSION,
            fingerprint: self.fingerprint.to_string(),
            files: self
                .finished
                .iter()
                .map(|(name, written)| {
                    let entry = JournalEntry {
                        size: written.record.size,
                        sha256: written.record.sha256.to_string(),
                        sums: written.sums.clone(),
                    };
                    (name.clone(), entry)
                })
                .collect(),
        };
        let bytes = serde_json::to_vec(&journal).expect("a journal is plain data");
        let new = with_suffix(&self.output, ".journal.new");
        write_whole(self.disk, &new, &bytes)?;
        self.disk.rename(&new, &self.journal())?;
        self.disk.sync_dir(parent(&self.output))?;
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
        let old = self.old();
        if self.disk.exists(&self.output) {
            self.disk.rename(&self.output, &old)?;
        }
        self.disk.rename(&self.partial(), &self.output)?;
        self.disk.sync_dir(parent(&self.output))?;
        self.disk.remove_dir_all(&old)?;
        self.disk.sync_dir(parent(&self.output))?;
        self.disk.remove_file(&self.journal())?;
        self.disk.sync_dir(parent(&self.output))?;
        Ok(())
    }

    /// A swap that was cut short left the old directory aside: put it back, so that there is a whole one while this run works.
    fn restore_swapped(&self) -> Result<(), InstallError> {
        let old = self.old();
        if !self.disk.exists(&old) {
            return Ok(());
        }
        if self.disk.exists(&self.output) {
            self.disk.remove_dir_all(&old)?;
        } else {
            self.disk.rename(&old, &self.output)?;
        }
        self.disk.sync_dir(parent(&self.output))?;
        Ok(())
    }

    fn read_journal(&self) -> Result<Option<Journal>, InstallError> {
        let path = self.journal();
        let Some(len) = self
            .disk
            .file_len(&path)?
            .filter(|&len| len <= MAX_JOURNAL_BYTES)
        else {
            return Ok(None);
        };
        let mut bytes = vec![0; len as usize];
        let mut done = 0;
        while done < bytes.len() {
            let end = bytes.len().min(done + BUFFER_BYTES);
            let n = self
                .disk
                .read_at(&path, done as u64, &mut bytes[done..end])?;
            if n == 0 {
                return Ok(None);
            }
            done += n;
        }
        // A journal that cannot be read, or is of another checkpoint, is as good as none.
        let journal: Option<Journal> = serde_json::from_slice(&bytes).ok();
        Ok(journal.filter(|journal| {
            journal.version == JOURNAL_VERSION
                && journal.fingerprint == self.fingerprint.to_string()
        }))
    }

    fn trust(
        &mut self,
        journal: Journal,
        stride: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), InstallError> {
        for (name, entry) in journal.files {
            let Ok(sha256) = entry.sha256.parse::<Sha256Hex>() else {
                continue;
            };
            if paths::check_path(&name).is_err()
                || self.disk.file_len(&self.path(&name))? != Some(entry.size)
            {
                continue;
            }
            let claimed = Written {
                record: FileRecord {
                    size: entry.size,
                    sha256,
                },
                sums: entry.sums,
            };
            let stride = (!claimed.sums.is_empty()).then_some(stride);
            let actual = hash_file(self.disk, &self.path(&name), stride, progress)?;
            if actual == claimed {
                self.finished.insert(name, actual);
            }
        }
        Ok(())
    }

    fn partial(&self) -> PathBuf {
        with_suffix(&self.output, ".partial")
    }

    fn journal(&self) -> PathBuf {
        with_suffix(&self.output, ".journal")
    }

    fn old(&self) -> PathBuf {
        with_suffix(&self.output, ".old")
    }
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
/// [`InstallError::NotAModel`] names what is there instead.
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
            &format!("holds {}, which is no part of a model", name.display()),
        )),
    }
}

fn in_the_way(path: &Path, what: &str) -> InstallError {
    InstallError::NotAModel {
        dir: path.to_owned(),
        reason: format!("{what}, so it is not replaced; move it away or give another --output"),
    }
}

/// What is known of an output that is not there: whether an installation of it was cut short.
pub fn was_cut_short(disk: &dyn Disk, output: &Path) -> bool {
    [".journal", ".partial"]
        .iter()
        .any(|suffix| disk.exists(&with_suffix(output, suffix)))
}

/// Bytes that an earlier run left for `output`, which need not be written or will be replaced.
pub fn partial_bytes(disk: &dyn Disk, output: &Path, files: &[PlannedFile]) -> u64 {
    let partial = with_suffix(output, ".partial");
    files
        .iter()
        .filter_map(|file| disk.file_len(&partial.join(&file.path)).ok().flatten())
        .sum()
}

fn write_whole(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> Result<(), InstallError> {
    let mut file = disk.create(path)?;
    for part in bytes.chunks(BUFFER_BYTES) {
        file.write_all(part)?;
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
