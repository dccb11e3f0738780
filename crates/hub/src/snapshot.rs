//! A checkpoint with the topology of the real one and random weights, as small or as large as a test needs it.
//!
//! Every matrix is as wide as the model, four heads of a quarter of it each, so one number scales it. It has a tower of another
//! modality, which nobody may transfer, and, with `with_text`, the tokenizer of the demo model.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use ouzel_format::safetensors::{TensorDtype, encode_header};
use ouzel_format::{ExpertPart, names};
use serde_json::{Map, Value, json};

const CONFIG: &str = include_str!("../../../testdata/tiny-a/mlx/config.json");
/// Files that make ids out of text.
const TEXT_FILES: [&str; 4] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
];
const N_SHARDS: usize = 3;
/// The tower that is passed over, in bytes.
pub const TOWER_BYTES: u64 = 2 * 300_000;

/// How large.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Layers; every sixth has full attention.
    pub n_layers: u64,
    /// Experts of each.
    pub n_experts: u64,
    /// Of the residual stream, a multiple of 64.
    pub hidden: u64,
    /// Of an expert, a multiple of 64.
    pub expert: u64,
    /// Tokens.
    pub vocab: u64,
    /// Whether a tokenizer goes along, which has 8,192 tokens.
    pub with_text: bool,
}

impl Shape {
    /// The layers and experts of Gemma 4 26B-A4B at the smallest width, with text: 65 MB installed.
    pub const FULL_TOPOLOGY: Shape = Shape {
        n_layers: 30,
        n_experts: 128,
        hidden: 64,
        expert: 64,
        vocab: 8192,
        with_text: true,
    };
}

/// The tensors of a checkpoint in the order of its shards: names, types and shapes.
pub fn tensor_table(shape: &Shape) -> Vec<(String, TensorDtype, Vec<u64>)> {
    let tensors = tensors(shape).into_iter();
    tensors
        .map(|tensor| (tensor.name, tensor.dtype, tensor.shape))
        .collect()
}

/// Writes the checkpoint into a folder, which is made.
///
/// # Errors
/// Those of the disk.
pub fn write(dir: &Path, shape: &Shape, seed: u64) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    fs::write(dir.join("config.json"), config(shape).to_string())?;
    let tensors = tensors(shape);
    let mut weight_map = Map::new();
    let mut random = seed;
    let per_shard = tensors.len().div_ceil(N_SHARDS);
    for (i, tensors) in tensors.chunks(per_shard).enumerate() {
        let name = format!("model-{:05}-of-{N_SHARDS:05}.safetensors", i + 1);
        let header: Vec<_> = tensors
            .iter()
            .map(|tensor| (tensor.name.as_str(), tensor.dtype, tensor.shape.as_slice()))
            .collect();
        let mut file = BufWriter::new(File::create(dir.join(&name))?);
        file.write_all(&encode_header(&header))?;
        for tensor in tensors {
            tensor.write(&mut file, &mut random)?;
            weight_map.insert(tensor.name.clone(), Value::from(name.as_str()));
        }
        file.flush()?;
    }
    let index = json!({ "metadata": {}, "weight_map": weight_map });
    fs::write(dir.join("model.safetensors.index.json"), index.to_string())?;
    if shape.with_text {
        let demo = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../models/demo");
        for name in TEXT_FILES {
            fs::copy(demo.join(name), dir.join(name))?;
        }
    }
    Ok(())
}

struct Tensor {
    name: String,
    dtype: TensorDtype,
    shape: Vec<u64>,
    fill: Fill,
}

#[derive(Clone, Copy)]
enum Fill {
    Random,
    /// A BF16 value, again and again.
    Same(u16),
}

impl Tensor {
    fn write(&self, file: &mut impl Write, random: &mut u64) -> io::Result<()> {
        let n_bytes = self.dtype.size() * self.shape.iter().product::<u64>();
        let mut left = n_bytes as usize;
        let mut chunk = [0; 8192];
        while left > 0 {
            for eight in chunk.chunks_exact_mut(8) {
                let bytes = match self.fill {
                    Fill::Same(value) => (u64::from(value) * 0x0001_0001_0001_0001).to_le_bytes(),
                    Fill::Random => {
                        // Marsaglia's xorshift64: quick, and good enough for weights.
                        *random ^= *random << 13;
                        *random ^= *random >> 7;
                        *random ^= *random << 17;
                        random.to_le_bytes()
                    }
                };
                eight.copy_from_slice(&bytes);
            }
            let n = left.min(chunk.len());
            file.write_all(&chunk[..n])?;
            left -= n;
        }
        Ok(())
    }
}

