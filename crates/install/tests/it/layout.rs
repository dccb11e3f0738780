//! What an installation writes.

use std::collections::BTreeMap;

use ouzel_format::names::{self, Role};
use ouzel_format::{ExpertPart, Layout, Manifest, ResidentIndex, paths};
use ouzel_install::{BUFFER_BYTES, Checkpoint, InstallError, Piece, Source, plan, verify_dir};

use crate::{CHECKPOINTS, checkpoint, disk, install_on, output};

/// Notes how much is read at once.
struct Watched<'a> {
    source: &'a dyn Source,
    largest_read: std::cell::Cell<usize>,
}

impl Source for Watched<'_> {
    fn files(&self) -> Vec<String> {
        self.source.files()
    }
    fn size(&self, name: &str) -> Option<u64> {
        self.source.size(name)
    }
    fn read_at(&self, name: &str, offset: u64, buf: &mut [u8]) -> Result<(), InstallError> {
        self.largest_read
            .set(self.largest_read.get().max(buf.len()));
        self.source.read_at(name, offset, buf)
    }
}

#[test]
fn every_source_byte_of_the_language_model_lands_exactly_once() {
    for path in CHECKPOINTS {
        let source = checkpoint(path);
        let checkpoint = Checkpoint::read(&source).expect(path);
        let plan = plan(&checkpoint).expect(path);
        let mut copied: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        for piece in plan.files.iter().flat_map(|file| &file.pieces) {
            if let Piece::Copy {
                source,
                offset,
                len,
            } = piece
            {
                copied
                    .entry(&plan.sources[*source])
                    .or_default()
                    .push((*offset, offset + len));
            }
        }
        let mut wanted: BTreeMap<&str, Vec<(u64, u64)>> = BTreeMap::new();
        for (name, tensor) in &checkpoint.tensors {
            if names::role(name) != Role::Skipped {
                let range = (tensor.info.start, tensor.info.end);
                wanted.entry(&tensor.shard).or_default().push(range);
            }
        }
        for (shard, ranges) in &mut wanted {
            assert_eq!(
                merged(ranges),
                merged(copied.get_mut(shard).expect(shard)),
                "{path} {shard}"
            );
        }
    }
}

/// Joins ranges that touch; panics if two overlap.
fn merged(ranges: &mut [(u64, u64)]) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for &(start, end) in &*ranges {
        match joined.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            Some(last) => {
                assert!(last.1 < start, "bytes {start}..{} land twice", last.1);
                joined.push((start, end));
            }
            None => joined.push((start, end)),
        }
    }
    joined
}

#[test]
fn every_tensor_has_the_bytes_of_the_source() {
    for path in CHECKPOINTS {
        let source = checkpoint(path);
        let disk = disk();
        install_on(&disk, &source);
        let files = disk.files_below(&output());
        let file = |name: &str| &files[std::path::Path::new(name)];
        let checkpoint = Checkpoint::read(&source).expect(path);
        let bytes_of = |name: &str| {
            let tensor = &checkpoint.tensors[name];
            let mut bytes = vec![0; tensor.info.size() as usize];
            source
                .read_at(&tensor.shard, tensor.info.start, &mut bytes)
                .expect("source bytes");
            bytes
        };
        let weights = file(paths::WEIGHTS);
        let index = ResidentIndex::parse(weights).expect("an index");
        for entry in &index.entries {
            let at = |extent: ouzel_format::Extent| {
                &weights[extent.offset as usize..][..extent.size as usize]
            };
            assert_eq!(
                at(entry.extent()),
                bytes_of(&entry.name),
                "{path} {}",
                entry.name
            );
            if let (Some(scales), Some(biases)) = (entry.scales, entry.biases) {
                let (scale_name, bias_name) = names::companions(&entry.name).expect("a weight");
                assert_eq!(at(scales), bytes_of(&scale_name));
                assert_eq!(at(biases), bytes_of(&bias_name));
            }
        }
        let layout = Layout::parse(file(paths::LAYOUT)).expect("a layout");
        for layer in &layout.layers {
            let blob = file(&paths::in_experts_dir(&layer.file));
            for part in ExpertPart::ALL {
                let whole = bytes_of(&names::expert(layer.layer, part));
                let each = whole.len() / layer.experts.len();
                for (expert, expected) in layer.experts.iter().zip(whole.chunks_exact(each)) {
                    let place = &expert.tensors[&part];
                    let start = (expert.offset + place.offset) as usize;
                    assert_eq!(&blob[start..start + place.size as usize], expected);
                }
            }
        }
    }
}

#[test]
fn scratch_stays_at_one_buffer() {
    let source = checkpoint("models/demo");
    let watched = Watched {
        source: &source,
        largest_read: std::cell::Cell::new(0),
    };
    let disk = disk();
    install_on(&disk, &watched);
    assert!(watched.largest_read.get() <= BUFFER_BYTES);
    assert!(disk.largest_write() <= BUFFER_BYTES);
    verify_dir(&disk, &output(), &mut |_| {}).expect("a model");
    assert!(disk.largest_read() <= BUFFER_BYTES);
    assert_eq!(BUFFER_BYTES, 512 << 10);
}

#[test]
fn an_installation_verifies_and_a_flipped_bit_is_named() {
    for path in CHECKPOINTS {
        let disk = disk();
        let installed = install_on(&disk, &checkpoint(path));
        let verified = verify_dir(&disk, &output(), &mut |_| {}).expect(path);
        assert_eq!(verified.bytes, installed.bytes);
        assert!(verified.has_checksums);
        for name in installed.manifest.files.keys() {
            let file = output().join(name);
            disk.flip_bit(&file, 100);
            let error = verify_dir(&disk, &output(), &mut |_| {}).expect_err(name);
            assert!(error.to_string().contains(name.as_str()), "{name}: {error}");
            disk.flip_bit(&file, 100);
        }
    }
}

#[test]
fn two_installations_have_the_same_payload() {
    let payload = |path| {
        let disk = disk();
        install_on(&disk, &checkpoint(path));
        let mut files = disk.files_below(&output());
        // The receipt states when it was written.
        files.remove(std::path::Path::new(paths::RECEIPT));
        files
    };
    assert_eq!(
        payload("testdata/tiny-b/mlx"),
        payload("testdata/tiny-b/mlx")
    );
}

#[test]
fn the_manifest_states_the_bits_of_every_place() {
    let disk = disk();
    let installed = install_on(&disk, &checkpoint("models/demo"));
    let files = disk.files_below(&output());
    let manifest =
        Manifest::parse(&files[std::path::Path::new(paths::MANIFEST)]).expect("a manifest");
    assert_eq!(manifest, installed.manifest);
    let quant = manifest.quant.expect("it is written");
    assert_eq!(
        (quant.embedding, quant.router, quant.routed_expert),
        (4, 8, 4)
    );
    assert_eq!(manifest.bit_width_overrides_honored, Some(12));
    assert!(manifest.files.contains_key(paths::GENERATION_CONFIG));
}
