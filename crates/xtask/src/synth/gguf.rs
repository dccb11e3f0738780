//! The same model for llama.cpp: a GGUF file with the tensors that its converter writes for this architecture.
//!
//! Every value is that of the `.gturbo` directory, so that both engines choose the same experts for the same tokens, up to their own
//! rounding of activations. Two threads make pieces, which are written in order.

mod metadata;
#[cfg(test)]
mod tests;
mod values;

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use anyhow::{Context, anyhow};
use ouzel_format::{Arch, names};
use ouzel_storage::{AlignedBuf, StreamWriter};

use super::rows::Rows;
use super::tensors::{Fill, Source, Tensor};
use metadata::{Metadata, push_text};
use values::{Converter, Type};

/// Tensors start at multiples of this.
const ALIGNMENT: u64 = 32;
const N_THREADS: usize = 2;
/// Bytes of a write, and of a piece at most.
const BLOCK_BYTES: usize = 4 << 20;
/// A frequency divided by this does not turn.
const STILL: f32 = 1e30;

/// A tensor of the file.
struct Entry {
    name: String,
    /// Innermost first, as GGUF has it.
    shape: Vec<usize>,
    kind: Type,
    content: Content,
}

/// What a tensor is made of.
enum Content {
    /// Ours, one after the other.
    Tensors(Vec<Tensor>),
    /// These values.
    Floats(Vec<f32>),
}

/// The tensors of a layer, ours and theirs, in the order of their converter; the experts follow.
const LAYER: [(&str, &str); 20] = [
    (names::INPUT_NORM, "attn_norm.weight"),
    (names::Q_PROJ, "attn_q.weight"),
    (names::K_PROJ, "attn_k.weight"),
    (names::V_PROJ, "attn_v.weight"),
    (names::O_PROJ, "attn_output.weight"),
    (names::Q_NORM, "attn_q_norm.weight"),
    (names::K_NORM, "attn_k_norm.weight"),
    (names::POST_ATTENTION_NORM, "post_attention_norm.weight"),
    (names::LAYER_SCALAR, "layer_output_scale.weight"),
    (names::PRE_FEEDFORWARD_NORM, "ffn_norm.weight"),
    (names::GATE_PROJ, "ffn_gate.weight"),
    (names::UP_PROJ, "ffn_up.weight"),
    (names::DOWN_PROJ, "ffn_down.weight"),
    (names::POST_FEEDFORWARD_NORM, "post_ffw_norm.weight"),
    (names::ROUTER_PROJ, "ffn_gate_inp.weight"),
    (names::ROUTER_SCALE, "ffn_gate_inp.scale"),
    (names::PRE_FEEDFORWARD_NORM_2, "pre_ffw_norm_2.weight"),
    (names::POST_FEEDFORWARD_NORM_1, "post_ffw_norm_1.weight"),
    (names::POST_FEEDFORWARD_NORM_2, "post_ffw_norm_2.weight"),
    (names::ROUTER_PER_EXPERT_SCALE, "ffn_down_exps.scale"),
];

/// A file, planned.
pub struct Plan {
    head: Vec<u8>,
    entries: Vec<Entry>,
}

impl Plan {
    /// The file of the model of `source`, called `name`, with the tokenizer of the GGUF file at `vocab`.
    ///
    /// # Errors
    /// Where `vocab` is not such a file, or has another number of tokens.
    pub fn new(source: &Source, name: &str, vocab: &Path) -> anyhow::Result<Plan> {
        let mut metadata = Metadata::of_model(&source.arch, name);
        let bytes = std::fs::read(vocab).with_context(|| vocab.display().to_string())?;
        metadata
            .add_tokenizer(&bytes, source.arch.vocab_size)
            .with_context(|| vocab.display().to_string())?;
        let entries = entries(source);
        let mut head = metadata.encode(entries.len());
        let mut offset = 0;
        for entry in &entries {
            push_text(&mut head, &entry.name);
            head.extend_from_slice(&(entry.shape.len() as u32).to_le_bytes());
            for &n in &entry.shape {
                head.extend_from_slice(&(n as u64).to_le_bytes());
            }
            head.extend_from_slice(&entry.kind.code().to_le_bytes());
            head.extend_from_slice(&u64::to_le_bytes(offset));
            offset += entry.bytes().next_multiple_of(ALIGNMENT);
        }
        head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
        Ok(Plan { head, entries })
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        let padded = |entry: &Entry| entry.bytes().next_multiple_of(ALIGNMENT);
        self.head.len() as u64 + self.entries.iter().map(padded).sum::<u64>()
    }
}

impl Entry {
    fn bytes(&self) -> u64 {
        let n_in = self.shape[0];
        let n_rows: usize = self.shape[1..].iter().product();
        (n_rows * self.kind.row_bytes(n_in)) as u64
    }

    fn of(name: String, tensor: Tensor) -> Entry {
        let shape = match tensor.fill {
            Fill::Vector(..) => vec![tensor.n_in],
            _ => vec![tensor.n_in, tensor.n_out],
        };
        Entry {
            name,
            shape,
            kind: Type::of(tensor.fill),
            content: Content::Tensors(vec![tensor]),
        }
    }
}

/// Every tensor of the file, in order.
fn entries(source: &Source) -> Vec<Entry> {
    let arch = &source.arch;
    let mut all = vec![rope_factors(arch)];
    let mut resident = source.resident();
    let (last, rest) = (resident.pop(), resident.drain(..1).next());
    all.extend(rest.map(|tensor| Entry::of("token_embd.weight".to_owned(), tensor)));
    all.extend(last.map(|tensor| Entry::of("output_norm.weight".to_owned(), tensor)));
    for l in 0..arch.num_layers {
        let tensors = source.layer(l);
        for (ours, theirs) in LAYER {
            let ours = names::layer(l, ours);
            let tensor = tensors.iter().find(|tensor| tensor.name == ours);
            all.extend(tensor.map(|tensor| Entry::of(format!("blk.{l}.{theirs}"), tensor.clone())));
        }
        all.extend(experts(source, l));
    }
    all
}

