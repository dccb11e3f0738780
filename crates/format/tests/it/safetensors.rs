//! Safetensors headers and their index, of real files and of wrong ones.

use ouzel_format::FormatError;
use ouzel_format::safetensors::{Header, Index, TensorDtype, encode_header};
use serde_json::{Value, json};

use crate::edit::with;

const INDEX_OF_TINY_B: &[u8] =
    include_bytes!("../../../../testdata/tiny-b/mlx/model.safetensors.index.json");
const SHARD_1_OF_TINY_B: &[u8] =
    include_bytes!("../../../../testdata/tiny-b/mlx/model-00001-of-00002.safetensors");
const SHARD_2_OF_TINY_B: &[u8] =
    include_bytes!("../../../../testdata/tiny-b/mlx/model-00002-of-00002.safetensors");
const GOLDEN_OF_TINY_A: &[u8] = include_bytes!("../../../../testdata/tiny-a/golden.safetensors");

fn file(header: &str, data: usize) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

fn parse(header: &str, data: usize) -> Result<Header, FormatError> {
    let file = file(header, data);
    Header::parse(&file, file.len() as u64)
}

fn refusal(header: Value, data: usize) -> FormatError {
    parse(&header.to_string(), data).expect_err("this has to be refused")
}

fn tensor(dtype: &str, shape: Value, start: u64, end: u64) -> Value {
    json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] })
}

#[test]
fn real_shards_are_read() {
    let index = Index::parse(INDEX_OF_TINY_B).expect("valid");
    assert_eq!(index.shards().len(), 2);
    let mut n = 0;
    for (name, bytes) in [
        ("model-00001-of-00002.safetensors", SHARD_1_OF_TINY_B),
        ("model-00002-of-00002.safetensors", SHARD_2_OF_TINY_B),
    ] {
        let size = Header::header_size(&bytes[..8]).expect("valid");
        let header = Header::parse(&bytes[..size as usize], bytes.len() as u64).expect("valid");
        assert_eq!(header.data_start, size);
        for tensor in &header.tensors {
            assert_eq!(
                index.weight_map.get(&tensor.name).map(String::as_str),
                Some(name)
            );
        }
        n += header.tensors.len();
    }
    assert_eq!(n, index.weight_map.len());
    // What makes real shards hard is present in these: data that starts at an odd byte, tensors out of order.
    let header = Header::parse(SHARD_1_OF_TINY_B, SHARD_1_OF_TINY_B.len() as u64).expect("valid");
    assert_eq!(header.data_start % 2, 1);
    assert!(!header.tensors.is_sorted_by_key(|tensor| &tensor.name));
}

#[test]
fn metadata_and_other_types_are_read() {
    let header = Header::parse(GOLDEN_OF_TINY_A, GOLDEN_OF_TINY_A.len() as u64).expect("valid");
    assert!(
        header
            .tensors
            .iter()
            .all(|tensor| tensor.name != "__metadata__")
    );
    let ids = header
        .tensors
        .iter()
        .find(|tensor| tensor.name == "seq1.ids")
        .expect("present");
    assert_eq!((ids.dtype, ids.size()), (TensorDtype::I32, 4));
}

#[test]
fn tensors_may_lie_in_any_order_and_apart() {
    let header = json!({
        "b": tensor("U8", json!([1]), 9, 10),
        "a": tensor("BF16", json!([2, 2]), 1, 9),
        "empty": tensor("F32", json!([0, 7]), 3, 3),
        "scalar": tensor("I64", json!([]), 11, 19),
    });
    let header = parse(&header.to_string(), 20).expect("valid");
    let start = header.data_start;
    let places: Vec<_> = header
        .tensors
        .iter()
        .map(|t| (t.name.as_str(), t.start - start, t.end - start))
        .collect();
    assert_eq!(
        places,
        [
            ("b", 9, 10),
            ("a", 1, 9),
            ("empty", 3, 3),
            ("scalar", 11, 19)
        ]
    );
}

#[test]
fn a_header_is_bounded() {
    let size = |length: u64| Header::header_size(&length.to_le_bytes());
    assert_eq!(size((16 << 20) - 8), Ok(16 << 20));
    for length in [(16 << 20) - 7, u64::MAX - 7, u64::MAX] {
        assert!(matches!(
            size(length),
            Err(FormatError::TooLarge {
                limit: 16_777_216,
                ..
            })
        ));
    }
    assert!(matches!(
        Header::header_size(&[0; 7]),
        Err(FormatError::Truncated {
            expected: 8,
            actual: 7,
            ..
        })
    ));
    let whole = file("{}", 0);
    assert!(matches!(
        Header::parse(&whole[..9], 10),
        Err(FormatError::Truncated {
            expected: 10,
            actual: 9,
            ..
        })
    ));
    assert!(matches!(
        Header::parse(&whole, 9),
        Err(FormatError::Truncated {
            expected: 10,
            actual: 9,
            ..
        })
    ));
    assert_eq!(
        Header::parse(&whole, 10).map(|header| header.tensors.len()),
        Ok(0)
    );
}

