//! `verified-install.json`.

use ouzel_format::{FileRecord, FormatError, Receipt, Sha256Hex, timestamp};
use serde_json::json;

use crate::edit::{with, without};

fn sample() -> Receipt {
    let record = |digit, size| FileRecord {
        size,
        sha256: Sha256Hex::from_bytes([digit; 32]),
    };
    Receipt {
        manifest_sha256: Sha256Hex::from_bytes([0xab; 32]),
        model_directory_path: "/home/me/Gemma 4/\"x\".gturbo".into(),
        verification_timestamp: timestamp(1_767_225_599),
        tool_version: "ouzel 0.1.0".into(),
        files: [
            ("manifest.json".into(), record(0xab, 7)),
            ("model_weights.bin".into(), record(1, 9)),
        ]
        .into(),
        source_repo_id: Some("mlx-community/gemma-4-26b-a4b-it-4bit".into()),
        source_revision: None,
    }
}

#[test]
fn a_receipt_survives_a_round_trip() {
    let bytes = sample().encode();
    let text = String::from_utf8(bytes.clone()).expect("JSON is UTF-8");
    assert!(
        text.contains("\"sourceRepoID\" : \"mlx-community/gemma-4-26b-a4b-it-4bit\""),
        "{text}"
    );
    assert!(text.contains("\"schemaVersion\" : 1"), "{text}");
    assert!(!text.contains("sourceRevision"), "{text}");
    assert_eq!(Receipt::parse(&bytes), Ok(sample()));
}

#[test]
fn what_is_wrong_is_named() {
    let bytes = sample().encode();
    for field in [
        "schemaVersion",
        "manifestSha256",
        "modelDirectoryPath",
        "verificationTimestamp",
        "toolVersion",
        "files",
    ] {
        let error = Receipt::parse(&without(&bytes, &format!("/{field}")));
        assert!(matches!(error, Err(FormatError::MissingField { field: f, .. }) if f == field));
    }
    let parse = |pointer: &str, value| Receipt::parse(&with(&bytes, pointer, value));
    assert!(matches!(
        parse("/schemaVersion", json!(2)),
        Err(FormatError::UnsupportedVersion { actual: 2, .. })
    ));
    assert!(matches!(
        parse("/manifestSha256", json!("ab")),
        Err(FormatError::BadHash { .. })
    ));
    assert!(matches!(
        parse("/manifestSha256", json!("cd".repeat(32))),
        Err(FormatError::Disagreement { .. })
    ));
    let record = json!({ "size": 1, "sha256": "0".repeat(64) });
    assert!(matches!(
        parse("/files/verified-install.json", record.clone()),
        Err(FormatError::ReservedPath { .. })
    ));
    assert!(matches!(
        parse("/files/..", record),
        Err(FormatError::UnsafePath { .. })
    ));
    let error = Receipt::parse(&without(&bytes, "/files/manifest.json"));
    assert!(matches!(error, Err(FormatError::FileNotListed { .. })));
}

#[test]
fn timestamps_follow_the_calendar() {
    for (seconds, expected) in [
        (0, "1970-01-01T00:00:00Z"),
        (86_399, "1970-01-01T23:59:59Z"),
        (951_782_400, "2000-02-29T00:00:00Z"),
        (951_868_800, "2000-03-01T00:00:00Z"),
        (1_767_225_599, "2025-12-31T23:59:59Z"),
        (1_772_323_199, "2026-02-28T23:59:59Z"),
        (1_772_323_200, "2026-03-01T00:00:00Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
        (253_402_300_799, "9999-12-31T23:59:59Z"),
    ] {
        assert_eq!(timestamp(seconds), expected);
    }
}
