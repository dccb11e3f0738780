//! Whatever can be written is read back as it was.

use std::collections::BTreeMap;

use ouzel_format::{
    Arch, Checksums, Dtype, ExpertLayout, ExpertPart, Extent, FileRecord, Flags, LayerLayout,
    Layout, Manifest, PartLayout, Quant, ResidentEntry, ResidentIndex, Sha256Hex,
};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::{frozen, smoke};

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 200,
        rng_seed: RngSeed::Fixed(smoke::seed()),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

fn positive(limit: f64) -> impl Strategy<Value = f64> {
    prop_oneof![
        (1..=limit as u64).prop_map(|n| n as f64),
        1e-300..=limit,
        f64::MIN_POSITIVE..1.0
    ]
}

fn arch() -> impl Strategy<Value = Arch> {
    let numbers = proptest::array::uniform10(1_u32..);
    let constants = (
        positive(1e6),
        positive(1e12),
        positive(1e12),
        f64::MIN_POSITIVE..=1.0,
    );
    let experts = (1_u32..).prop_flat_map(|n| (Just(n), 1..=n));
    let rest = (experts, any::<[bool; 2]>(), ".*", vec(any::<bool>(), 1..40));
    (numbers, constants, rest).prop_map(
        |(n, c, ((num_experts, top_k_experts), flags, activation, mask))| Arch {
            hidden_size: n[0],
            ffn_intermediate: n[1],
            moe_intermediate: n[2],
            num_heads: n[3],
            num_kv_heads: n[4],
            num_full_kv_heads: n[5],
            head_dim: n[6],
            full_head_dim: n[7],
            vocab_size: n[8],
            sliding_window: n[9],
            num_layers: mask.len() as u32,
            num_experts,
            top_k_experts,
            final_logit_softcap: c.0,
            rope_theta: c.1,
            full_rope_theta: c.2,
            partial_rotary_factor: c.3,
            tie_word_embeddings: flags[0],
            attention_k_eq_v: flags[1],
            hidden_activation: activation,
            full_attention_layer_mask: mask,
        },
    )
}

fn files() -> impl Strategy<Value = BTreeMap<String, FileRecord>> {
    let record = (any::<u64>(), any::<[u8; 32]>()).prop_map(|(size, digest)| FileRecord {
        size,
        sha256: Sha256Hex::from_bytes(digest),
    });
    btree_map(
        "[a-z]{1,3}(/[a-z0-9_é🐦]{1,5}){0,2}\\.[a-z]{3}",
        record,
        0..8,
    )
}

fn manifest() -> impl Strategy<Value = Manifest> {
    let bits = || prop_oneof![Just(4_u32), Just(8)];
    let quant = (bits(), bits(), bits(), bits(), bits()).prop_map(
        |(embedding, attention, router, shared, routed)| Quant {
            embedding,
            attention,
            router,
            shared_expert: shared,
            routed_expert: routed,
        },
    );
    let texts = (".*", proptest::option::of(".*"));
    let rest = (
        any::<u32>(),
        1_u64..1 << 50,
        proptest::option::of(quant),
        proptest::option::of(any::<u32>()),
    );
    (arch(), files(), texts, rest).prop_map(
        |(arch, files, (model_id, hash), (minor, strides, quant, overrides))| Manifest {
            version_minor: minor,
            model_id,
            source_snapshot_hash: hash,
            flags: Flags::default(),
            quant,
            files,
            experts_per_layer: arch.num_experts,
            num_layers: arch.num_layers,
            expert_stride: 16_384 * strides,
            bit_width_overrides_honored: overrides,
            arch,
        },
    )
}

