//! The arithmetic of the memory table, on the shape of Gemma 4 26B-A4B (its figures: model card and `config.json`).

use super::*;
use crate::config::{LayerKind, LayerShape};

const MIB: u64 = 1 << 20;
/// Sizes of the pinned checkpoint's `model_weights.bin` and of one expert with its padding.
const MODEL: ModelBytes = ModelBytes {
    resident: 1_353_771_068,
    expert_stride: 3_358_720,
};

fn gemma4_26b() -> Config {
    let sliding = LayerShape {
        kind: LayerKind::Sliding,
        n_heads: 16,
        n_kv_heads: 8,
        head_dim: 256,
        has_value_proj: true,
        rope_theta: 1e4,
        n_rotated_pairs: 128,
    };
    let full = LayerShape {
        kind: LayerKind::Full,
        n_kv_heads: 2,
        head_dim: 512,
        has_value_proj: false,
        rope_theta: 1e6,
        n_rotated_pairs: 64,
        ..sliding
    };
    Config {
        hidden_size: 2816,
        vocab_size: 262_144,
        shared_intermediate: 2112,
        expert_intermediate: 704,
        n_experts: 128,
        experts_per_token: 8,
        sliding_window: 1024,
        rms_norm_eps: 1e-6,
        softcap: 30.0,
        embed_scale: 2816_f32.sqrt(),
        max_position: 262_144,
        layers: (0..30)
            .map(|l| if l % 6 == 5 { full } else { sliding })
            .collect(),
        stop_ids: Vec::new(),
    }
}

fn plan(options: &Options) -> Result<Budget, EngineError> {
    plan_budget(&gemma4_26b(), MODEL, options)
}

#[test]
fn keys_and_values_of_4096_tokens_take_280_mib() {
    assert_eq!(
        KvCache::bytes(&gemma4_26b(), crate::Precision::Fast, 4096),
        280 * MIB
    );
}

#[test]
fn two_gib_leave_a_few_slots_a_layer() {
    let budget = plan(&Options::default()).expect("the default budget runs the model");
    assert!(
        budget.total_bytes <= 2 << 30,
        "{} bytes",
        budget.total_bytes
    );
    assert!(
        budget.memory_bytes - budget.total_bytes < MODEL.expert_stride,
        "room for another slot is left"
    );
    assert!(
        (80..140).contains(&budget.total_slots()),
        "{}",
        budget.total_slots()
    );
}

#[test]
fn the_lines_add_up_and_no_budget_is_overrun() {
    for mib in [1900, 2048, 2200, 3000, 4096, 8192, 65_536] {
        for context in [256, 4096, 32_768, 262_144] {
            let options = Options {
                memory: Some(mib * MIB),
                max_context: Some(context),
                ..Options::default()
            };
            match plan(&options) {
                Ok(budget) => {
                    let sum: u64 = budget.lines.iter().map(|line| line.bytes).sum();
                    assert_eq!(sum, budget.total_bytes);
                    assert!(
                        budget.total_bytes <= mib * MIB,
                        "{mib} MiB, {context} tokens"
                    );
                    assert!(budget.slots.iter().all(|&n| n <= 128));
                }
                Err(EngineError::Budget { needed, budget, .. }) => assert!(needed > budget),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn the_smallest_budget_named_is_enough_and_a_byte_less_is_not() {
    let too_small = Options {
        memory: Some(1024 * MIB),
        chunk: Some(64),
        ..Options::default()
    };
    let Err(EngineError::Budget { needed, .. }) = plan(&too_small) else {
        panic!("1 GiB cannot hold the resident weights");
    };
    let with = |bytes| Options {
        memory: Some(bytes),
        ..too_small.clone()
    };
    let smallest = plan(&with(needed)).expect("the size that was named");
    assert_eq!(smallest.total_slots(), 0);
    assert!(plan(&with(needed - 1)).is_err());
}

#[test]
fn options_out_of_range_are_named() {
    let cases: [(&str, Options); 5] = [
        (
            "--max-context",
            Options {
                max_context: Some(262_145),
                ..Options::default()
            },
        ),
        (
            "--max-context",
            Options {
                max_context: Some(0),
                ..Options::default()
            },
        ),
        (
            "--slots",
            Options {
                slots: Some(129),
                ..Options::default()
            },
        ),
        (
            "--chunk",
            Options {
                chunk: Some(0),
                ..Options::default()
            },
        ),
        (
            "--threads",
            Options {
                threads: Some(0),
                ..Options::default()
            },
        ),
    ];
    for (flag, options) in cases {
        match plan(&options) {
            Err(EngineError::Option { option, .. }) => assert_eq!(option, flag),
            other => panic!("{flag}: {other:?}"),
        }
    }
}

#[test]
fn slots_asked_for_count_against_a_budget_asked_for() {
    let options = Options {
        memory: Some(2 << 30),
        slots: Some(32),
        ..Options::default()
    };
    assert!(matches!(plan(&options), Err(EngineError::Budget { .. })));
    let unbounded = Options {
        memory: None,
        ..options
    };
    assert_eq!(
        plan(&unbounded).expect("no budget was named").total_slots(),
        32 * 30
    );
}
