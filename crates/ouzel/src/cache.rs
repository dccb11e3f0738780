//! Compiled tokenizers on disk: compile once, map ever after.
//!
//! A compiled image lies under the hash of the tokenizer.json it came from, so it never goes stale: another tokenizer has another
//! name. It carries its own checksum and version; one that fails them is made anew. The cache is a convenience: where it cannot
//! be read or written, the image lives in memory instead and nobody is told.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use ouzel_storage::{Mmap, OnceFile, Sha256};
use ouzel_tokenizer::Tokenizer;

use crate::TextError;

/// A tokenizer.json and the hash that the manifest recorded for it.
pub(crate) struct TokenizerFile<'a> {
    pub path: &'a Path,
    pub sha256: &'a str,
}

/// The tokenizer of a file, from the cache where it is there.
pub(crate) fn open(
    file: &TokenizerFile<'_>,
    cache_dir: Option<&Path>,
) -> Result<Tokenizer, TextError> {
    let image_path =
        cache_dir.map(|dir| dir.join("tokenizers").join(format!("{}.tok", file.sha256)));
    if let Some(tokenizer) = image_path.as_deref().and_then(mapped) {
        return Ok(tokenizer);
    }
    let image = compile(file)?;
    if let Some(path) = image_path
        && store(&path, &image).is_ok()
        && let Some(tokenizer) = mapped(&path)
    {
        return Ok(tokenizer);
    }
    Tokenizer::from_image(image).map_err(|source| TextError::Tokenizer {
        path: file.path.to_owned(),
        source,
    })
}

fn mapped(path: &Path) -> Option<Tokenizer> {
    Tokenizer::from_image(Mmap::open(path).ok()?).ok()
}

fn compile(file: &TokenizerFile<'_>) -> Result<Vec<u8>, TextError> {
    let unreadable = |error: io::Error| TextError::Unreadable {
        path: file.path.to_owned(),
        reason: error.to_string(),
    };
    let mut source = Hashing {
        inner: OnceFile::open(file.path).map_err(unreadable)?,
        hash: Sha256::new(),
    };
    let image = Tokenizer::compile(&mut source);
    // The compiler may stop before the end, at an error or a last newline; the hash is of the whole file.
    io::copy(&mut source, &mut io::sink()).map_err(unreadable)?;
    let actual = hex(&source.hash.finish());
    if actual != file.sha256 {
        return Err(TextError::Damaged {
            path: file.path.to_owned(),
            expected: file.sha256.to_owned(),
            actual,
        });
    }
    image.map_err(|source| TextError::Tokenizer {
        path: file.path.to_owned(),
        source,
    })
}

/// Writes a file under another name and renames it, so that a reader sees all of it or nothing.
fn store(path: &Path, image: &[u8]) -> io::Result<()> {
    static N_WRITTEN: AtomicU32 = AtomicU32::new(0);
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir)?;
    }
    let n = N_WRITTEN.fetch_add(1, Ordering::Relaxed);
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}-{n}.partial", std::process::id()));
    let partial = PathBuf::from(partial);
    let written = File::create_new(&partial).and_then(|mut file| {
        file.write_all(image)?;
        file.sync_all()?;
        drop(file);
        fs::rename(&partial, path)
    });
    if written.is_err() {
        // Best effort: what failed before may fail again, and a partial file is never read.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buf)?;
        self.hash.update(&buf[..n]);
        Ok(n)
    }
}
