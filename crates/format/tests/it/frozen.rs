//! The bytes that another program wrote decode and encode to themselves.

use ouzel_format::{Layout, Manifest, ResidentIndex};
use sha2::{Digest, Sha256};

/// Files of `testdata/gturbo-v1-frozen` with their SHA-256, so that nobody thaws them by accident.
pub const MANIFEST: &[u8] = include_bytes!("../../../../testdata/gturbo-v1-frozen/manifest.json");
pub const LAYOUT: &[u8] = include_bytes!("../../../../testdata/gturbo-v1-frozen/layout.json");
pub const INDEX: &[u8] = include_bytes!("../../../../testdata/gturbo-v1-frozen/resident-index.bin");

#[test]
fn the_frozen_files_are_the_ones_recorded() {
    for (bytes, expected) in [
        (
            MANIFEST,
            "f0c4d01ac7f1747416a0274dd26bb585e2e43ae294b02a8daf272e7129d46dce",
        ),
        (
            LAYOUT,
            "acf57a355128d1d8afb1d09b75dc1aa7fef98687871b1ff9f738dd511cb6e341",
        ),
        (
            INDEX,
            "aa705246112c17d4b60422a2705bda53e96553f7ff96e09b00e6fbb5a4ffa594",
        ),
    ] {
        let actual: String = Sha256::digest(bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(actual, expected);
    }
}

#[test]
fn the_frozen_manifest_encodes_to_itself() {
    let manifest = Manifest::parse(MANIFEST).expect("the frozen manifest is valid");
    assert_eq!(manifest.model_id, "fixture/model");
    assert_eq!(manifest.arch.partial_rotary_factor, 0.25);
    assert_eq!(manifest.quant.map(|quant| quant.router), Some(8));
    assert_eq!(manifest.bit_width_overrides_honored, Some(120));
    assert_eq!(text(&manifest.encode()), text(MANIFEST));
}

#[test]
fn the_frozen_layout_encodes_to_itself() {
    let layout = Layout::parse(LAYOUT).expect("the frozen layout is valid");
    assert_eq!(layout.layers[0].experts[1].offset, 16_384);
    assert_eq!(text(&layout.encode()), text(LAYOUT));
}

#[test]
fn the_frozen_manifest_and_layout_are_of_one_model() {
    let manifest = Manifest::parse(MANIFEST).expect("the frozen manifest is valid");
    let layout = Layout::parse(LAYOUT).expect("the frozen layout is valid");
    assert_eq!(manifest.check_layout(&layout), Ok(()));
}

#[test]
fn the_frozen_index_encodes_to_itself() {
    assert_eq!(
        ResidentIndex::index_size(&INDEX[..24]),
        Ok(INDEX.len() as u64)
    );
    let index = ResidentIndex::parse(INDEX).expect("the frozen index is valid");
    assert_eq!(index.entries[0].name, ouzel_format::names::EMBED_TOKENS);
    assert_eq!(index.entries[0].shape, [1, 1]);
    assert!(index.encode() == INDEX);
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("JSON is UTF-8")
}
