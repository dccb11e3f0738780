//! `manifest.json`: every rule by its own error.

use ouzel_format::{FormatError, Manifest, PathFault, paths};
use serde_json::{Value, json};

use crate::edit::{with, without};
use crate::frozen::MANIFEST;

fn refusal(bytes: &[u8]) -> FormatError {
    Manifest::parse(bytes).expect_err("this has to be refused")
}

fn refusal_with(pointer: &str, value: Value) -> FormatError {
    refusal(&with(MANIFEST, pointer, value))
}

/// The frozen manifest that lists one more file.
fn refusal_of_path(path: &str) -> FormatError {
    let record = json!({ "size": 1, "sha256": "0".repeat(64) });
    let pointer = format!("/files/{}", path.replace('~', "~0").replace('/', "~1"));
    refusal_with(&pointer, record)
}

#[test]
fn other_formats_and_versions_are_refused() {
    assert!(matches!(
        refusal_with("/magic", json!("GTURBA")),
        FormatError::WrongMagic { actual, expected: "GTURBO", .. } if actual == "GTURBA"
    ));
    for version in [0, 2, 1_u64 << 40] {
        let error = refusal_with("/versionMajor", json!(version));
        assert!(
            matches!(error, FormatError::UnsupportedVersion { expected: 1, actual, .. } if actual == version)
        );
    }
}

#[test]
fn a_later_minor_version_may_add_fields() {
    let newer = with(MANIFEST, "/versionMinor", json!(7));
    let newer = with(&newer, "/newField", json!({ "a": [1, null] }));
    let newer = with(&newer, "/arch/newField", json!(1.5));
    let manifest = Manifest::parse(&newer).expect("unknown fields are ignored");
    assert_eq!(manifest.version_minor, 7);
    let error = refusal_with("/versionMinor", json!(-1));
    assert!(matches!(error, FormatError::WrongType { field, .. } if field == "versionMinor"));
}

#[test]
fn unknown_and_unsupported_flags_are_refused() {
    assert_eq!(
        refusal_with("/flags/warp", json!(false)),
        FormatError::UnknownFlag {
            flag: "warp".into()
        }
    );
    for (flag, value) in [
        ("streamingPresent", false),
        ("turboQuantKV", true),
        ("aneSharedExpert", true),
    ] {
        let error = refusal_with(&format!("/flags/{flag}"), json!(value));
        assert_eq!(
            error,
            FormatError::UnsupportedFlag {
                flag,
                actual: value
            }
        );
    }
}

#[test]
fn every_required_field_is_missed_by_name() {
    let json: Value = serde_json::from_slice(MANIFEST).expect("valid JSON");
    let optional = ["quant", "sourceSnapshotHash", "bitWidthOverridesHonored"];
    for parent in [
        "",
        "/arch",
        "/flags",
        "/quant",
        "/quant/router",
        "/files/model_weights.bin",
    ] {
        let fields = json
            .pointer(parent)
            .and_then(Value::as_object)
            .expect("an object");
        for key in fields.keys() {
            let bytes = without(MANIFEST, &format!("{parent}/{key}"));
            // Which files a directory has to have is decided by those who open it.
            if optional.contains(&key.as_str()) {
                assert!(Manifest::parse(&bytes).is_ok(), "{key} may be absent");
                continue;
            }
            let expected = format!("{parent}/{key}")[1..].replace('/', ".");
            let error = refusal(&bytes);
            assert!(
                matches!(&error, FormatError::MissingField { field, .. } if *field == expected),
                "{error}"
            );
        }
    }
}

#[test]
fn null_is_absent() {
    let absent = with(MANIFEST, "/quant", json!(null));
    assert_eq!(
        Manifest::parse(&absent).map(|manifest| manifest.quant),
        Ok(None)
    );
    let error = refusal_with("/modelID", json!(null));
    assert!(matches!(error, FormatError::MissingField { field, .. } if field == "modelID"));
}

#[test]
fn dimensions_have_to_be_positive() {
    for field in [
        "hiddenSize",
        "ffnIntermediate",
        "moeIntermediateSize",
        "numHeads",
        "numKVHeads",
        "numFullKVHeads",
        "headDim",
        "fullHeadDim",
        "vocabSize",
        "slidingWindow",
        "numLayers",
        "numExperts",
        "topKExperts",
    ] {
        for value in [json!(0), json!(-1)] {
            let error = refusal_with(&format!("/arch/{field}"), value);
            assert!(
                matches!(&error, FormatError::NotPositive { field: f, .. } if *f == format!("arch.{field}")),
                "{error}"
            );
        }
        let error = refusal_with(&format!("/arch/{field}"), json!(1_u64 << 32));
        assert!(
            matches!(&error, FormatError::OutOfRange { field: f, .. } if *f == format!("arch.{field}")),
            "{error}"
        );
        let error = refusal_with(&format!("/arch/{field}"), json!("1"));
        assert!(
            matches!(&error, FormatError::WrongType { field: f, .. } if *f == format!("arch.{field}")),
            "{error}"
        );
    }
}

