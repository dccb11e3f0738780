//! The arithmetic of the memory table, on the shape of Gemma 4 26B-A4B (its figures: model card and `config.json`).

use super::*;
use crate::Precision;
use crate::blocks::kv_row_bytes;
use crate::floor::gemma4_26b_a4b;

const MIB: u64 = 1 << 20;
/// Sizes of the pinned checkpoint's `model_weights.bin` and of one expert with its padding.
const MODEL: ModelBytes = ModelBytes {
    resident: 1_353_771_068,
    expert_stride: 3_358_720,
};

fn plan(options: &Options) -> Result<Budget, EngineError> {
    plan_budget(&gemma4_26b_a4b(), MODEL, options)
}

fn with_memory(bytes: u64) -> Budget {
    let options = Options {
        memory: Some(bytes),
        ..Options::default()
    };
    plan(&options).expect("a budget that runs the model")
}

#[test]
fn a_block_holds_an_expert_or_pages_or_rows() {
    let config = gemma4_26b_a4b();
    for (precision, sliding_rows, full_rows) in
        [(Precision::Fast, 128, 256), (Precision::Exact, 64, 128)]
    {
        let blocks = BlockShape::new(&config, MODEL.expert_stride, precision);
        assert_eq!(blocks.bytes, 3_358_720);
        assert_eq!((blocks.pages, blocks.page_bytes), (3, 1_119_552));
        assert_eq!((blocks.chunk_rows, blocks.block_rows), (288, 96));
        let page_rows = |l| blocks.page_rows(&config.layers[l], precision);
        assert_eq!((page_rows(0), page_rows(5)), (sliding_rows, full_rows));
    }
    // 25 rings of 8 pages and 5 layers of 16, three to a block: 316 MB for 280 MiB of keys and values.
    let blocks = BlockShape::new(&config, MODEL.expert_stride, Precision::Fast);
    assert_eq!(blocks.kv_blocks(&config, Precision::Fast, 4096), 94);
    assert_eq!(blocks.kv_blocks(&config, Precision::Fast, 1), 10);
}

#[test]
fn blocks_fit_models_whose_experts_are_small() {
    let mut config = gemma4_26b_a4b();
    for (hidden_size, stride) in [(64, 16_384), (2816, 16_384), (8192, 1 << 20)] {
        config.hidden_size = hidden_size;
        for precision in [Precision::Fast, Precision::Exact] {
            let blocks = BlockShape::new(&config, stride, precision);
            assert!(blocks.bytes as u64 >= stride && blocks.bytes.is_multiple_of(16_384));
            assert!(blocks.chunk_rows.is_multiple_of(blocks.block_rows));
            assert!(blocks.chunk_rows * hidden_size * 4 <= blocks.bytes);
            assert!(blocks.pages * blocks.page_bytes <= blocks.bytes);
            for shape in &config.layers {
                let rows = blocks.page_rows(shape, precision);
                assert!(rows >= 64 && rows * kv_row_bytes(shape, precision) <= blocks.page_bytes);
            }
        }
    }
}

#[test]
fn two_gib_leave_a_few_slots_a_layer_and_a_short_context_more() {
    let budget = with_memory(2 << 30);
    assert!(budget.total_bytes <= 2 << 30, "{}", budget.total_bytes);
    assert!(
        budget.memory_bytes - budget.total_bytes < MODEL.expert_stride,
        "room for another slot is left"
    );
    assert!((80..140).contains(&budget.slots), "{}", budget.slots);
    assert_eq!(budget.slots_at_start, budget.slots + 94);
}

#[test]
fn three_gb_take_a_prompt_of_4096_tokens_in_one_chunk() {
    let options = Options {
        memory: Some(3_000_000_000),
        max_context: Some(8192),
        ..Options::default()
    };
    let budget = plan(&options).expect("a budget");
    assert!(budget.chunk >= 4096, "{}", budget.chunk);
    let borrowed = budget.blocks.chunk_blocks(CHUNK_BUFFERS, budget.chunk);
    assert!(borrowed <= budget.slots, "{borrowed} of {}", budget.slots);
}

