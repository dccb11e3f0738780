//! What a checkpoint says about itself: its configuration and the headers of its shards. Reads headers, never a weight.

use std::collections::BTreeMap;

use ouzel_format::safetensors::{Header, Index, TensorInfo};
use ouzel_format::{CheckpointConfig, Sha256Hex};
use ouzel_storage::Sha256;

use crate::hash::BUFFER_BYTES;
use crate::{InstallError, Source};

/// The configuration of the checkpoint.
pub const CONFIG: &str = "config.json";
/// Which tensor is in which shard.
pub const INDEX: &str = "model.safetensors.index.json";
const SINGLE_SHARD: &str = "model.safetensors";
/// The largest small file that is read whole; `format` has finer limits of its own.
const SMALL_FILE_BYTES: u64 = 64 << 20;

/// A tensor and the shard that holds it.
#[derive(Clone, Debug)]
pub struct SourceTensor {
    /// The shard's name.
    pub shard: String,
    /// Its entry in the shard's header.
    pub info: TensorInfo,
}

/// The parts of a checkpoint that planning needs.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    /// `config.json`.
    pub config: CheckpointConfig,
    /// Every tensor of every shard, by name.
    pub tensors: BTreeMap<String, SourceTensor>,
    /// SHA-256 of the index, where there is one.
    pub index_sha256: Option<Sha256Hex>,
    /// Files that go along under `tokenizer/`, with their sizes.
    pub side_files: Vec<(String, u64)>,
    /// Well-known files that are absent.
    pub missing: Vec<&'static str>,
}

/// Files that go along if they are there, and whether their absence is worth a word.
const SIDE_FILES: [(&str, bool); 7] = [
    (CONFIG, true),
    ("tokenizer.json", true),
    ("tokenizer_config.json", true),
    ("chat_template.jinja", true),
    ("generation_config.json", true),
    ("chat_template.json", false),
    ("special_tokens_map.json", false),
];

/// Whether an installation could need the file `name` of a folder.
pub fn may_need(name: &str) -> bool {
    let known = |&(side_file, _): &(&str, bool)| name == side_file;
    name == INDEX || name.ends_with(".safetensors") || SIDE_FILES.iter().any(known)
}

impl Checkpoint {
    /// Reads the configuration and the headers.
    ///
    /// # Errors
    /// [`InstallError::Format`] for broken or unsupported files, [`InstallError::Source`] for missing ones.
    pub fn read(source: &dyn Source) -> Result<Checkpoint, InstallError> {
        let config_bytes = read_small(source, CONFIG)?;
        let config =
            CheckpointConfig::parse(&config_bytes).map_err(InstallError::format(CONFIG))?;

        let (shards, weight_map, index_sha256) = shards(source)?;
        let mut tensors = BTreeMap::new();
        for shard in &shards {
            let (bytes, file_size) = header_bytes(source, shard)?;
            let header = Header::parse(&bytes, file_size).map_err(InstallError::format(shard))?;
            for info in header.tensors {
                let name = info.name.clone();
                let placed = SourceTensor {
                    shard: shard.clone(),
                    info,
                };
                if let Some(other) = tensors.insert(name.clone(), placed) {
                    return Err(InstallError::Tensor {
                        file: shard.clone(),
                        name,
                        expected: "one place".to_owned(),
                        actual: format!("another copy in {}", other.shard),
                    });
                }
            }
        }
        check_index(&weight_map, &tensors)?;
        let present = |name: &str| source.size(name);
        let side_files = SIDE_FILES
            .iter()
            .filter_map(|&(name, _)| Some((name.to_owned(), present(name)?)))
            .collect();
        let missing = SIDE_FILES
            .iter()
            .filter(|&&(name, worth_a_word)| {
                let other =
                    name == "chat_template.jinja" && present("chat_template.json").is_some();
                worth_a_word && present(name).is_none() && !other
            })
            .map(|&(name, _)| name)
            .collect();
        Ok(Checkpoint {
            config,
            tensors,
            index_sha256,
            side_files,
            missing,
        })
    }
}

type Shards = (Vec<String>, BTreeMap<String, String>, Option<Sha256Hex>);

/// The shards that the index names; without an index, the single file.
fn shards(source: &dyn Source) -> Result<Shards, InstallError> {
    if source.size(INDEX).is_some() {
        let bytes = read_small(source, INDEX)?;
        let index = Index::parse(&bytes).map_err(InstallError::format(INDEX))?;
        let shards = index.shards().into_iter().map(str::to_owned).collect();
        let digest = Sha256Hex::from_bytes(Sha256::digest(&bytes));
        return Ok((shards, index.weight_map, Some(digest)));
    }
    if source.size(SINGLE_SHARD).is_some() {
        return Ok((vec![SINGLE_SHARD.to_owned()], BTreeMap::new(), None));
    }
    Err(InstallError::Source {
        file: INDEX.to_owned(),
        reason: format!("is missing, and so is {SINGLE_SHARD}; the checkpoint is incomplete"),
    })
}

fn header_bytes(source: &dyn Source, shard: &str) -> Result<(Vec<u8>, u64), InstallError> {
    let file_size = source.size(shard).ok_or_else(|| InstallError::Source {
        file: shard.to_owned(),
        reason: "is named by the index but is missing; the checkpoint is incomplete".to_owned(),
    })?;
    let mut first = [0; 8];
    let at_hand = first.len().min(file_size as usize);
    source.read_at(shard, 0, &mut first[..at_hand])?;
    let header_size =
        Header::header_size(&first[..at_hand]).map_err(InstallError::format(shard))?;
    let bytes = read_start(source, shard, header_size.min(file_size))?;
    Ok((bytes, file_size))
}

/// The first `len` bytes of a file, which its caller found to be few enough to hold.
fn read_start(source: &dyn Source, name: &str, len: u64) -> Result<Vec<u8>, InstallError> {
    let mut bytes = vec![0; len as usize];
    let mut offset = 0;
    for part in bytes.chunks_mut(BUFFER_BYTES) {
        source.read_at(name, offset, part)?;
        offset += part.len() as u64;
    }
    Ok(bytes)
}

/// Every tensor that the index names must lie in the shard that it names.
fn check_index(
    weight_map: &BTreeMap<String, String>,
    tensors: &BTreeMap<String, SourceTensor>,
) -> Result<(), InstallError> {
    for (name, shard) in weight_map {
        let actual = tensors.get(name).map(|tensor| tensor.shard.as_str());
        if actual != Some(shard) {
            return Err(InstallError::Tensor {
                file: shard.clone(),
                name: name.clone(),
                expected: "a tensor here, as the index says".to_owned(),
                actual: actual.map_or("none".to_owned(), |other| format!("it in {other}")),
            });
        }
    }
    Ok(())
}

fn read_small(source: &dyn Source, name: &str) -> Result<Vec<u8>, InstallError> {
    let failed = |reason: String| InstallError::Source {
        file: name.to_owned(),
        reason,
    };
    let size = source
        .size(name)
        .ok_or_else(|| failed("is missing".to_owned()))?;
    if size > SMALL_FILE_BYTES {
        return Err(failed(format!(
            "has {size} bytes, more than {SMALL_FILE_BYTES}"
        )));
    }
    read_start(source, name, size)
}