#[test]
fn constants_have_to_be_finite_and_positive() {
    for field in [
        "finalLogitSoftcap",
        "ropeTheta",
        "fullRopeTheta",
        "partialRotaryFactor",
    ] {
        for value in [json!(0), json!(-0.5), json!(0.0)] {
            let error = refusal_with(&format!("/arch/{field}"), value);
            assert!(
                matches!(&error, FormatError::NotPositive { field: f, .. } if *f == format!("arch.{field}")),
                "{error}"
            );
        }
    }
    // JSON cannot spell infinity; what rounds to it is refused while reading.
    let text =
        String::from_utf8_lossy(MANIFEST).replace("\"ropeTheta\" : 10000", "\"ropeTheta\" : 1e999");
    assert!(matches!(
        refusal(text.as_bytes()),
        FormatError::Json { line: 21, .. }
    ));
    let mut manifest = Manifest::parse(MANIFEST).expect("valid");
    for value in [f64::INFINITY, f64::NAN] {
        manifest.arch.rope_theta = value;
        assert!(
            matches!(manifest.check(), Err(FormatError::NotPositive { field, .. }) if field == "arch.ropeTheta")
        );
    }
    for (field, limit) in [
        ("finalLogitSoftcap", 1e6),
        ("ropeTheta", 1e12),
        ("fullRopeTheta", 1e12),
        ("partialRotaryFactor", 1.0),
    ] {
        let path = format!("/arch/{field}");
        assert!(Manifest::parse(&with(MANIFEST, &path, json!(limit))).is_ok());
        for above in [limit * 1.001, 1e300] {
            let error = refusal_with(&path, json!(above));
            assert!(
                matches!(&error, FormatError::OutOfRange { field: f, .. } if *f == format!("arch.{field}")),
                "{error}"
            );
        }
    }
}

#[test]
fn experts_and_layers_have_to_add_up() {
    assert!(Manifest::parse(&with(MANIFEST, "/arch/topKExperts", json!(2))).is_ok());
    assert_eq!(
        refusal_with("/arch/topKExperts", json!(3)),
        FormatError::TopKExceedsExperts {
            top_k: 3,
            num_experts: 2
        }
    );
    for mask in [json!([]), json!([0, 1])] {
        let error = refusal_with("/arch/fullAttentionLayerMask", mask);
        assert!(matches!(error, FormatError::MaskLength { expected: 1, .. }));
    }
    let error = refusal_with("/arch/fullAttentionLayerMask", json!([2]));
    assert!(
        matches!(error, FormatError::OutOfRange { field, .. } if field == "arch.fullAttentionLayerMask[0]")
    );
    for field in ["numLayers", "expertsPerLayer"] {
        let error = refusal_with(&format!("/{field}"), json!(3));
        assert!(
            matches!(&error, FormatError::Disagreement { field: f, .. } if f == field),
            "{error}"
        );
    }
}

#[test]
fn the_stride_is_a_positive_multiple_of_16384() {
    assert!(Manifest::parse(&with(MANIFEST, "/expertStride", json!(32_768))).is_ok());
    for stride in [0, 1, 4_096, 16_383, 16_385, u64::MAX] {
        let error = refusal_with("/expertStride", json!(stride));
        assert_eq!(
            error,
            FormatError::StrideNotAligned {
                field: "expertStride",
                actual: stride
            }
        );
    }
}

#[test]
fn other_quantizations_are_refused_by_name() {
    for (key, value) in [
        ("weightBits", json!(3)),
        ("groupSize", json!(32)),
        ("scheme", json!("mxfp4")),
        ("scaleType", json!("F16")),
        ("biasType", json!("F32")),
    ] {
        let error = refusal_with(&format!("/quant/attention/{key}"), value);
        let expected = format!("quant.attention.{key}");
        assert!(
            matches!(&error, FormatError::UnsupportedFeature { feature, .. } if *feature == expected),
            "{error}"
        );
    }
}

#[test]
fn a_hash_is_64_hexadecimal_digits() {
    for digits in [
        "",
        "0",
        &"0".repeat(63),
        &"0".repeat(65),
        &"g".repeat(64),
        &"é".repeat(32),
        &" ".repeat(64),
    ] {
        let error = refusal_with("/files/model_weights.bin/sha256", json!(digits));
        assert!(
            matches!(error, FormatError::BadHash { path, .. } if path == "files.model_weights.bin.sha256")
        );
    }
    assert!(
        Manifest::parse(&with(
            MANIFEST,
            "/files/model_weights.bin/sha256",
            json!("aF".repeat(32))
        ))
        .is_ok()
    );
}

