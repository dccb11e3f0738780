//! What a model directory says about itself: configuration, layout, checksums, receipt, and last of all the manifest.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ouzel_format::names;
use ouzel_format::{
    Arch, Checksums, Dtype, ExpertLayout, ExpertPart, FileRecord, Flags, LayerLayout, Layout,
    Manifest, PartLayout, Quant, Receipt, Sha256Hex, paths, timestamp,
};
use ouzel_storage::{Disk, OsDisk, Sha256};
use serde_json::{Map, Value, json};

use super::tensors::{GROUP, Part, Source};
use super::write::{Written, expert_stride};

/// Writes a small file below `dir` and makes it durable.
pub fn write_small(dir: &Path, path: &str, bytes: &[u8]) -> anyhow::Result<Written> {
    let mut file = OsDisk.create(&dir.join(path))?;
    file.write_at(0, bytes)?;
    file.sync()?;
    Ok(Written {
        path: path.to_owned(),
        record: record(bytes),
        sums: Vec::new(),
    })
}

fn record(bytes: &[u8]) -> FileRecord {
    FileRecord {
        size: bytes.len() as u64,
        sha256: Sha256Hex::from_bytes(Sha256::digest(bytes)),
    }
}

/// `layout.json`.
pub fn layout(source: &Source) -> Vec<u8> {
    let arch = &source.arch;
    let stride = expert_stride(source);
    let tensors = parts(source);
    let experts = || {
        (0..arch.num_experts)
            .map(|expert| ExpertLayout {
                expert,
                offset: u64::from(expert) * stride,
                size: stride,
                physical_rank: None,
                tensors: tensors.clone(),
            })
            .collect()
    };
    Layout {
        expert_stride: stride,
        num_layers: arch.num_layers,
        experts_per_layer: arch.num_experts,
        layers: (0..arch.num_layers)
            .map(|layer| LayerLayout {
                layer,
                file: paths::layer_file(layer),
                experts: experts(),
            })
            .collect(),
    }
    .encode()
}

/// Where the nine parts lie within an expert.
fn parts(source: &Source) -> BTreeMap<ExpertPart, PartLayout> {
    let mut parts = BTreeMap::new();
    let mut offset = 0;
    for (of_tensor, tensor) in ExpertPart::ALL.chunks_exact(3).zip(source.expert(0, 0)) {
        let kinds = [Part::Values, Part::Scales, Part::Biases];
        for (&name, part) in of_tensor.iter().zip(kinds) {
            let (size, is_weight) = (tensor.bytes(part), name.is_weight());
            let n_in = if is_weight {
                tensor.n_in
            } else {
                tensor.n_in / GROUP
            };
            let layout = PartLayout {
                offset,
                size,
                dtype: if is_weight { Dtype::U32 } else { Dtype::BF16 },
                shape: vec![tensor.n_out as u32, n_in as u32],
                bits: is_weight.then_some(4),
            };
            offset += size;
            parts.insert(name, layout);
        }
    }
    parts
}

/// `checksums.bin`, of the layers' files in order.
pub fn checksums(source: &Source, layers: &[Written]) -> Vec<u8> {
    Checksums {
        layers: source.arch.num_layers,
        experts: source.arch.num_experts,
        stride: expert_stride(source),
        sums: layers
            .iter()
            .flat_map(|layer| layer.sums.iter().copied())
            .collect(),
    }
    .encode()
}