#[test]
fn places_are_checked() {
    let one = |value| json!({ "a": value });
    assert!(matches!(
        refusal(one(tensor("U8", json!([5]), 0, 5)), 4),
        FormatError::OutOfBounds { .. }
    ));
    assert!(matches!(
        refusal(one(tensor("U8", json!([1]), u64::MAX - 1, u64::MAX)), 4),
        FormatError::Overflow { .. }
    ));
    assert!(matches!(
        refusal(one(tensor("BF16", json!([3]), 0, 5)), 8),
        FormatError::SizeMismatch {
            expected: 6,
            actual: 5,
            ..
        }
    ));
    assert!(matches!(
        refusal(one(tensor("U8", json!([1]), 3, 2)), 8),
        FormatError::OutOfRange { .. }
    ));
    let three = json!({ "a": { "dtype": "U8", "shape": [1], "data_offsets": [0, 1, 2] } });
    assert!(matches!(refusal(three, 8), FormatError::OutOfRange { .. }));
    let huge = json!([1_u64 << 32, 1_u64 << 32]);
    assert!(matches!(
        refusal(one(tensor("U8", huge, 0, 0)), 8),
        FormatError::BadShape { .. }
    ));
    assert!(matches!(
        refusal(one(tensor("U8", json!(vec![1; 17]), 0, 1)), 8),
        FormatError::BadShape { .. }
    ));
    assert!(matches!(
        refusal(one(tensor("U8", json!([-1]), 0, 1)), 8),
        FormatError::WrongType { .. }
    ));
    assert!(matches!(
        refusal(one(tensor("F4", json!([1]), 0, 1)), 8),
        FormatError::UnknownDtype { dtype, .. } if dtype == "F4"
    ));
    let two = json!({ "a": tensor("U8", json!([4]), 0, 4), "b": tensor("U8", json!([4]), 3, 7) });
    assert!(matches!(refusal(two, 8), FormatError::Overlap { .. }));
}

#[test]
fn names_are_unique() {
    let one = tensor("U8", json!([1]), 0, 1);
    let twice = format!("{{\"a\": {one}, \"\\u0061\": {one}}}");
    assert!(matches!(parse(&twice, 1), Err(FormatError::DuplicateKey { key, .. }) if key == "a"));
}

#[test]
fn what_is_not_a_header_is_refused() {
    for field in ["dtype", "shape", "data_offsets"] {
        let mut value = tensor("U8", json!([1]), 0, 1);
        value.as_object_mut().expect("an object").remove(field);
        let error = refusal(json!({ "a": value }), 1);
        assert!(
            matches!(error, FormatError::MissingField { field: f, .. } if f == format!("a.{field}"))
        );
    }
    assert!(matches!(
        refusal(json!({ "__metadata__": { "format": 1 } }), 0),
        FormatError::WrongType { .. }
    ));
    assert!(matches!(
        refusal(json!({ "__metadata__": "mlx" }), 0),
        FormatError::WrongType { .. }
    ));
    assert!(matches!(
        refusal(json!([]), 0),
        FormatError::WrongType { .. }
    ));
    assert!(matches!(parse("{", 0), Err(FormatError::Json { .. })));
}

#[test]
fn a_written_header_is_read_back() {
    let bytes = encode_header(&[
        ("seq0.logits", TensorDtype::F32, &[7, 512]),
        ("seq\"1", TensorDtype::BF16, &[]),
        ("empty", TensorDtype::U8, &[0]),
    ]);
    assert_eq!(bytes.len() % 8, 0);
    let data = 7 * 512 * 4 + 2;
    let header = Header::parse(&bytes, bytes.len() as u64 + data).expect("valid");
    assert_eq!(header.data_start, bytes.len() as u64);
    let names: Vec<&str> = header
        .tensors
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert_eq!(names, ["seq0.logits", "seq\"1", "empty"]);
    assert_eq!(header.tensors[1].end, header.data_start + data);
    assert_eq!(header.tensors[0].shape, [7, 512]);
    assert!(matches!(
        Header::parse(&bytes, bytes.len() as u64 + data - 1),
        Err(FormatError::OutOfBounds { .. })
    ));
    assert_eq!(
        Header::parse(&encode_header(&[]), 16).map(|header| header.data_start),
        Ok(16)
    );
}

#[test]
fn shards_of_an_index_are_bare_file_names() {
    let name = "/weight_map/language_model.model.norm.weight";
    for shard in ["", "../model.safetensors", "a/b", "/a", "C:a"] {
        let error = Index::parse(&with(INDEX_OF_TINY_B, name, json!(shard)));
        assert!(
            matches!(error, Err(FormatError::UnsafePath { .. })),
            "{shard:?}"
        );
    }
    assert!(
        matches!(Index::parse(b"{}"), Err(FormatError::MissingField { field, .. }) if field == "weight_map")
    );
    let error = Index::parse(&with(INDEX_OF_TINY_B, name, json!(1)));
    assert!(matches!(error, Err(FormatError::WrongType { .. })));
}