#[test]
fn unsafe_paths_are_refused() {
    for (path, fault) in [
        ("", PathFault::Empty),
        ("/etc/passwd", PathFault::Absolute),
        ("..", PathFault::DotComponent),
        ("a/../b", PathFault::DotComponent),
        ("./a", PathFault::DotComponent),
        ("a/.", PathFault::DotComponent),
        ("a//b", PathFault::EmptyComponent),
        ("a/", PathFault::EmptyComponent),
        ("a\0b", PathFault::Nul),
        ("a\\b", PathFault::Backslash),
        ("..\\b", PathFault::Backslash),
        ("C:b", PathFault::Colon),
        ("a/b:stream", PathFault::Colon),
        (&"a".repeat(paths::MAX_PATH_BYTES + 1), PathFault::TooLong),
    ] {
        assert_eq!(
            refusal_of_path(path),
            FormatError::UnsafePath {
                path: path.into(),
                fault
            }
        );
    }
    for path in [
        "a",
        "a/b/c",
        "...",
        ".hidden",
        "a..b",
        &"a".repeat(paths::MAX_PATH_BYTES),
    ] {
        assert_eq!(paths::check_path(path), Ok(()));
    }
}

#[test]
fn the_manifest_and_the_receipt_are_not_listed() {
    for path in ["manifest.json", "verified-install.json", "Manifest.JSON"] {
        assert_eq!(
            refusal_of_path(path),
            FormatError::ReservedPath { path: path.into() }
        );
    }
    assert!(paths::check_path("tokenizer/manifest.json").is_ok());
}

#[test]
fn paths_that_some_system_takes_for_one_are_duplicates() {
    assert!(matches!(
        refusal_of_path("MODEL_weights.bin"),
        FormatError::DuplicatePath { .. }
    ));
    // One e with an accent, and an e followed by the accent.
    let record = json!({ "size": 1, "sha256": "0".repeat(64) });
    let composed = with(MANIFEST, "/files/caf\u{e9}", record.clone());
    assert!(Manifest::parse(&composed).is_ok());
    let both = with(&composed, "/files/cafe\u{301}", record.clone());
    assert!(matches!(refusal(&both), FormatError::DuplicatePath { .. }));
    let upper = with(&composed, "/files/CAF\u{c9}", record);
    assert!(matches!(refusal(&upper), FormatError::DuplicatePath { .. }));
}

#[test]
fn a_key_that_occurs_twice_is_refused() {
    let line = "\"model_weights.bin\" : {";
    let twice = String::from_utf8_lossy(MANIFEST).replacen(
        line,
        &format!("\"model_weights.bin\" : {{ \"size\": 0, \"sha256\": \"\" }}, {line}"),
        1,
    );
    assert_eq!(
        refusal(twice.as_bytes()),
        FormatError::DuplicateKey {
            what: "manifest.json",
            key: "files.model_weights.bin".into()
        }
    );
}

#[test]
fn a_file_cannot_be_a_folder_as_well() {
    for path in ["packed_experts", "Packed_Experts"] {
        assert!(
            matches!(refusal_of_path(path), FormatError::AncestorPath { ancestor, .. } if ancestor == path)
        );
    }
    assert!(matches!(
        refusal_of_path("model_weights.bin/a/b"),
        FormatError::AncestorPath { .. }
    ));
}

#[test]
fn what_is_not_an_object_of_json_is_refused() {
    for bytes in [&b""[..], b"{", b"\xff", b"{}x", b"{\"magic\": \"\xff\"}"] {
        assert!(matches!(
            refusal(bytes),
            FormatError::Json {
                what: "manifest.json",
                ..
            }
        ));
    }
    for bytes in [&b"[]"[..], b"1", b"null"] {
        assert!(matches!(
            refusal(bytes),
            FormatError::WrongType {
                expected: "an object",
                ..
            }
        ));
    }
    let deep = ["[".repeat(10_000), "]".repeat(10_000)].concat();
    assert!(matches!(refusal(deep.as_bytes()), FormatError::Json { .. }));
}

#[test]
fn a_document_has_a_limit() {
    let mut bytes = MANIFEST.to_vec();
    bytes.resize(8 << 20, b' ');
    assert!(Manifest::parse(&bytes).is_ok());
    bytes.push(b' ');
    assert!(matches!(
        refusal(&bytes),
        FormatError::TooLarge {
            limit: 8_388_608,
            actual: 8_388_609,
            ..
        }
    ));
}

#[test]
fn a_layout_of_another_model_is_refused() {
    let layout = ouzel_format::Layout::parse(crate::frozen::LAYOUT).expect("valid");
    let manifest = Manifest::parse(MANIFEST).expect("valid");
    let mut other = manifest.clone();
    other.expert_stride *= 2;
    assert!(matches!(
        other.check_layout(&layout),
        Err(FormatError::Disagreement { .. })
    ));
    let mut other = manifest.clone();
    other.files.remove("packed_experts/layer_00.bin");
    assert!(matches!(
        other.check_layout(&layout),
        Err(FormatError::FileNotListed { .. })
    ));
    let mut other = manifest;
    other
        .files
        .entry("packed_experts/layer_00.bin".into())
        .and_modify(|record| record.size -= 1);
    assert!(matches!(
        other.check_layout(&layout),
        Err(FormatError::SizeMismatch {
            expected: 32_768,
            ..
        })
    ));
}