/// The experts of a layer in two tensors: gate and up together, expert by expert, and down.
fn experts(source: &Source, l: u32) -> [Entry; 2] {
    let arch = &source.arch;
    let (mut gate_up, mut down) = (Vec::new(), Vec::new());
    for expert in 0..arch.num_experts {
        let [gate, up, last] = source.expert(l, expert);
        gate_up.extend([gate, up]);
        down.push(last);
    }
    let (hidden, inner) = (arch.hidden_size as usize, arch.moe_intermediate as usize);
    let entry = |name, n_in, n_out, tensors| Entry {
        name: format!("blk.{l}.{name}.weight"),
        shape: vec![n_in, n_out, arch.num_experts as usize],
        kind: Type::Q4_1,
        content: Content::Tensors(tensors),
    };
    [
        entry("ffn_gate_up_exps", hidden, 2 * inner, gate_up),
        entry("ffn_down_exps", inner, hidden, down),
    ]
}

/// What the frequencies of full layers are divided by: those beyond the rotating share stand still.
fn rope_factors(arch: &Arch) -> Entry {
    let n = arch.full_head_dim as usize / 2;
    let n_rotated = (arch.partial_rotary_factor * n as f64) as usize;
    let mut factors = vec![1.0; n_rotated];
    factors.resize(n, STILL);
    Entry {
        name: "rope_freqs.weight".to_owned(),
        shape: vec![n],
        kind: Type::F32,
        content: Content::Floats(factors),
    }
}

/// Some bytes of the file.
enum Piece<'p> {
    Bytes(Vec<u8>),
    Rows(&'p Tensor, std::ops::Range<usize>),
}

impl Plan {
    /// Writes the file to `path`.
    pub fn write(&self, source: &Source, path: &Path) -> anyhow::Result<()> {
        let pieces = self.pieces();
        let mut output = Output {
            file: StreamWriter::create(path)?,
            buffer: AlignedBuf::new(BLOCK_BYTES)?,
            filled: 0,
        };
        std::thread::scope(|scope| {
            let receivers: Vec<Receiver<Vec<u8>>> = (0..N_THREADS)
                .map(|nth| {
                    // A piece made and a piece waiting, in each thread.
                    let (sender, receiver) = sync_channel(1);
                    let mine = pieces.iter().skip(nth).step_by(N_THREADS);
                    scope.spawn(move || send(source, mine, &sender));
                    receiver
                })
                .collect();
            for nth in 0..pieces.len() {
                let piece = receivers[nth % N_THREADS].recv();
                output.append(&piece.map_err(|_| anyhow!("a thread stopped"))?)?;
            }
            output.finish()
        })
    }

    fn pieces(&self) -> Vec<Piece<'_>> {
        let mut pieces = vec![Piece::Bytes(self.head.clone())];
        for entry in &self.entries {
            match &entry.content {
                Content::Floats(floats) => {
                    let bytes = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
                    pieces.push(Piece::Bytes(bytes));
                }
                Content::Tensors(tensors) => {
                    let n_rows = BLOCK_BYTES / entry.kind.row_bytes(entry.shape[0]);
                    for tensor in tensors {
                        for start in (0..tensor.n_out).step_by(n_rows) {
                            let end = tensor.n_out.min(start + n_rows);
                            pieces.push(Piece::Rows(tensor, start..end));
                        }
                    }
                }
            }
            let bytes = entry.bytes();
            let padding = bytes.next_multiple_of(ALIGNMENT) - bytes;
            if padding > 0 {
                pieces.push(Piece::Bytes(vec![0; padding as usize]));
            }
        }
        pieces
    }
}

/// Makes pieces until nobody wants them any more.
fn send<'p>(
    source: &Source,
    pieces: impl Iterator<Item = &'p Piece<'p>>,
    sender: &SyncSender<Vec<u8>>,
) {
    for piece in pieces {
        let bytes = match piece {
            Piece::Bytes(bytes) => bytes.clone(),
            Piece::Rows(tensor, range) => convert(source, tensor, range.clone()),
        };
        if sender.send(bytes).is_err() {
            return;
        }
    }
}

fn convert(source: &Source, tensor: &Tensor, range: std::ops::Range<usize>) -> Vec<u8> {
    let rows = Rows::new(source, tensor);
    let mut converter = Converter::new(tensor);
    let row_bytes = Type::of(tensor.fill).row_bytes(tensor.n_in);
    let mut bytes = vec![0; range.len() * row_bytes];
    for (row, out) in range.zip(bytes.chunks_exact_mut(row_bytes)) {
        converter.fill(&rows, row, out);
    }
    bytes
}

/// A file under way; whole blocks leave the buffer.
struct Output {
    file: StreamWriter,
    buffer: AlignedBuf,
    filled: usize,
}

impl Output {
    fn append(&mut self, mut bytes: &[u8]) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(BLOCK_BYTES - self.filled);
            let (now, later) = bytes.split_at(n);
            self.buffer[self.filled..self.filled + n].copy_from_slice(now);
            self.filled += n;
            if self.filled == BLOCK_BYTES {
                self.file.write_block(&self.buffer[..BLOCK_BYTES])?;
                self.filled = 0;
            }
            bytes = later;
        }
        Ok(())
    }

    fn finish(self) -> anyhow::Result<()> {
        Ok(self.file.finish(&self.buffer[..self.filled])?)
    }
}
