//! Writes the weights of a model: whole files side by side, each made, hashed and written by one thread through one small buffer.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use anyhow::anyhow;
use ouzel_format::Dtype;
use ouzel_format::{ALIGNMENT, Extent, FileRecord, ResidentEntry, ResidentIndex, Sha256Hex, paths};
use ouzel_storage::{Disk, OsDisk, Sha256, WriteFile, xxh3_64};

use super::rows::Rows;
use super::tensors::{Part, Source, Tensor};

/// Each has a core of the machines that this is made for.
const N_THREADS: usize = 2;
/// Bytes of a write of the resident weights.
const BUFFER_BYTES: usize = 1 << 20;

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
    for bytes in index.encode().chunks(BUFFER_BYTES) {
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
        let padding = stride - output.filled;
        output.row(padding)?.fill(0);
        sums.push(xxh3_64(&output.buffer));
        output.flush()?;
    }
    output.finish(sums)
}

/// A file under way. Rows collect in the buffer; a full one is hashed and written.
struct Output<'d> {
    path: String,
    file: Box<dyn WriteFile + 'd>,
    buffer: Vec<u8>,
    filled: usize,
    sha256: Sha256,
    size: u64,
}

impl Output<'_> {
    fn create(dir: &Path, path: String, buffer_bytes: usize) -> anyhow::Result<Output<'static>> {
        Ok(Output {
            file: (&OsDisk as &'static OsDisk).create(&dir.join(&path))?,
            path,
            buffer: vec![0; buffer_bytes],
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

    /// The next `len` bytes of the file, to be filled; no more than the buffer has.
    fn row(&mut self, len: usize) -> anyhow::Result<&mut [u8]> {
        if self.filled + len > self.buffer.len() {
            self.flush()?;
        }
        let start = self.filled;
        self.filled += len;
        Ok(&mut self.buffer[start..start + len])
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        let bytes = &self.buffer[..self.filled];
        self.sha256.update(bytes);
        self.file.write_all(bytes)?;
        self.size += bytes.len() as u64;
        self.filled = 0;
        Ok(())
    }

    fn finish(mut self, sums: Vec<u64>) -> anyhow::Result<Written> {
        self.flush()?;
        self.file.sync()?;
        Ok(Written {
            path: self.path,
            record: FileRecord {
                size: self.size,
                sha256: Sha256Hex::from_bytes(self.sha256.finish()),
            },
            sums,
        })
    }
}
