//! Writes the weights of a model: whole files side by side, each made, hashed and written by one thread through one small buffer.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::anyhow;
use ouzel_format::Dtype;
use ouzel_format::{ALIGNMENT, Extent, FileRecord, ResidentEntry, ResidentIndex, Sha256Hex, paths};
use ouzel_storage::{AlignedBuf, Sha256, StreamWriter, xxh3_64};

use super::rows::Rows;
use super::tensors::{Part, Source, Tensor};

/// Each has a core of the machines that this is made for.
const N_THREADS: usize = 2;
/// Bytes of a write of the resident weights, about as many as an expert has.
const BUFFER_BYTES: usize = 4 << 20;
/// Room behind a full buffer for the rest of the row that filled it.
const SPARE_BYTES: usize = AlignedBuf::ALIGNMENT;

const PARTS: [Part; 3] = [Part::Values, Part::Scales, Part::Biases];

/// A written file.
pub struct Written {
    /// Its path within the directory.
    pub path: String,
    /// Its size and hash.
    pub record: FileRecord,
    /// XXH3-64 of each expert, of a layer's file.
    pub sums: Vec<u64>,
}

/// Bytes of an expert with its padding.
pub fn expert_stride(source: &Source) -> u64 {
    let bytes: u64 = source.expert(0, 0).iter().map(tensor_bytes).sum();
    bytes.next_multiple_of(ALIGNMENT)
}

fn tensor_bytes(tensor: &Tensor) -> u64 {
    PARTS.iter().map(|&part| tensor.bytes(part)).sum()
}

/// Bytes of all weights, resident and routed.
pub fn total_bytes(source: &Source) -> anyhow::Result<u64> {
    let index = resident_index(&source.resident())?;
    let n_experts = u64::from(source.arch.num_layers) * u64::from(source.arch.num_experts);
    Ok(index.check()? + index.payload_size + n_experts * expert_stride(source))
}

