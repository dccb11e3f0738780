//! Golden files themselves, and checkpoints that are none.

use std::io::ErrorKind;

use ouzel_oracle::Oracle;
use ouzel_oracle::golden::Golden;

use crate::repository;

#[test]
fn tensors_have_their_shapes_and_values() {
    let golden =
        Golden::load(&repository("testdata/tiny-b/golden.safetensors")).expect("the goldens");
    assert_eq!(golden.shape("seq7.topk_ids"), [7, 7, 4]);
    assert_eq!(golden.u32("seq7.topk_ids").len(), 7 * 7 * 4);
    assert_eq!(golden.f32("seq1.hidden").len(), 8 * 192);
    assert!(golden.has("seq7.attn") && !golden.has("seq40.attn"));
}

#[test]
#[should_panic(expected = "no golden tensor seq3.ids")]
fn a_missing_tensor_is_named() {
    let golden =
        Golden::load(&repository("testdata/tiny-a/golden.safetensors")).expect("the goldens");
    golden.u32("seq3.ids");
}

#[test]
fn foreign_files_are_refused() {
    let refused = |path: &str| {
        Golden::load(&repository(path))
            .map(|_| ())
            .map_err(|error| error.kind())
    };
    assert_eq!(
        refused("testdata/tiny-a/golden.json"),
        Err(ErrorKind::InvalidData)
    );
    assert_eq!(
        refused("testdata/tiny-a/mlx/model.safetensors"),
        Err(ErrorKind::InvalidData)
    );
    assert_eq!(refused("testdata/nothing"), Err(ErrorKind::NotFound));
    let missing = Oracle::load(&repository("testdata/traces")).expect_err("no checkpoint");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}
