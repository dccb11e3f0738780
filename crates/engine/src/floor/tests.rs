//! The speed model by hand, on the shape of Gemma 4 26B-A4B.

use super::forecast::{hit_rate, later_of_two};
use super::*;
use crate::{EngineError, Options};

/// Rates that turn bytes and multiply-adds into round times, so that a sum shows its parts.
const PLAIN: Rates = Rates {
    disk_bytes_per_s: 1e9,
    memory_bytes_per_s: 1e10,
    int8_macs_per_s: 1e12,
    f32_macs_per_s: 1e11,
};
/// The machine that the speed targets are stated for; arithmetic as two cores with AVX-512 have it.
const REFERENCE: Rates = Rates {
    disk_bytes_per_s: 1.4e9,
    memory_bytes_per_s: 51.7e9,
    int8_macs_per_s: 500e9,
    f32_macs_per_s: 120e9,
};
/// Times are made of f64 and kept in whole nanoseconds.
const NANOSECONDS: f64 = 2e-9;

#[track_caller]
fn check(actual: Duration, expected_seconds: f64) {
    let actual = actual.as_secs_f64();
    let is_close = (actual - expected_seconds).abs() <= NANOSECONDS;
    assert!(is_close, "{actual} s instead of {expected_seconds} s");
}

fn decode(context_tokens: usize, misses: f64, rates: &Rates, precision: Precision) -> Duration {
    let config = gemma4_26b_a4b();
    let weights = WeightBytes::of_shape(&config);
    let work = DecodeWork {
        context_tokens,
        misses,
    };
    decode_floor(&config, &weights, work, rates, precision)
}

#[test]
fn the_weights_are_those_of_the_checkpoint() {
    let weights = WeightBytes::of_shape(&gemma4_26b_a4b());
    // The pinned checkpoint's model_weights.bin has 1,353,771,068 bytes, of which 81,920 are its index.
    let layers = weights.layers.iter().map(|l| l.attention + l.shared);
    assert_eq!(layers.sum::<u64>() + weights.head, 1_353_689_148);
    assert_eq!(
        (weights.expert, weights.expert_stride),
        (3_345_408, 3_358_720)
    );
    // A token chooses 8 experts in each of 30 layers.
    assert_eq!(240 * weights.expert_stride, 806_092_800);
    // 2816 x 12288 weights of q, k, v and o at 4.5 bits, a router of 128 x 2816 at 8.5, vectors.
    let attention = 34_603_008 * 9 / 16 + 360_448 * 17 / 16 + 2 * (8 * 2816 + 128 + 2 * 256 + 1);
    assert_eq!(weights.layers[0].attention, attention);
    assert_eq!(weights.layers[0].shared, 17_842_176 * 9 / 16);
}

#[test]
fn a_token_touches_two_gigabytes_and_its_kv_rows() {
    let config = gemma4_26b_a4b();
    let weights = WeightBytes::of_shape(&config);
    let touched = |context, precision| bytes_touched(&config, &weights, context, precision);
    let weights_touched = 1_353_689_148 + 240 * 3_345_408;
    assert_eq!(weights_touched, 2_156_587_068_u64);
    // 25 rings of 1,024 rows and 5 full layers of 4,096: 280 MiB.
    assert_eq!(
        touched(4096, Precision::Fast),
        weights_touched + (280 << 20)
    );
    assert_eq!(
        touched(4096, Precision::Exact),
        weights_touched + (560 << 20)
    );
    // One position: 25 x 8 KiB + 5 x 4 KiB.
    assert_eq!(touched(1, Precision::Fast), weights_touched + (220 << 10));
}

#[test]
fn what_memory_takes_longer_for_than_the_disk_is_hidden() {
    let weights_and_rows = 1_353_689_148.0 + 240.0 * 3_345_408.0 + 280.0 * 1024.0 * 1024.0;
    check(
        decode(4096, 0.0, &PLAIN, Precision::Fast),
        weights_and_rows / 1e10,
    );
    // One miss a layer: 3.36 ms of disk beside 3.68 ms of memory.
    check(
        decode(4096, 30.0, &PLAIN, Precision::Fast),
        weights_and_rows / 1e10,
    );
    // All miss: 806 MB from the disk, and beside nothing the rest of the layers, the rows and the head.
    let beside_nothing = 1_353_689_148.0 - 30.0 * 10_036_224.0 + 280.0 * 1024.0 * 1024.0;
    check(
        decode(4096, 240.0, &PLAIN, Precision::Fast),
        0.806_092_8 + beside_nothing / 1e10,
    );
}

