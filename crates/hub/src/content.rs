//! The files that a hub has, in memory or on disk, and what they are called by content.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ouzel_format::Sha256Hex;
use ouzel_storage::Sha256;

/// One file.
#[derive(Debug)]
pub struct Content {
    bytes: Bytes,
    /// In bytes.
    pub size: u64,
    /// SHA-256, in hex.
    pub sha256: String,
    /// Whether it lies at the storage host.
    pub is_large: bool,
}

#[derive(Debug)]
enum Bytes {
    Memory(Vec<u8>),
    Disk(PathBuf),
}

/// As the real hub does: weights and tokenizers are stored apart from the repository.
fn is_large(name: &str) -> bool {
    name.ends_with(".safetensors") || name == "tokenizer.json"
}

impl Content {
    /// A file in memory.
    pub fn of_bytes(name: &str, bytes: &[u8]) -> Content {
        Content {
            size: bytes.len() as u64,
            sha256: Sha256Hex::from_bytes(Sha256::digest(bytes)).to_string(),
            is_large: is_large(name),
            bytes: Bytes::Memory(bytes.to_vec()),
        }
    }

    /// A file on disk, which is read when it is asked for.
    pub fn of_file(path: &Path) -> io::Result<Content> {
        let mut file = File::open(path)?;
        let mut hash = Sha256::new();
        let (mut size, mut buffer) = (0, vec![0; 1 << 20]);
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                break;
            }
            hash.update(&buffer[..n]);
            size += n as u64;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Content {
            bytes: Bytes::Disk(path.to_owned()),
            size,
            sha256: Sha256Hex::from_bytes(hash.finish()).to_string(),
            is_large: is_large(&name),
        })
    }

    /// Hands `len` bytes from `offset` to `send`, piece by piece.
    pub fn send(
        &self,
        offset: u64,
        len: u64,
        send: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        const PIECE: usize = 256 << 10;
        match &self.bytes {
            Bytes::Memory(bytes) => bytes[offset as usize..(offset + len) as usize]
                .chunks(PIECE)
                .try_for_each(send),
            Bytes::Disk(path) => {
                let mut file = File::open(path)?;
                file.seek(SeekFrom::Start(offset))?;
                let mut buffer = vec![0; PIECE];
                let mut left = len;
                while left > 0 {
                    let n = left.min(PIECE as u64) as usize;
                    file.read_exact(&mut buffer[..n])?;
                    send(&buffer[..n])?;
                    left -= n as u64;
                }
                Ok(())
            }
        }
    }
}
