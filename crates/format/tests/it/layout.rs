//! `packed_experts/layout.json`: every rule by its own error.

use ouzel_format::{ExpertPart, FormatError, Layout};
use serde_json::{Value, json};

use crate::edit::{with, without};
use crate::frozen::LAYOUT;

fn refusal_with(pointer: &str, value: Value) -> FormatError {
    Layout::parse(&with(LAYOUT, pointer, value)).expect_err("this has to be refused")
}

#[test]
fn every_required_field_is_missed_by_name() {
    for (pointer, expected) in [
        ("/expertStride", "expertStride"),
        ("/numLayers", "numLayers"),
        ("/expertsPerLayer", "expertsPerLayer"),
        ("/layers", "layers"),
        ("/layers/0/layer", "layers[0].layer"),
        ("/layers/0/file", "layers[0].file"),
        ("/layers/0/experts", "layers[0].experts"),
        ("/layers/0/experts/1/expert", "layers[0].experts[1].expert"),
        ("/layers/0/experts/1/offset", "layers[0].experts[1].offset"),
        ("/layers/0/experts/1/size", "layers[0].experts[1].size"),
        (
            "/layers/0/experts/1/tensors",
            "layers[0].experts[1].tensors",
        ),
        (
            "/layers/0/experts/1/tensors/gate/offset",
            "layers[0].experts[1].tensors.gate.offset",
        ),
        (
            "/layers/0/experts/1/tensors/gate/size",
            "layers[0].experts[1].tensors.gate.size",
        ),
        (
            "/layers/0/experts/1/tensors/gate/dtype",
            "layers[0].experts[1].tensors.gate.dtype",
        ),
        (
            "/layers/0/experts/1/tensors/gate/shape",
            "layers[0].experts[1].tensors.gate.shape",
        ),
        (
            "/layers/0/experts/1/tensors/gate/bits",
            "layers[0].experts[1].tensors.gate.bits",
        ),
    ] {
        let error = Layout::parse(&without(LAYOUT, pointer)).expect_err("this has to be refused");
        assert!(
            matches!(&error, FormatError::MissingField { field, .. } if field == expected),
            "{error}"
        );
    }
}

#[test]
fn counts_and_numbers_have_to_add_up() {
    for (pointer, value) in [
        ("/numLayers", json!(2)),
        ("/expertsPerLayer", json!(1)),
        ("/expertsPerLayer", json!(3)),
        ("/layers/0/layer", json!(1)),
        ("/layers/0/experts/1/expert", json!(0)),
        ("/layers/0/experts/1/offset", json!(0)),
        ("/layers/0/experts/1/offset", json!(16_385)),
        ("/layers/0/experts/1/offset", json!(u64::MAX)),
    ] {
        let error = refusal_with(pointer, value);
        assert!(
            matches!(error, FormatError::Disagreement { .. }),
            "{pointer}: {error}"
        );
    }
    assert!(matches!(
        refusal_with("/numLayers", json!(0)),
        FormatError::NotPositive { .. }
    ));
    for stride in [0, 8_192, 16_385] {
        let error = refusal_with("/expertStride", json!(stride));
        assert_eq!(
            error,
            FormatError::StrideNotAligned {
                field: "expertStride",
                actual: stride
            }
        );
    }
    let error = refusal_with("/expertStride", json!(1_u64 << 63));
    assert!(matches!(error, FormatError::Overflow { .. }));
}

#[test]
fn a_reordered_file_has_each_rank_once() {
    let expert = |e: usize, field: &str| format!("/layers/0/experts/{e}/{field}");
    let swapped = with(LAYOUT, &expert(0, "physicalRank"), json!(1));
    let swapped = with(&swapped, &expert(0, "offset"), json!(16_384));
    let error = Layout::parse(&swapped).expect_err("both experts have rank 1");
    assert!(matches!(error, FormatError::Overlap { offset: 16_384, .. }));
    let swapped = with(&swapped, &expert(1, "physicalRank"), json!(0));
    let swapped = with(&swapped, &expert(1, "offset"), json!(0));
    let layout = Layout::parse(&swapped).expect("each rank occurs once");
    assert_eq!(Layout::parse(&layout.encode()), Ok(layout));
    let error = refusal_with(&expert(1, "physicalRank"), json!(2));
    assert!(
        matches!(error, FormatError::OutOfRange { field, .. } if field.ends_with("physicalRank"))
    );
}

#[test]
fn files_are_bare_and_different() {
    for file in ["", "..", "a/b", "/a", "a\\b"] {
        assert!(
            matches!(
                refusal_with("/layers/0/file", json!(file)),
                FormatError::UnsafePath { .. }
            ),
            "{file:?}"
        );
    }
    let layer: Value = serde_json::from_slice(LAYOUT).expect("valid JSON");
    let first = layer["layers"][0].clone();
    let mut second = first.clone();
    second["layer"] = json!(1);
    let two = with(
        &with(LAYOUT, "/numLayers", json!(2)),
        "/layers",
        json!([first, second]),
    );
    assert!(matches!(
        Layout::parse(&two),
        Err(FormatError::DuplicatePath { .. })
    ));
}