/// Its `config.json`.
pub fn config(shape: &Shape) -> Value {
    let mut config: Value = serde_json::from_str(CONFIG).expect("a file of the repository");
    let mut quantization = json!({ "group_size": 64, "bits": 4, "mode": "affine" });
    for layer in 0..shape.n_layers {
        let name = names::layer(layer as u32, names::ROUTER_PROJ);
        quantization[names::stem(&name)] = json!({ "group_size": 64, "bits": 8 });
    }
    config["quantization"] = quantization.clone();
    config["quantization_config"] = quantization;
    config["vocab_size"] = json!(shape.vocab);
    let text = &mut config["text_config"];
    for (field, value) in [
        ("num_hidden_layers", shape.n_layers),
        ("num_experts", shape.n_experts),
        ("hidden_size", shape.hidden),
        ("intermediate_size", shape.hidden),
        ("moe_intermediate_size", shape.expert),
        ("head_dim", shape.hidden / 4),
        ("global_head_dim", shape.hidden / 4),
        ("num_key_value_heads", 4),
        ("num_global_key_value_heads", 4),
        ("vocab_size", shape.vocab),
        ("vocab_size_per_layer_input", shape.vocab),
    ] {
        text[field] = json!(value);
    }
    let kinds = (0..shape.n_layers).map(|layer| match is_full(layer) {
        true => "full_attention",
        false => "sliding_attention",
    });
    text["layer_types"] = kinds.collect();
    config
}

fn is_full(layer: u64) -> bool {
    layer % 6 == 5
}

/// One and a small step, in BF16.
const ONE: u16 = 0x3F80;
const STEP: u16 = 0x3C00;
/// Minus seven and a half steps: the codes 0 to 15 are then as often negative as positive.
const HALF_DOWN: u16 = 0xBD70;

fn tensors(shape: &Shape) -> Vec<Tensor> {
    let mut tensors = Vec::new();
    let mut matrix = |name: &str, lead: &[u64], (n_out, n_in): (u64, u64), bits: u64| {
        let shape = |last: u64| [lead, &[n_out, last]].concat();
        let (scales, biases) = names::companions(name).expect("a weight");
        let mut add = |name: String, dtype, last, fill| {
            tensors.push(Tensor {
                name,
                dtype,
                shape: shape(last),
                fill,
            });
        };
        add(
            name.to_owned(),
            TensorDtype::U32,
            n_in * bits / 32,
            Fill::Random,
        );
        add(scales, TensorDtype::BF16, n_in / 64, Fill::Same(STEP));
        add(biases, TensorDtype::BF16, n_in / 64, Fill::Same(HALF_DOWN));
    };
    let (hidden, expert) = (shape.hidden, shape.expert);
    matrix(names::EMBED_TOKENS, &[], (shape.vocab, hidden), 4);
    for layer in 0..shape.n_layers {
        let l = layer as u32;
        for name in [
            names::Q_PROJ,
            names::K_PROJ,
            names::V_PROJ,
            names::O_PROJ,
            names::GATE_PROJ,
            names::UP_PROJ,
            names::DOWN_PROJ,
        ] {
            if !(is_full(layer) && name == names::V_PROJ) {
                matrix(&names::layer(l, name), &[], (hidden, hidden), 4);
            }
        }
        let router = names::layer(l, names::ROUTER_PROJ);
        matrix(&router, &[], (shape.n_experts, hidden), 8);
        for (part, size) in [
            (ExpertPart::Gate, (expert, hidden)),
            (ExpertPart::Up, (expert, hidden)),
            (ExpertPart::Down, (hidden, expert)),
        ] {
            matrix(&names::expert(l, part), &[shape.n_experts], size, 4);
        }
    }
    vectors(shape, &mut tensors);
    tensors
}

fn vectors(shape: &Shape, tensors: &mut Vec<Tensor>) {
    let mut vector = |name: String, len| {
        tensors.push(Tensor {
            name,
            dtype: TensorDtype::BF16,
            shape: vec![len],
            fill: Fill::Same(ONE),
        });
    };
    vector("vision_tower.patch".to_owned(), TOWER_BYTES / 2);
    vector(names::FINAL_NORM.to_owned(), shape.hidden);
    for layer in 0..shape.n_layers as u32 {
        for name in [
            names::ROUTER_SCALE,
            names::INPUT_NORM,
            names::POST_ATTENTION_NORM,
            names::PRE_FEEDFORWARD_NORM,
            names::PRE_FEEDFORWARD_NORM_2,
            names::POST_FEEDFORWARD_NORM,
            names::POST_FEEDFORWARD_NORM_1,
            names::POST_FEEDFORWARD_NORM_2,
        ] {
            vector(names::layer(layer, name), shape.hidden);
        }
        for name in [names::Q_NORM, names::K_NORM] {
            vector(names::layer(layer, name), shape.hidden / 4);
        }
        vector(names::layer(layer, names::LAYER_SCALAR), 1);
        let per_expert = names::layer(layer, names::ROUTER_PER_EXPERT_SCALE);
        vector(per_expert, shape.n_experts);
    }
}
