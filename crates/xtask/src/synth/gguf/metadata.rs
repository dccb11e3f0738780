//! The key-value pairs of a GGUF file: the model's shape, which is ours, and its tokenizer, copied from a file that has one.

use anyhow::{Context, bail, ensure};
use ouzel_format::Arch;

const MAGIC: &[u8] = b"GGUF";
const VERSION: u32 = 3;

/// Codes of the types of values.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Encoded pairs.
#[derive(Default)]
pub struct Metadata {
    bytes: Vec<u8>,
    n: u64,
}

impl Metadata {
    /// The shape of `arch` under the names that llama.cpp has for this architecture.
    pub fn of_model(arch: &Arch, name: &str) -> Metadata {
        let mut all = Metadata::default();
        all.text("general.architecture", "gemma4");
        all.text("general.type", "model");
        all.text("general.name", name);
        // Mostly Q4_1.
        all.u32("general.file_type", 3);
        all.u32("general.quantization_version", 2);
        for (key, value) in [
            ("block_count", arch.num_layers),
            ("context_length", 262_144),
            ("embedding_length", arch.hidden_size),
            ("feed_forward_length", arch.ffn_intermediate),
            ("attention.head_count", arch.num_heads),
            ("expert_count", arch.num_experts),
            ("expert_used_count", arch.top_k_experts),
            ("expert_feed_forward_length", arch.moe_intermediate),
            ("attention.key_length", arch.full_head_dim),
            ("attention.value_length", arch.full_head_dim),
            ("attention.key_length_swa", arch.head_dim),
            ("attention.value_length_swa", arch.head_dim),
            ("attention.sliding_window", arch.sliding_window),
            ("attention.shared_kv_layers", 0),
            ("embedding_length_per_layer_input", 0),
            ("rope.dimension_count", arch.full_head_dim),
            ("rope.dimension_count_swa", arch.head_dim),
        ] {
            all.u32(&format!("gemma4.{key}"), value);
        }
        for (key, value) in [
            ("rope.freq_base", arch.full_rope_theta as f32),
            ("rope.freq_base_swa", arch.rope_theta as f32),
            ("attention.layer_norm_rms_epsilon", 1e-6),
            ("final_logit_softcapping", arch.final_logit_softcap as f32),
        ] {
            all.pair(&format!("gemma4.{key}"), F32, &value.to_le_bytes());
        }
        let mask = arch.full_attention_layer_mask.iter();
        let kv_heads = mask.clone().map(|&is_full| match is_full {
            true => arch.num_full_kv_heads,
            false => arch.num_kv_heads,
        });
        let kv_heads: Vec<u8> = kv_heads.flat_map(u32::to_le_bytes).collect();
        all.array(
            "gemma4.attention.head_count_kv",
            I32,
            arch.num_layers,
            &kv_heads,
        );
        let sliding: Vec<u8> = mask.map(|&is_full| u8::from(!is_full)).collect();
        all.array(
            "gemma4.attention.sliding_window_pattern",
            BOOL,
            arch.num_layers,
            &sliding,
        );
        all
    }

    /// Adds the tokenizer of the GGUF file `vocab`, which must have `vocab_size` tokens.
    ///
    /// # Errors
    /// Where `vocab` is no such file.
    pub fn add_tokenizer(&mut self, vocab: &[u8], vocab_size: u32) -> anyhow::Result<()> {
        let mut reader = Reader { rest: vocab };
        ensure!(reader.take(4)? == MAGIC, "the vocabulary is no GGUF file");
        let version = reader.u32()?;
        ensure!(
            version == VERSION,
            "the vocabulary is of version {version}, not {VERSION}"
        );
        let (_n_tensors, n_pairs) = (reader.u64()?, reader.u64()?);
        let mut n_tokens = None;
        for _ in 0..n_pairs {
            let start = reader.rest;
            let key = reader.text()?;
            let kind = reader.u32()?;
            let value = reader.rest;
            reader.skip(kind)?;
            if !key.starts_with(b"tokenizer.") {
                continue;
            }
            if key == b"tokenizer.ggml.tokens" {
                let mut value = Reader { rest: value };
                n_tokens = Some((value.u32()?, value.u64()?).1);
            }
            self.bytes
                .extend_from_slice(&start[..start.len() - reader.rest.len()]);
            self.n += 1;
        }
        let n_tokens = n_tokens.context("the vocabulary has no tokens")?;
        ensure!(
            n_tokens == u64::from(vocab_size),
            "the vocabulary has {n_tokens} tokens, and the model {vocab_size}"
        );
        Ok(())
    }