#[test]
fn parts_lie_within_their_expert_and_apart() {
    let gate = "/layers/0/experts/0/tensors/gate";
    let at = |offset: u64| refusal_with(&format!("{gate}/offset"), json!(offset));
    assert!(Layout::parse(&with(LAYOUT, &format!("{gate}/offset"), json!(16_384 - 32))).is_ok());
    assert!(matches!(
        at(16_384 - 31),
        FormatError::OutOfBounds { to: 16_384, .. }
    ));
    assert!(matches!(at(u64::MAX), FormatError::OutOfBounds { .. }));
    let scales =
        |offset: u64| json!({ "offset": offset, "size": 16, "dtype": "BF16", "shape": [8, 1] });
    let pointer = "/layers/0/experts/0/tensors/gate_scales";
    assert!(Layout::parse(&with(LAYOUT, pointer, scales(32))).is_ok());
    assert!(matches!(
        refusal_with(pointer, scales(31)),
        FormatError::Overlap { offset: 31, .. }
    ));
    let error = refusal_with("/layers/0/experts/0/size", json!(16_385));
    assert!(matches!(error, FormatError::OutOfRange { field, .. } if field.ends_with("size")));
    assert!(matches!(
        refusal_with("/layers/0/experts/0/size", json!(0)),
        FormatError::OutOfRange { .. }
    ));
}

#[test]
fn the_size_of_a_part_follows_from_its_shape() {
    let gate = "/layers/0/experts/0/tensors/gate";
    let gate_with = |field: &str, value: Value| refusal_with(&format!("{gate}/{field}"), value);
    assert!(matches!(
        gate_with("size", json!(33)),
        FormatError::SizeMismatch {
            expected: 32,
            actual: 33,
            ..
        }
    ));
    assert!(matches!(
        gate_with("bits", json!(8)),
        FormatError::SizeMismatch {
            expected: 64,
            actual: 32,
            ..
        }
    ));
    assert!(matches!(
        gate_with("bits", json!(5)),
        FormatError::UnsupportedFeature { .. }
    ));
    assert!(matches!(
        gate_with("dtype", json!("BF16")),
        FormatError::UnknownDtype { .. }
    ));
    assert!(matches!(
        gate_with("dtype", json!("Q4")),
        FormatError::UnknownDtype { .. }
    ));
    assert!(matches!(
        gate_with("shape", json!([])),
        FormatError::BadShape { .. }
    ));
    assert!(matches!(
        gate_with("shape", json!([7])),
        FormatError::BadShape { .. }
    ));
    let huge = json!([u32::MAX, u32::MAX, u32::MAX]);
    assert!(matches!(
        gate_with("shape", huge),
        FormatError::BadShape { .. }
    ));
    let empty = json!({ "offset": 0, "size": 0, "dtype": "U32", "shape": [0, 8], "bits": 4 });
    assert!(matches!(
        refusal_with(gate, empty),
        FormatError::EmptyTensor { .. }
    ));
    let scales = json!({ "offset": 32, "size": 16, "dtype": "BF16", "shape": [8, 1], "bits": 4 });
    let error = refusal_with("/layers/0/experts/0/tensors/gate_scales", scales);
    assert!(matches!(error, FormatError::UnsupportedFeature { .. }));
}

#[test]
fn a_part_that_is_absent_is_missed_by_name() {
    let layout = Layout::parse(LAYOUT).expect("valid");
    let expert = &layout.layers[0].experts[1];
    assert!(expert.part(0, ExpertPart::Gate).is_ok());
    let error = FormatError::MissingPart {
        layer: 0,
        expert: 1,
        part: "up_biases",
    };
    assert_eq!(expert.part(0, ExpertPart::UpBiases), Err(error));
}

#[test]
fn parts_that_a_later_version_adds_are_ignored() {
    let newer = with(
        LAYOUT,
        "/layers/0/experts/0/tensors/gate_norms",
        json!({ "new": true }),
    );
    assert_eq!(Layout::parse(&newer), Layout::parse(LAYOUT));
}

#[test]
fn what_is_not_a_layout_is_refused() {
    for bytes in [
        &b""[..],
        b"[]",
        b"1",
        b"{} x",
        b"{\"layers\": 1}",
        b"{\"layers\": null}",
        b"{\"layers\": [}",
    ] {
        assert!(matches!(
            Layout::parse(bytes),
            Err(FormatError::Json {
                what: "layout.json",
                ..
            })
        ));
    }
    let frozen = String::from_utf8_lossy(LAYOUT);
    let twice = frozen.replacen("\"layers\"", "\"layers\" : [], \"layers\"", 1);
    let key = "layers".to_owned();
    let what = "layout.json";
    assert_eq!(
        Layout::parse(twice.as_bytes()),
        Err(FormatError::DuplicateKey { what, key })
    );
    let twice = frozen.replacen("\"bits\"", "\"bits\" : 4, \"bits\"", 1);
    let error = Layout::parse(twice.as_bytes());
    assert!(
        matches!(error, Err(FormatError::DuplicateKey { key, .. }) if key.ends_with("tensors.gate.bits"))
    );
    let mut longest = LAYOUT.to_vec();
    longest.resize(32 << 20, b' ');
    assert!(Layout::parse(&longest).is_ok());
    longest.push(b' ');
    assert!(matches!(
        Layout::parse(&longest),
        Err(FormatError::TooLarge {
            limit: 33_554_432,
            ..
        })
    ));
}
