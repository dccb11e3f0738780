//! The file of logits: safetensors, written row by row.
//!
//! A file appears under its name when it is complete, and never in place of another. What is no regular file, such as a FIFO or a
//! device, has no name to give away: it is written to as it stands.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ouzel_format::safetensors::{TensorDtype, encode_header};
use ouzel_storage::StorageError;

use crate::exit::usage;

/// Where logits go, found to be possible before anything is computed.
pub enum Target {
    /// A new file: written under `partial`, then renamed.
    NewFile { path: PathBuf, partial: PathBuf },
    /// A FIFO or a device.
    Stream(PathBuf),
}

impl Target {
    /// Refuses what exists and what cannot come to exist.
    pub fn find(path: &Path) -> anyhow::Result<Target> {
        let refuse = |why: &str| Err(usage(format!("--logits {}: {why}", path.display())));
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => return refuse("is a folder; give the name of a file"),
            Ok(found) if found.is_file() => {
                return refuse("already exists; give another name, or remove it first");
            }
            Ok(_) => return Ok(Target::Stream(path.to_owned())),
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return refuse(&format!("{error}; give another name"));
            }
            Err(_) => {}
        }
        if fs::symlink_metadata(path).is_ok() {
            return refuse("already exists, as a link to nothing; give another name");
        }
        let name = path.file_name().map(ToOwned::to_owned);
        let folder = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let Some(mut name) = name.filter(|_| folder.is_dir()) else {
            return refuse("its folder does not exist; make it first, or give another name");
        };
        name.push(".partial");
        Ok(Target::NewFile {
            path: path.to_owned(),
            partial: folder.join(name),
        })
    }

    /// The file that is opened.
    fn opened(&self) -> &Path {
        match self {
            Target::NewFile { partial, .. } => partial,
            Target::Stream(path) => path,
        }
    }
}

/// Tensors `seq0.logits`, `seq1.logits`, ... on their way to the disk.
pub struct LogitsFile {
    file: BufWriter<File>,
    target: Target,
    bytes: Vec<u8>,
    is_complete: bool,
}

/// Half a file of logits is of no use to anyone.
impl Drop for LogitsFile {
    fn drop(&mut self) {
        if let (false, Target::NewFile { partial, .. }) = (self.is_complete, &self.target) {
            let _ = fs::remove_file(partial);
        }
    }
}

impl LogitsFile {
    /// Opens the target and writes the header.
    pub fn create(
        target: Target,
        sequences: &[Vec<u32>],
        vocab_size: usize,
    ) -> anyhow::Result<LogitsFile> {
        let tensors: Vec<(String, [u64; 2])> = sequences
            .iter()
            .enumerate()
            .map(|(i, ids)| {
                let shape = [ids.len() as u64, vocab_size as u64];
                (format!("seq{i}.logits"), shape)
            })
            .collect();
        let header: Vec<(&str, TensorDtype, &[u64])> = tensors
            .iter()
            .map(|(name, shape)| (name.as_str(), TensorDtype::F32, shape.as_slice()))
            .collect();
        let is_new = matches!(target, Target::NewFile { .. });
        let file = OpenOptions::new()
            .write(true)
            .create(is_new)
            .truncate(is_new)
            .open(target.opened())
            .map_err(|source| StorageError::io("opening", target.opened(), source))?;
        let mut logits = LogitsFile {
            file: BufWriter::with_capacity(1 << 20, file),
            target,
            bytes: Vec::with_capacity(4 * vocab_size),
            is_complete: false,
        };
        logits.write(|file, _| file.write_all(&encode_header(&header)))?;
        Ok(logits)
    }

    /// The next row, f32 `[vocab_size]`.
    pub fn row(&mut self, logits: &[f32]) -> anyhow::Result<()> {
        self.bytes.clear();
        self.bytes
            .extend(logits.iter().flat_map(|x| x.to_le_bytes()));
        self.write(|file, bytes| file.write_all(bytes))
    }

    /// All rows are there: gives the file its name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        self.write(|file, _| file.flush())?;
        if let Target::NewFile { path, partial } = &self.target {
            self.file
                .get_ref()
                .sync_all()
                .map_err(|source| StorageError::io("writing", partial, source))?;
            // Another program may have made the file meanwhile; then it is not ours to replace.
            Target::find(path)?;
            fs::rename(partial, path)
                .map_err(|source| StorageError::io("renaming", partial, source))?;
        }
        self.is_complete = true;
        Ok(())
    }

    fn write(
        &mut self,
        f: impl FnOnce(&mut BufWriter<File>, &[u8]) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        f(&mut self.file, &self.bytes)
            .map_err(|source| StorageError::io("writing", self.target.opened(), source).into())
    }
}
