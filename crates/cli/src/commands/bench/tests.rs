//! The arithmetic and the formats of `bench`; its runs are tested through the binary.

use ouzel_storage::probe::DepthRate;

use super::median;
use super::probe::{Probe, Probes};
use super::table::{field, skew};

fn probe(disk: f64, memory: f64) -> Probe {
    let depth = |depth, bytes_per_s| DepthRate { depth, bytes_per_s };
    Probe {
        isa: "portable".to_owned(),
        threads: 2,
        io_mode: "direct".to_owned(),
        read_bytes: 3_358_720,
        disk: vec![depth(1, disk / 2.0), depth(2, disk), depth(4, disk / 4.0)],
        buffer_bytes: 1 << 30,
        memory_bytes_per_s: memory,
        int8_macs_per_s: 3e11,
        f32_macs_per_s: 1e11,
    }
}

#[test]
fn the_middle_of_few_values() {
    assert_eq!(median(vec![3.0]), 3.0);
    assert_eq!(median(vec![5.0, 1.0, 3.0]), 3.0);
    assert_eq!(median(vec![4.0, 1.0, 2.0, 100.0]), 3.0);
    assert!(median(Vec::new()).is_nan());
}

#[test]
fn another_process_hands_its_probe_over_whole() {
    let probe = probe(1.4e9, 51.7e9);
    let csv = probe.to_csv();
    assert_eq!(Probe::parse(&csv).expect("our own rows"), probe, "{csv}");
    for (line, _) in csv.match_indices('\n') {
        // A process that was cut off, at any line but the last, left too little.
        let cut = &csv[..line];
        let is_whole = Probe::parse(cut).is_ok();
        assert_eq!(is_whole, line == csv.len() - 1, "{cut}");
    }
}

#[test]
fn the_rates_are_those_of_the_best_depth_halfway_between_the_probes() {
    let probes = Probes {
        before: probe(1.0e9, 50e9),
        after: probe(1.2e9, 48e9),
    };
    let rates = probes.rates();
    assert_eq!(rates.disk_bytes_per_s, 1.1e9);
    assert_eq!(rates.memory_bytes_per_s, 49e9);
    assert_eq!(probes.before.best_disk().depth, 2);
    let (what, drift) = probes.drift();
    assert_eq!(what, "disk");
    assert!((drift - 1.0 / 6.0).abs() < 1e-12, "{drift}");
}

#[test]
fn synthetic_models_say_their_skew() {
    for (model_id, expected) in [
        ("synth-gemma4-26b-a4b-hard-seed1", "hard"),
        ("synth-tiny-trace-seed42", "trace"),
        ("synth-tiny-trace-seed", "-"),
        ("synth-tiny-trace-seedy", "-"),
        ("synth-tiny", "-"),
        ("gemma-4-26b-a4b-hard-seed1", "-"),
        ("", "-"),
    ] {
        assert_eq!(skew(model_id), expected, "{model_id}");
    }
}

#[test]
fn fields_are_quoted_where_they_have_to_be() {
    assert_eq!(field("ouzel-demo-47m"), "ouzel-demo-47m");
    assert_eq!(field("a,b"), "\"a,b\"");
    assert_eq!(field("a \"b\""), "\"a \"\"b\"\"\"");
}
