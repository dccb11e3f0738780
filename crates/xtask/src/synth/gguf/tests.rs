//! A GGUF file against the `.gturbo` directory of the same model, both read back by code that did not write them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use half::{bf16, f16};
use ouzel_format::{ResidentIndex, paths};

use super::*;
use crate::synth::preset::{self, Skew};
use crate::synth::tests::{make_tiny, temp};

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A vocabulary of `n_tokens`, among pairs that are not copied.
fn vocabulary(n_tokens: u64) -> Vec<u8> {
    let mut file = b"GGUF".to_vec();
    file.extend(3u32.to_le_bytes());
    file.extend(0u64.to_le_bytes());
    file.extend(4u64.to_le_bytes());
    text(&mut file, "general.architecture");
    file.extend(8u32.to_le_bytes());
    text(&mut file, "someone else's");
    text(&mut file, "tokenizer.ggml.tokens");
    file.extend([9u32, 8].map(u32::to_le_bytes).concat());
    file.extend(n_tokens.to_le_bytes());
    (0..n_tokens).for_each(|id| text(&mut file, &format!("token {id}")));
    text(&mut file, "gemma4.head_counts");
    file.extend([9u32, 5].map(u32::to_le_bytes).concat());
    file.extend(3u64.to_le_bytes());
    file.extend([1u32, 2, 3].map(u32::to_le_bytes).concat());
    text(&mut file, "tokenizer.ggml.add_bos_token");
    file.extend(7u32.to_le_bytes());
    file.push(1);
    file
}

/// Takes bytes off the front.
struct Cursor<'b>(&'b [u8]);

impl<'b> Cursor<'b> {
    fn take(&mut self, n: usize) -> &'b [u8] {
        let (taken, rest) = self.0.split_at(n);
        self.0 = rest;
        taken
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take(4).try_into().expect("four"))
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take(8).try_into().expect("eight"))
    }

    fn text(&mut self) -> &'b str {
        let n = self.u64() as usize;
        std::str::from_utf8(self.take(n)).expect("UTF-8")
    }

    fn value(&mut self, kind: u32) {
        match kind {
            7 => self.0 = &self.0[1..],
            4..=6 => self.0 = &self.0[4..],
            8 => drop(self.text()),
            9 => {
                let (kind, n) = (self.u32(), self.u64());
                (0..n).for_each(|_| self.value(kind));
            }
            _ => panic!("a value of type {kind}"),
        }
    }
}

/// Shape, type and bytes of every tensor, and the keys.
struct File {
    keys: Vec<String>,
    tensors: BTreeMap<String, (Vec<u64>, u32, Vec<u8>)>,
}

fn read(path: &Path) -> File {
    let bytes = fs::read(path).expect("the file");
    let mut head = Cursor(&bytes);
    assert_eq!(head.take(4), b"GGUF");
    assert_eq!(head.u32(), 3);
    let (n_tensors, n_pairs) = (head.u64(), head.u64());
    let pair = |_| {
        let key = head.text().to_owned();
        let kind = head.u32();
        head.value(kind);
        key
    };
    let keys = (0..n_pairs).map(pair).collect();
    let mut list = Vec::new();
    for _ in 0..n_tensors {
        let name = head.text().to_owned();
        let n = head.u32();
        let shape: Vec<u64> = (0..n).map(|_| head.u64()).collect();
        list.push((name, shape, head.u32(), head.u64() as usize));
    }
    let start = (bytes.len() - head.0.len()).next_multiple_of(32);
    let mut end = start;
    let tensors = list.into_iter().map(|(name, shape, kind, offset)| {
        assert_eq!(start + offset, end, "{name} follows the one before");
        let n: u64 = shape.iter().product();
        let size = if kind == 0 { 4 * n } else { n / 32 * 20 } as usize;
        let content = bytes[end..end + size].to_vec();
        end += size.next_multiple_of(32);
        (name, (shape, kind, content))
    });
    let tensors = tensors.collect();
    assert_eq!(end, bytes.len());
    File { keys, tensors }
}

/// The values of Q4_1 blocks or floats.
fn dequantized(kind: u32, bytes: &[u8]) -> Vec<f32> {
    if kind == 0 {
        let floats = bytes.chunks_exact(4);
        return floats
            .map(|b| f32::from_le_bytes(b.try_into().expect("four")))
            .collect();
    }
    let mut all = Vec::new();
    for block in bytes.chunks_exact(20) {
        let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
        let (d, m) = (half(0), half(2));
        all.extend(block[4..].iter().map(|byte| d * f32::from(byte & 15) + m));
        all.extend(block[4..].iter().map(|byte| d * f32::from(byte >> 4) + m));
    }
    all
}

/// The values of MLX's packing: little endian, low bits first, groups of 64.
fn unpacked(packed: &[u8], scales: &[u8], biases: &[u8], n: usize) -> Vec<f32> {
    let bits = 8 * packed.len() / n;
    let float =
        |bytes: &[u8], i: usize| bf16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]).to_f32();
    (0..n)
        .map(|i| {
            let q = match bits {
                4 => packed[i / 2] >> (4 * (i % 2)) & 15,
                _ => packed[i],
            };
            float(scales, i / 64) * f32::from(q) + float(biases, i / 64)
        })
        .collect()
}