/// Writes resident weights and experts below `dir`, whose folders exist; resident weights first in the result, then layers in order.
pub fn weights(source: &Source, dir: &Path) -> anyhow::Result<Vec<Written>> {
    let n_files = source.arch.num_layers as usize + 1;
    let next = AtomicUsize::new(0);
    let has_failed = AtomicBool::new(false);
    let results = Mutex::new(Vec::with_capacity(n_files));
    std::thread::scope(|scope| {
        for _ in 0..N_THREADS {
            scope.spawn(|| {
                while !has_failed.load(Ordering::Relaxed) {
                    let nth = next.fetch_add(1, Ordering::Relaxed);
                    if nth >= n_files {
                        break;
                    }
                    let result = match nth.checked_sub(1) {
                        None => resident_file(source, dir),
                        Some(layer) => layer_file(source, layer as u32, dir),
                    };
                    has_failed.fetch_or(result.is_err(), Ordering::Relaxed);
                    // A thread that panicked ends the scope with its panic.
                    if let Ok(mut results) = results.lock() {
                        results.push((nth, result));
                    }
                }
            });
        }
    });
    let mut results = results
        .into_inner()
        .map_err(|_| anyhow!("a thread panicked"))?;
    results.sort_by_key(|(nth, _)| *nth);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The index of `model_weights.bin` for `tensors` in this order, back to back.
pub fn resident_index(tensors: &[Tensor]) -> anyhow::Result<ResidentIndex> {
    let start = ResidentIndex::size_for(tensors.iter().map(|tensor| tensor.name.as_str()))?;
    let mut offset = start;
    let mut next = |size| {
        let extent = Extent { offset, size };
        offset += size;
        extent
    };
    let entries = tensors
        .iter()
        .map(|tensor| {
            let values = next(tensor.bytes(Part::Values));
            let (n_out, n_in) = (tensor.n_out as u32, tensor.n_in as u32);
            let is_quantized = tensor.is_quantized();
            ResidentEntry {
                name: tensor.name.clone(),
                dtype: if is_quantized {
                    Dtype::U32
                } else {
                    Dtype::BF16
                },
                offset: values.offset,
                size: values.size,
                shape: if is_quantized {
                    vec![n_out, n_in]
                } else {
                    vec![n_in]
                },
                scales: is_quantized.then(|| next(tensor.bytes(Part::Scales))),
                biases: is_quantized.then(|| next(tensor.bytes(Part::Biases))),
            }
        })
        .collect();
    Ok(ResidentIndex {
        entries,
        payload_size: offset - start,
    })
}

fn resident_file(source: &Source, dir: &Path) -> anyhow::Result<Written> {
    let tensors = source.resident();
    let index = resident_index(&tensors)?;
    let mut output = Output::create(dir, paths::WEIGHTS.to_owned(), BUFFER_BYTES)?;
    for bytes in index.encode().chunks(SPARE_BYTES) {
        output.row(bytes.len())?.copy_from_slice(bytes);
    }
    for tensor in &tensors {
        output.tensor(source, tensor)?;
    }
    output.finish(Vec::new())
}

fn layer_file(source: &Source, layer: u32, dir: &Path) -> anyhow::Result<Written> {
    let stride = expert_stride(source) as usize;
    let path = paths::in_experts_dir(&paths::layer_file(layer));
    let mut output = Output::create(dir, path, stride)?;
    let mut sums = Vec::new();
    for expert in 0..source.arch.num_experts {
        for tensor in &source.expert(layer, expert) {
            output.tensor(source, tensor)?;
        }
        output.buffer[output.filled..stride].fill(0);
        output.filled = stride;
        sums.push(xxh3_64(&output.buffer[..stride]));
        output.flush()?;
    }
    output.finish(sums)
}

/// A file under way. Rows collect in the buffer; a full one is hashed and written.
struct Output {
    path: String,
    file: StreamWriter,
    /// `block` bytes that are written at once, and room for what the last row has beyond them.
    buffer: AlignedBuf,
    block: usize,
    filled: usize,
    sha256: Sha256,
    size: u64,
}

impl Output {
    fn create(dir: &Path, path: String, block: usize) -> anyhow::Result<Output> {
        Ok(Output {
            file: StreamWriter::create(&dir.join(&path))?,
            path,
            buffer: AlignedBuf::new(block + SPARE_BYTES)?,
            block,
            filled: 0,
            sha256: Sha256::new(),
            size: 0,
        })
    }

    fn tensor(&mut self, source: &Source, tensor: &Tensor) -> anyhow::Result<()> {
        let rows = Rows::new(source, tensor);
        for part in PARTS {
            let bytes = tensor.row_bytes(part);
            if bytes > 0 {
                for row in 0..tensor.n_out {
                    rows.fill(part, row, self.row(bytes)?);
                }
            }
        }
        Ok(())
    }

    /// The next `len` bytes of the file, to be filled; at most [`SPARE_BYTES`].
    fn row(&mut self, len: usize) -> anyhow::Result<&mut [u8]> {
        if self.filled >= self.block {
            self.flush()?;
        }
        let start = self.filled;
        self.filled += len;
        Ok(&mut self.buffer[start..start + len])
    }

    /// Writes a full block and keeps what is beyond it.
    fn flush(&mut self) -> anyhow::Result<()> {
        let block = &self.buffer[..self.block];
        self.sha256.update(block);
        self.file.write_block(block)?;
        self.size += block.len() as u64;
        self.buffer.copy_within(self.block..self.filled, 0);
        self.filled -= self.block;
        Ok(())
    }

    fn finish(mut self, sums: Vec<u64>) -> anyhow::Result<Written> {
        if self.filled >= self.block {
            self.flush()?;
        }
        let rest = &self.buffer[..self.filled];
        self.sha256.update(rest);
        self.file.finish(rest)?;
        Ok(Written {
            path: self.path,
            record: FileRecord {
                size: self.size + rest.len() as u64,
                sha256: Sha256Hex::from_bytes(self.sha256.finish()),
            },
            sums,
        })
    }
}