#[test]
fn a_prompt_reads_or_computes_whichever_takes_longer() {
    let config = gemma4_26b_a4b();
    let prefill = |expert_bytes_read, precision| {
        let work = PrefillWork {
            n_tokens: 512,
            expert_bytes_read,
        };
        prefill_floor(&config, work, &PLAIN, precision)
    };
    // 30 layers of 128 experts at 1 GB/s.
    check(prefill(12_897_484_800.0, Precision::Fast), 12.897_484_8);
    // 3,083,632,640 multiply-adds a token and 262,144 x 2816 for the head; 512 x 513 / 2 pairs of query and key, times two,
    // over 25 x 4,096 and 5 x 8,192 elements.
    let with_weights = 512.0 * 3_083_632_640.0 + 738_197_504.0;
    let of_attention = 131_328.0 * 2.0 * (25.0 * 4096.0 + 5.0 * 8192.0);
    check(
        prefill(0.0, Precision::Fast),
        with_weights / 1e12 + of_attention / 1e11,
    );
    check(
        prefill(0.0, Precision::Exact),
        (with_weights + of_attention) / 1e11,
    );
}

#[test]
fn a_window_bounds_the_keys_that_a_query_sees() {
    for (n, window, expected) in [(1, 4, 1), (4, 4, 10), (5, 4, 14), (100, 1, 100), (0, 4, 0)] {
        assert_eq!(visible_keys(n, window), expected, "{n} in {window}");
    }
}

#[test]
fn hit_rates_lie_on_and_between_the_recorded_ones() {
    for (slots, expected) in [
        (0.0, 0.0),
        (4.0, 0.248),
        (6.0, 0.3245),
        (16.0, 0.622),
        (32.0, 0.819),
        (128.0, 1.0),
        (1000.0, 1.0),
    ] {
        let actual = hit_rate(slots);
        assert!((actual - expected).abs() < 1e-9, "{slots} slots: {actual}");
    }
}

#[test]
fn more_memory_forecasts_more_speed() {
    let config = gemma4_26b_a4b();
    let weights = WeightBytes::of_shape(&config);
    let of = |memory: u64| {
        let options = Options {
            memory: Some(memory),
            ..Options::default()
        };
        forecast(&config, &weights, &options, &REFERENCE)
    };
    let speeds = [
        2_147_483_648,
        3_000_000_000,
        4_000_000_000,
        8_000_000_000,
        16_000_000_000,
    ]
    .map(|memory| {
        of(memory)
            .expect("the model runs in it")
            .decode_tokens_per_s
    });
    assert!(speeds.is_sorted() && speeds[0] < speeds[4], "{speeds:?}");
    // With every expert in a slot a token is 2,156,587,068 bytes of weights and 280 MiB of rows from memory, at seven tenths of its rate.
    let whole = 0.7 * REFERENCE.memory_bytes_per_s / (2_156_587_068.0 + f64::from(280 << 20));
    assert!((speeds[4] - whole).abs() < 1e-6, "{} {whole}", speeds[4]);
    let least = of(1 << 30);
    assert!(
        matches!(least, Err(EngineError::Budget { .. })),
        "{least:?}"
    );
}

#[test]
fn an_installed_model_weighs_what_its_shape_says() {
    let installed = crate::testing::install("testdata/tiny-a/mlx");
    let weights = installed.model.weight_bytes().expect("the model is whole");
    let expected = WeightBytes::of_shape(installed.model.config());
    assert_eq!(weights, expected);
}

#[test]
fn bursts_of_misses_cost_more_than_their_mean() {
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    close(later_of_two(1.5, 2.0, 0.0), 1.5);
    close(later_of_two(0.0, 2.0, 3.5), 7.0);
    // No read with a chance of 1/e: then computing counts; one read lasts longer.
    close(later_of_two(1.0, 2.0, 1.0), 2.0 + (-1.0f64).exp());
    assert!(later_of_two(1.0, 1.0, 1.0) > 1.0);
}
