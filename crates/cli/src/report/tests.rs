use std::time::Duration;

use ouzel::StopReason;

use super::*;

#[test]
fn bytes_have_a_unit_that_fits() {
    let cases = [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (150 << 20, "150 MiB"),
        (3 << 29, "1.5 GiB"),
    ];
    for (n, expected) in cases {
        assert_eq!(bytes(n), expected);
    }
}

#[test]
fn the_line_leaves_out_what_was_not_measured() {
    let mut all = Stats {
        prompt_tokens: 20,
        reused_tokens: 4,
        new_tokens: 5,
        reasoning_tokens: 0,
        restore_time: Duration::ZERO,
        stop: StopReason::StopId(106),
        prefill_tokens: 16,
        prefill_time: Duration::from_millis(500),
        decode_tokens: 4,
        decode_time: Duration::from_millis(100),
        disk_wait: Duration::from_millis(20),
        hits: 3,
        misses: 1,
        bytes_read: 1 << 20,
        read_mode: ReadMode::Direct,
        peak_memory: Some(64 << 20),
    };
    assert_eq!(
        stats(&all),
        "20 prompt tokens (4 held from before), 5 new; the model ended its answer; prefill 32.0 tokens/s; \
         decode 40.0 tokens/s; waited 0.02 s for the disk; 75 % hits; 1.0 MiB read; peak memory 64.0 MiB"
    );
    for (mode, end) in [
        (ReadMode::Dropping, "peak memory 64.0 MiB"),
        (
            ReadMode::Buffered,
            "peak memory 64.0 MiB, page cache not counted",
        ),
    ] {
        all.read_mode = mode;
        assert!(stats(&all).ends_with(end), "{mode:?}: {}", stats(&all));
    }
    all.read_mode = ReadMode::Direct;
    all.reused_tokens = 0;
    all.prefill_tokens = 0;
    all.decode_tokens = 0;
    (all.hits, all.misses) = (0, 0);
    all.peak_memory = None;
    all.stop = StopReason::Cancelled;
    assert_eq!(
        stats(&all),
        "20 prompt tokens, 5 new; cancelled; waited 0.02 s for the disk; 1.0 MiB read"
    );
}

#[test]
fn only_reads_that_nobody_asked_for_are_worth_a_line() {
    let line = note_of(ReadMode::Dropping).expect("a line");
    assert!(
        line.contains("refuses direct reads") && line.contains("dropping"),
        "{line}"
    );
    assert!(!line.contains('\n'));
    assert_eq!(note_of(ReadMode::Direct), None);
    assert_eq!(note_of(ReadMode::Buffered), None);
}