/// Entries whose ranges follow each other with a gap of `skip` bytes each.
fn index() -> impl Strategy<Value = ResidentIndex> {
    let size = 1_u64..1 << 40;
    let entry = (
        0..4_usize,
        vec(1_u32.., 0..=4),
        (0_u64..3, size.clone()),
        proptest::option::of(size.clone()),
        proptest::option::of(size),
    );
    (btree_set(".{1,40}", 0..6), vec(entry, 6)).prop_map(|(names, entries)| {
        let start =
            ResidentIndex::size_for(names.iter().map(String::as_str)).expect("few short names");
        let mut at = start;
        let mut place = |size: u64| {
            at += size;
            Extent {
                offset: at - size,
                size,
            }
        };
        let entries = names.into_iter().zip(entries).map(
            |(name, (dtype, shape, (skip, size), scales, biases))| {
                place(skip);
                let words = place(size);
                ResidentEntry {
                    name,
                    dtype: Dtype::ALL[dtype],
                    offset: words.offset,
                    size,
                    shape,
                    scales: scales.map(&mut place),
                    biases: biases.map(&mut place),
                }
            },
        );
        let entries = entries.collect();
        ResidentIndex {
            entries,
            payload_size: at - start,
        }
    })
}

/// Layers whose experts all have `parts`, in files that are reordered or not.
fn layout() -> impl Strategy<Value = Layout> {
    let ranks = (1_u32..6).prop_flat_map(|n| Just((0..n).collect::<Vec<u32>>()).prop_shuffle());
    (ranks, any::<bool>(), 1_u32..4, btree_set(0..9_usize, 0..9)).prop_map(
        |(ranks, reordered, num_layers, parts)| {
            let expert = |expert: u32| {
                let rank = if reordered {
                    ranks[expert as usize]
                } else {
                    expert
                };
                let tensors = parts.iter().zip(0_u64..).map(|(&part, i)| {
                    (
                        ExpertPart::ALL[part],
                        part_at(64 * i, ExpertPart::ALL[part]),
                    )
                });
                ExpertLayout {
                    expert,
                    offset: 16_384 * u64::from(rank),
                    size: 16_384,
                    physical_rank: reordered.then_some(rank),
                    tensors: tensors.collect(),
                }
            };
            let experts_per_layer = ranks.len() as u32;
            let layer = |layer| LayerLayout {
                layer,
                file: ouzel_format::paths::layer_file(layer),
                experts: (0..experts_per_layer).map(expert).collect(),
            };
            Layout {
                expert_stride: 16_384,
                num_layers,
                experts_per_layer,
                layers: (0..num_layers).map(layer).collect(),
            }
        },
    )
}

fn part_at(offset: u64, part: ExpertPart) -> PartLayout {
    let (dtype, shape, bits) = if part.is_weight() {
        (Dtype::U32, 128, Some(4))
    } else {
        (Dtype::BF16, 32, None)
    };
    PartLayout {
        offset,
        size: 64,
        dtype,
        shape: vec![1, shape],
        bits,
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn manifests(manifest in manifest()) {
        prop_assert_eq!(Manifest::parse(&manifest.encode()), Ok(manifest));
    }

    #[test]
    fn resident_indexes(index in index()) {
        prop_assert_eq!(ResidentIndex::parse(&index.encode()), Ok(index));
    }

    #[test]
    fn layouts(layout in layout()) {
        prop_assert_eq!(Layout::parse(&layout.encode()), Ok(layout));
    }

    #[test]
    fn checksums(layers in 1_u32..5, experts in 1_u32..5, sums in vec(any::<u64>(), 16)) {
        let sums = sums[..(layers * experts) as usize].to_vec();
        let checksums = Checksums { layers, experts, stride: 16_384, sums };
        prop_assert_eq!(Checksums::parse(&checksums.encode()), Ok(checksums));
    }

    #[test]
    fn any_text_is_a_model_s_name(name in any::<String>()) {
        let mut manifest = Manifest::parse(frozen::MANIFEST).expect("valid");
        manifest.model_id = name;
        prop_assert_eq!(Manifest::parse(&manifest.encode()), Ok(manifest));
    }
}