/// The values of a resident tensor of the directory.
fn resident(dir: &Path, name: &str) -> Vec<f32> {
    let bytes = fs::read(dir.join(paths::WEIGHTS)).expect("the weights");
    let index = ResidentIndex::parse(&bytes).expect("their index");
    let entry = index.entries.iter().find(|entry| entry.name == name);
    let entry = entry.unwrap_or_else(|| panic!("no {name}"));
    let range = |offset: u64, size: u64| &bytes[offset as usize..(offset + size) as usize];
    let n = entry.shape.iter().product::<u32>() as usize;
    let values = range(entry.offset, entry.size);
    match (entry.scales, entry.biases) {
        (Some(s), Some(b)) => unpacked(values, range(s.offset, s.size), range(b.offset, b.size), n),
        _ => values
            .chunks_exact(2)
            .map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect(),
    }
}

/// Gate, up and down of an expert of the directory, by the sizes of the tiny preset.
fn expert(dir: &Path, layer: u32, expert: usize) -> [Vec<f32>; 3] {
    const N: usize = 128 * 64;
    let file = dir.join(paths::in_experts_dir(&paths::layer_file(layer)));
    let bytes = fs::read(file).expect("a layer");
    let blob = &bytes[expert * 16_384..];
    [0, 1, 2].map(|nth| {
        let (packed, groups) = (N / 2, N / 64 * 2);
        let blob = &blob[nth * (packed + 2 * groups)..];
        let (scales, biases) = (&blob[packed..], &blob[packed + groups..]);
        unpacked(&blob[..packed], scales, biases, N)
    })
}

/// A tiny model both ways: its folder, the directory, the file.
fn both() -> (tempfile::TempDir, PathBuf, File) {
    let dir = temp();
    let vocab = dir.path().join("vocab.gguf");
    fs::write(&vocab, vocabulary(2048)).expect("a vocabulary");
    let (directory, file) = (dir.path().join("tiny.gturbo"), dir.path().join("tiny.gguf"));
    make_tiny(&directory, Some((&file, &vocab))).expect("both");
    let file = read(&file);
    (dir, directory, file)
}

#[test]
fn every_value_is_that_of_the_directory() {
    let (_dir, directory, file) = both();
    let of_file = |name: &str| {
        let (_, kind, bytes) = &file.tensors[name];
        dequantized(*kind, bytes)
    };
    for l in [0, 5] {
        for (ours, theirs) in LAYER {
            let theirs = format!("blk.{l}.{theirs}");
            if l == 5 && ours == names::V_PROJ {
                assert!(!file.tensors.contains_key(&theirs));
                continue;
            }
            assert_eq!(
                of_file(&theirs),
                resident(&directory, &names::layer(l, ours)),
                "{theirs}"
            );
        }
        let gate_up = of_file(&format!("blk.{l}.ffn_gate_up_exps.weight"));
        let down = of_file(&format!("blk.{l}.ffn_down_exps.weight"));
        for nth in [0, 1, 15] {
            let [gate, up, last] = expert(&directory, l, nth);
            let n = gate.len();
            assert_eq!(gate_up[2 * nth * n..][..n], gate, "gate {nth}");
            assert_eq!(gate_up[(2 * nth + 1) * n..][..n], up, "up {nth}");
            assert_eq!(down[nth * n..][..n], last, "down {nth}");
        }
    }
    assert_eq!(
        of_file("token_embd.weight"),
        resident(&directory, names::EMBED_TOKENS)
    );
    assert_eq!(
        of_file("output_norm.weight"),
        resident(&directory, names::FINAL_NORM)
    );
}

#[test]
fn shapes_and_keys_are_those_of_the_architecture() {
    let (_dir, _directory, file) = both();
    let shape = |name: &str| file.tensors[name].0.clone();
    assert_eq!(shape("token_embd.weight"), [128, 2048]);
    assert_eq!(shape("blk.0.attn_output.weight"), [128, 128]);
    assert_eq!(shape("blk.5.attn_q.weight"), [128, 256]);
    assert_eq!(shape("blk.5.attn_q_norm.weight"), [64]);
    assert_eq!(shape("blk.3.ffn_gate_up_exps.weight"), [128, 128, 16]);
    assert_eq!(shape("blk.3.ffn_down_exps.weight"), [64, 128, 16]);
    // Six layers, the last of them without a value projection.
    assert_eq!(file.tensors.len(), 3 + 6 * (LAYER.len() + 2) - 1);
    let factors = dequantized(0, &file.tensors["rope_freqs.weight"].2);
    assert_eq!(factors.len(), 32);
    assert!(factors[..8].iter().all(|&x| x == 1.0) && factors[8..].iter().all(|&x| x == STILL));
    for key in [
        "gemma4.expert_used_count",
        "gemma4.attention.head_count_kv",
        "tokenizer.ggml.tokens",
    ] {
        assert!(file.keys.iter().any(|k| k == key), "{key}");
    }
    assert_eq!(
        file.keys
            .iter()
            .filter(|key| *key == "general.architecture")
            .count(),
        1
    );
    assert!(!file.keys.iter().any(|key| key == "gemma4.head_counts"));
}

#[test]
fn a_vocabulary_must_fit() {
    let source = Source::new(preset::arch("tiny").expect("tiny"), Skew::Hard, 1);
    let dir = temp();
    let path = dir.path().join("vocab.gguf");
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).expect("a vocabulary");
        match Plan::new(&source, "x", &path) {
            Ok(_) => panic!("accepted"),
            Err(error) => format!("{error:#}"),
        }
    };
    let good = vocabulary(2048);
    let error = refused(&vocabulary(2047));
    assert!(
        error.contains("has 2047 tokens, and the model 2048"),
        "{error}"
    );
    for n in [0, 3, 4, 8, 23, 24, 40, 200, good.len() - 1] {
        refused(&good[..n]);
    }
    refused(&[b"GGML", &good[4..]].concat());
    refused(&[&good[..4], &[2], &good[5..]].concat());
}