/// `config.json`, as the checkpoints have it.
pub fn config(arch: &Arch) -> Vec<u8> {
    let kinds: Vec<&str> = arch
        .full_attention_layer_mask
        .iter()
        .map(|&is_full| {
            if is_full {
                "full_attention"
            } else {
                "sliding_attention"
            }
        })
        .collect();
    let quantization = quantization(arch);
    let config = json!({
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "dtype": "bfloat16",
        "eos_token_id": [1, 106, 50],
        "tie_word_embeddings": true,
        "vocab_size": arch.vocab_size,
        "text_config": {
            "model_type": "gemma4_text",
            "attention_bias": false,
            "attention_k_eq_v": arch.attention_k_eq_v,
            "bos_token_id": 2,
            "dtype": "bfloat16",
            "enable_moe_block": true,
            "eos_token_id": 1,
            "final_logit_softcapping": arch.final_logit_softcap,
            "global_head_dim": arch.full_head_dim,
            "head_dim": arch.head_dim,
            "hidden_activation": arch.hidden_activation,
            "hidden_size": arch.hidden_size,
            "hidden_size_per_layer_input": 0,
            "intermediate_size": arch.ffn_intermediate,
            "layer_types": kinds,
            "max_position_embeddings": 262_144,
            "moe_intermediate_size": arch.moe_intermediate,
            "num_attention_heads": arch.num_heads,
            "num_experts": arch.num_experts,
            "num_global_key_value_heads": arch.num_full_kv_heads,
            "num_hidden_layers": arch.num_layers,
            "num_key_value_heads": arch.num_kv_heads,
            "num_kv_shared_layers": 0,
            "pad_token_id": 0,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {
                "full_attention": {
                    "partial_rotary_factor": arch.partial_rotary_factor,
                    "rope_theta": arch.full_rope_theta,
                    "rope_type": "proportional",
                },
                "sliding_attention": { "rope_theta": arch.rope_theta, "rope_type": "default" },
            },
            "sliding_window": arch.sliding_window,
            "tie_word_embeddings": true,
            "top_k_experts": arch.top_k_experts,
            "use_double_wide_mlp": false,
            "vocab_size": arch.vocab_size,
        },
        "quantization": quantization.clone(),
        "quantization_config": quantization,
    });
    format!("{config:#}\n").into_bytes()
}

fn quantization(arch: &Arch) -> Value {
    let mut all = Map::new();
    all.insert("group_size".to_owned(), json!(GROUP));
    all.insert("bits".to_owned(), json!(4));
    all.insert("mode".to_owned(), json!("affine"));
    for layer in 0..arch.num_layers {
        let router = names::layer(layer, names::ROUTER_PROJ);
        let bits = json!({ "group_size": GROUP, "bits": 8 });
        all.insert(names::stem(&router).to_owned(), bits);
    }
    Value::Object(all)
}

/// Writes receipt and manifest of the directory `dir`, which will be `output`.
pub fn write_manifest(
    source: &Source,
    model_id: &str,
    files: &[Written],
    (dir, output): (&Path, &Path),
) -> anyhow::Result<()> {
    let arch = &source.arch;
    let mut files: BTreeMap<String, FileRecord> = files
        .iter()
        .map(|file| (file.path.clone(), file.record))
        .collect();
    let manifest = Manifest {
        version_minor: 0,
        model_id: model_id.to_owned(),
        source_snapshot_hash: None,
        flags: Flags::default(),
        arch: arch.clone(),
        quant: Some(Quant {
            embedding: 4,
            attention: 4,
            router: 8,
            shared_expert: 4,
            routed_expert: 4,
        }),
        files: files.clone(),
        experts_per_layer: arch.num_experts,
        num_layers: arch.num_layers,
        expert_stride: expert_stride(source),
        bit_width_overrides_honored: Some(arch.num_layers),
    };
    manifest.check()?;
    let bytes = manifest.encode();
    files.insert(paths::MANIFEST.to_owned(), record(&bytes));
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let receipt = Receipt {
        manifest_sha256: record(&bytes).sha256,
        model_directory_path: output.to_string_lossy().into_owned(),
        verification_timestamp: timestamp(now.as_secs()),
        tool_version: concat!("xtask synth ", env!("CARGO_PKG_VERSION")).to_owned(),
        files,
        source_repo_id: None,
        source_revision: None,
    };
    receipt.check()?;
    write_small(dir, paths::RECEIPT, &receipt.encode())?;
    write_small(dir, paths::MANIFEST, &bytes)?;
    Ok(())
}