#[test]
fn memory_for_everything_keeps_every_expert_even_while_a_chunk_runs() {
    let budget = with_memory(64 << 30);
    assert_eq!((budget.slots, budget.slots_at_start), (30 * 128, 30 * 128));
    let borrowed = budget.blocks.chunk_blocks(CHUNK_BUFFERS, budget.chunk);
    let of_slots = budget.transit_blocks + budget.slots;
    assert!(budget.arena_blocks >= of_slots + borrowed);
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
                    assert!(budget.slots <= 30 * 128);
                }
                Err(EngineError::Budget { needed, budget, .. }) => assert!(needed > budget),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn the_smallest_budget_named_is_enough_and_a_byte_less_is_not() {
    for (context, chunk) in [(None, None), (Some(256), None), (Some(8192), Some(2000))] {
        let too_small = Options {
            memory: Some(1024 * MIB),
            max_context: context,
            chunk,
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
        assert!(plan(&with(needed - 1)).is_err());
        if chunk.is_none() {
            assert_eq!((smallest.slots, smallest.smallest_bytes), (0, needed));
            assert_eq!(
                with_memory(4 << 30).smallest_bytes,
                with_memory(8 << 30).smallest_bytes
            );
        }
    }
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
        plan(&unbounded).expect("no budget was named").slots,
        32 * 30
    );
}

#[test]
fn auto_takes_half_of_what_is_free_and_no_more_than_is_of_use() {
    let config = gemma4_26b_a4b();
    let auto = |options: &Options, free| {
        auto_memory(&config, MODEL, options, free).expect("options in range")
    };
    let usual = Options::default();
    for free in [0, 1, 4 << 30, (4 << 30) + 1, 16 << 30] {
        assert_eq!(auto(&usual, free), free / 2);
        // A budget given before has no say.
        let given = Options {
            memory: Some(3 << 30),
            ..usual.clone()
        };
        assert_eq!(auto(&given, free), free / 2);
    }
    // With every expert in memory more is of no use; a longer context has a use for more.
    let most = auto(&usual, 1 << 40);
    let budget = with_memory(most);
    assert_eq!(budget.slots, config.n_layers() * config.n_experts);
    assert_eq!(
        budget,
        Budget {
            memory_bytes: most,
            ..with_memory(1 << 40)
        }
    );
    assert_eq!(auto(&usual, 2 * most), most);
    assert_eq!(auto(&usual, 2 * most - 1), most - 1);
    let long = Options {
        max_context: Some(262_144),
        ..usual.clone()
    };
    assert!(auto(&long, 1 << 40) > most);
    let few = Options {
        slots: Some(4),
        ..usual
    };
    assert!(auto(&few, 1 << 40) < most);
    let wrong = Options {
        max_context: Some(0),
        ..Options::default()
    };
    assert!(matches!(
        auto_memory(&config, MODEL, &wrong, 1 << 40),
        Err(EngineError::Option {
            option: "--max-context",
            ..
        })
    ));
}

#[test]
fn kept_prefixes_are_a_line_that_slots_pay_for() {
    let without = with_memory(3 << 30);
    let with = plan(&Options {
        memory: Some(3 << 30),
        kept_bytes: Some(64 << 20),
        ..Options::default()
    })
    .expect("room");
    let block = without.blocks.bytes as u64;
    assert_eq!(with.kept_blocks as u64, (64_u64 << 20).div_ceil(block) + 4);
    assert_eq!(without.slots - with.slots, with.kept_blocks);
    assert_eq!((without.kept_blocks, without.trail_blocks), (0, 0));
    assert!(with.trail_blocks > 0 && 4 * with.trail_blocks <= with.slots);
    assert!(
        with.lines
            .iter()
            .any(|line| line.what.starts_with("kept prefixes"))
    );
    assert_eq!(
        with.lines.iter().map(|line| line.bytes).sum::<u64>(),
        with.total_bytes
    );
}

#[test]
fn the_largest_context_leaves_the_slots_that_were_asked_for() {
    let config = gemma4_26b_a4b();
    for (memory, min_slots) in [(3 << 30, 8), (2 << 30, 2), (4 << 30, 8), (1 << 40, 128)] {
        let options = Options {
            memory: Some(memory),
            ..Options::default()
        };
        let largest = largest_context(&config, MODEL, &options, min_slots).expect("room");
        let slots = |context: u32| {
            let max_context = Some(context);
            plan(&Options {
                max_context,
                ..options.clone()
            })
            .map_or(0, |budget| budget.slots)
        };
        let wanted = min_slots as usize * config.n_layers();
        assert!(slots(largest) >= wanted, "{memory} bytes: {largest} tokens");
        // A block of pages is some hundred tokens of full layers.
        let is_longest = largest as usize == config.max_position || slots(largest + 256) < wanted;
        assert!(is_longest, "{memory} bytes: {largest} tokens");
        println!("{memory} bytes, {min_slots} slots a layer: {largest} tokens");
    }
    let little = Options {
        memory: Some(2 << 30),
        ..Options::default()
    };
    match largest_context(&config, MODEL, &little, 64) {
        Err(EngineError::Budget { needed, budget, .. }) => assert!(needed > budget),
        other => panic!("{other:?}"),
    }
}