    /// The head of a file of this metadata and `n_tensors` tensors, as far as the list of tensors.
    pub fn encode(&self, n_tensors: usize) -> Vec<u8> {
        let mut head = MAGIC.to_vec();
        head.extend_from_slice(&VERSION.to_le_bytes());
        head.extend_from_slice(&(n_tensors as u64).to_le_bytes());
        head.extend_from_slice(&self.n.to_le_bytes());
        head.extend_from_slice(&self.bytes);
        head
    }

    fn text(&mut self, key: &str, value: &str) {
        let mut bytes = Vec::new();
        push_text(&mut bytes, value);
        self.pair(key, STRING, &bytes);
    }

    fn u32(&mut self, key: &str, value: u32) {
        self.pair(key, U32, &value.to_le_bytes());
    }

    fn array(&mut self, key: &str, kind: u32, n: u32, elements: &[u8]) {
        let mut bytes = kind.to_le_bytes().to_vec();
        bytes.extend_from_slice(&u64::from(n).to_le_bytes());
        bytes.extend_from_slice(elements);
        self.pair(key, ARRAY, &bytes);
    }

    fn pair(&mut self, key: &str, kind: u32, value: &[u8]) {
        push_text(&mut self.bytes, key);
        self.bytes.extend_from_slice(&kind.to_le_bytes());
        self.bytes.extend_from_slice(value);
        self.n += 1;
    }
}

/// Appends a text as GGUF has it: its length, then its bytes.
pub fn push_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u64).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Reads what it is asked for or says that the file is too short.
struct Reader<'b> {
    rest: &'b [u8],
}

impl<'b> Reader<'b> {
    fn take(&mut self, n: u64) -> anyhow::Result<&'b [u8]> {
        let n = usize::try_from(n).ok().filter(|&n| n <= self.rest.len());
        let (taken, rest) = self
            .rest
            .split_at(n.context("the vocabulary is cut short")?);
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> anyhow::Result<u32> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes(std::array::from_fn(|i| bytes[i])))
    }

    fn u64(&mut self) -> anyhow::Result<u64> {
        let bytes = self.take(8)?;
        Ok(u64::from_le_bytes(std::array::from_fn(|i| bytes[i])))
    }

    fn text(&mut self) -> anyhow::Result<&'b [u8]> {
        let len = self.u64()?;
        self.take(len)
    }

    /// Passes a value of type `kind`.
    fn skip(&mut self, kind: u32) -> anyhow::Result<()> {
        match kind {
            STRING => drop(self.text()?),
            ARRAY => {
                let (kind, n) = (self.u32()?, self.u64()?);
                if kind == STRING {
                    for _ in 0..n {
                        self.text()?;
                    }
                } else {
                    let bytes = n.checked_mul(size_of_kind(kind)?);
                    self.take(bytes.context("the vocabulary is cut short")?)?;
                }
            }
            _ => drop(self.take(size_of_kind(kind)?)?),
        }
        Ok(())
    }
}

fn size_of_kind(kind: u32) -> anyhow::Result<u64> {
    Ok(match kind {
        0 | 1 | BOOL => 1,
        2 | 3 => 2,
        U32 | I32 | F32 => 4,
        10..=12 => 8,
        _ => bail!("the vocabulary has a value of the unknown type {kind}"),
    })
}
