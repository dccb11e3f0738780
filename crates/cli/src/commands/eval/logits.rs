//! The file of logits: safetensors, written row by row.

use ouzel_format::safetensors::{TensorDtype, encode_header};

use crate::new_file::{NewFile, Target};

/// Tensors `seq0.logits`, `seq1.logits`, ... on their way to the disk.
pub struct LogitsFile {
    file: NewFile,
    bytes: Vec<u8>,
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
        let mut file = NewFile::create(target)?;
        file.write(&encode_header(&header))?;
        Ok(LogitsFile {
            file,
            bytes: Vec::with_capacity(4 * vocab_size),
        })
    }

    /// The next row, f32 `[vocab_size]`.
    pub fn row(&mut self, logits: &[f32]) -> anyhow::Result<()> {
        self.bytes.clear();
        self.bytes
            .extend(logits.iter().flat_map(|x| x.to_le_bytes()));
        self.file.write(&self.bytes)
    }

    /// All rows are there: gives the file its name.
    pub fn finish(self) -> anyhow::Result<()> {
        self.file.finish()
    }
}
