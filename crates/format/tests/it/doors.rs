//! Every parser of this room as a function of arbitrary bytes, with what has to hold when the bytes are accepted.
//!
//! The smoke test of this suite and the targets of `fuzz/` call the same functions, so that what a fuzzer finds is a test's input.

use ouzel_format::safetensors::{Header, Index};
use ouzel_format::{
    CheckpointConfig, Checksums, GenerationConfig, Layout, Manifest, Receipt, ResidentIndex, names,
    paths,
};

/// An accepted manifest keeps its meaning when it is written.
pub fn manifest(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::parse(bytes) {
        assert_eq!(Manifest::parse(&manifest.encode()), Ok(manifest));
    }
}

/// An accepted receipt keeps its meaning when it is written.
pub fn receipt(bytes: &[u8]) {
    if let Ok(receipt) = Receipt::parse(bytes) {
        assert_eq!(Receipt::parse(&receipt.encode()), Ok(receipt));
    }
}

/// An accepted layout keeps its meaning when it is written, and its parts lie within their expert.
pub fn layout(bytes: &[u8]) {
    if let Ok(layout) = Layout::parse(bytes) {
        for expert in layout.layers.iter().flat_map(|layer| &layer.experts) {
            assert!(
                expert
                    .tensors
                    .values()
                    .all(|part| part.offset + part.size <= layout.expert_stride)
            );
        }
        assert_eq!(Layout::parse(&layout.encode()), Ok(layout));
    }
}

/// An accepted index is written back byte for byte, and every range lies in the payload.
pub fn resident_index(bytes: &[u8]) {
    let size = ResidentIndex::index_size(bytes);
    if let Ok(index) = ResidentIndex::parse(bytes) {
        let size = size.expect("the index has a size");
        assert!(index.encode() == bytes[..size as usize]);
        let end = size + index.payload_size;
        assert!(
            index
                .entries
                .iter()
                .all(|entry| entry.offset >= size && entry.offset + entry.size <= end)
        );
    }
}

/// Accepted checksums are written back byte for byte.
pub fn checksums(bytes: &[u8]) {
    if let Ok(checksums) = Checksums::parse(bytes) {
        assert!(checksums.encode() == bytes);
        checksums.get(checksums.layers - 1, checksums.experts - 1);
    }
}

/// The tensors of an accepted header lie within the file.
pub fn safetensors_header(bytes: &[u8]) {
    // The bytes as a whole file, and as the start of the largest.
    for file_size in [bytes.len() as u64, u64::MAX] {
        if let Ok(header) = Header::parse(bytes, file_size) {
            for tensor in &header.tensors {
                assert!(
                    header.data_start <= tensor.start
                        && tensor.start <= tensor.end
                        && tensor.end <= file_size
                );
            }
        }
    }
}

/// The shards of an accepted index are bare file names.
pub fn safetensors_index(bytes: &[u8]) {
    if let Ok(index) = Index::parse(bytes) {
        assert!(
            index
                .shards()
                .into_iter()
                .all(|shard| paths::check_file_name(shard).is_ok())
        );
    }
}

/// The shape of an accepted configuration is a valid one.
pub fn checkpoint_config(bytes: &[u8]) {
    if let Ok(config) = CheckpointConfig::parse(bytes) {
        assert_eq!(config.arch.check(), Ok(()));
        assert!(matches!(config.quantization.summary().router, 4 | 8));
    }
}

/// Ids do not repeat.
pub fn generation_config(bytes: &[u8]) {
    if let Ok(mut config) = GenerationConfig::parse(bytes) {
        let n = config.eos_token_ids.len();
        config.eos_token_ids.sort_unstable();
        config.eos_token_ids.dedup();
        assert_eq!(config.eos_token_ids.len(), n);
    }
}

/// A name that stands for an expert's part is that part's only name; a safe path stays below its base.
pub fn name(bytes: &[u8]) {
    let name = String::from_utf8_lossy(bytes);
    if let names::Role::Expert { layer, part } = names::role(&name) {
        assert_eq!(names::expert(layer, part), name);
    }
    if paths::check_path(&name).is_ok() {
        let is_plain = |part| matches!(part, std::path::Component::Normal(_));
        assert!(std::path::Path::new(&*name).components().all(is_plain));
    }
}
