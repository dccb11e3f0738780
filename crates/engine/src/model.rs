//! A model directory, opened: its manifest, configuration and where its weights lie. Opening reads only what is small;
//! the weights are read when a session begins, after its memory was planned.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ouzel_format::{
    CheckpointConfig, Checksums, FormatError, Layout, Manifest, ResidentIndex, Sha256Hex, paths,
};
use ouzel_storage::{
    IoMode, PositionedFile, ReadMode, Sha256, ShowPath, StorageError, find_link, read_once,
};

use crate::budget::{Budget, ModelBytes, auto_memory, largest_context, plan_budget};
use crate::config::Config;
use crate::expert_files::ExpertFiles;
use crate::weights::WeightMap;
use crate::{EngineError, Options};

/// An opened model directory.
#[derive(Clone, Debug)]
pub struct Model {
    dir: PathBuf,
    manifest: Manifest,
    config: Arc<Config>,
    pub(crate) weights: WeightMap,
    pub(crate) experts: ExpertFiles,
}

impl Model {
    /// Opens a `.gturbo` directory and checks what can be checked without reading the weights: that every file has its recorded
    /// size, that the small ones have their recorded hash, and that every tensor of the configuration is there.
    ///
    /// # Errors
    /// [`EngineError::NotAModel`] for a missing or unfinished directory; [`EngineError::Format`], [`EngineError::Damaged`],
    /// [`EngineError::Tensor`] for a broken one; [`EngineError::Unsupported`] for a model that the engine cannot run.
    pub fn open(dir: &Path) -> Result<Model, EngineError> {
        let manifest_path = dir.join(paths::MANIFEST);
        if !manifest_path.is_file() {
            return Err(not_a_model(dir));
        }
        refuse_links(dir)?;
        let manifest = parse(&manifest_path, &read(&manifest_path)?[..], Manifest::parse)?;
        let files = Listed {
            dir,
            manifest: &manifest,
        };
        files.check_sizes()?;

        let checkpoint = files.optional(paths::CONFIG, CheckpointConfig::parse)?;
        let config = Config::new(&manifest.arch, checkpoint.as_ref())?;
        let layout = files.required(paths::LAYOUT, Layout::parse)?;
        let checksums = files.optional(paths::CHECKSUMS, Checksums::parse)?;
        parse(&dir.join(paths::LAYOUT), &layout, |layout| {
            manifest.check_layout(layout)
        })?;
        let experts = ExpertFiles::new(&dir.join(paths::LAYOUT), &layout, checksums, &config)?;

        let weights_path = dir.join(paths::WEIGHTS);
        let file = PositionedFile::open(&weights_path, IoMode::Buffered)?;
        let mut head = [0; ResidentIndex::HEADER_BYTES];
        file.read_exact_at(&mut head, 0)?;
        let index_bytes = parse(&weights_path, &head[..], ResidentIndex::index_size)?;
        let mut bytes = vec![0; index_bytes as usize];
        file.read_exact_at(&mut bytes, 0)?;
        let index = parse(&weights_path, &bytes[..], ResidentIndex::parse)?;
        let weights = WeightMap::new(&weights_path, &index, &config)?;
        Ok(Model {
            dir: dir.to_owned(),
            config: Arc::new(config),
            weights,
            experts,
            manifest,
        })
    }

    /// The directory as it was given.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The shape of the model.
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// The manifest as read.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Plans the memory of a session; see [`Budget`].
    ///
    /// # Errors
    /// [`EngineError::Option`] and [`EngineError::Budget`].
    pub fn plan_budget(&self, options: &Options) -> Result<Budget, EngineError> {
        plan_budget(&self.config, self.bytes(), options)
    }

    /// The most tokens of context that leave at least `min_slots` retained slots in each layer, with the other options as they are.
    ///
    /// # Errors
    /// [`EngineError::Option`], and [`EngineError::Budget`] where one token is too much.
    pub fn largest_context(&self, options: &Options, min_slots: u32) -> Result<u32, EngineError> {
        largest_context(&self.config, self.bytes(), options, min_slots)
    }

    /// What [`Options::memory`] may be where the caller leaves it to the engine: half of `free_bytes`, and no more than is of use.
    ///
    /// # Errors
    /// [`EngineError::Option`].
    pub fn auto_memory(&self, options: &Options, free_bytes: u64) -> Result<u64, EngineError> {
        auto_memory(&self.config, self.bytes(), options, free_bytes)
    }

    /// How the weights would really be read, as the file system says when it is asked.
    ///
    /// # Errors
    /// [`EngineError::Storage`], where direct reads are demanded and refused, among others.
    pub fn read_mode(&self, io: IoMode) -> Result<ReadMode, EngineError> {
        Ok(PositionedFile::open(&self.weights_path(), io)?.mode())
    }

    /// What the model's files weigh.
    pub fn bytes(&self) -> ModelBytes {
        ModelBytes {
            resident: self.weights.bytes(&self.config),
            expert_stride: self.experts.stride() as u64,
        }
    }

    pub(crate) fn weights_path(&self) -> PathBuf {
        self.dir.join(paths::WEIGHTS)
    }
}

/// The files that the manifest lists.
struct Listed<'a> {
    dir: &'a Path,
    manifest: &'a Manifest,
}

impl Listed<'_> {
    fn check_sizes(&self) -> Result<(), EngineError> {
        for (name, record) in &self.manifest.files {
            let path = self.dir.join(name);
            let actual = match std::fs::metadata(&path) {
                Ok(metadata) => metadata.len(),
                Err(error) => {
                    return Err(EngineError::Damaged {
                        path,
                        what: "a file of the manifest".to_owned(),
                        expected: format!("{} bytes", record.size),
                        actual: error.to_string(),
                    });
                }
            };
            if actual != record.size {
                return Err(EngineError::Damaged {
                    path,
                    what: "size".to_owned(),
                    expected: format!("{} bytes", record.size),
                    actual: format!("{actual}"),
                });
            }
        }
        Ok(())
    }

    fn required<T>(
        &self,
        name: &str,
        parse_bytes: fn(&[u8]) -> Result<T, FormatError>,
    ) -> Result<T, EngineError> {
        self.optional(name, parse_bytes)?
            .ok_or_else(|| EngineError::Damaged {
                path: self.dir.join(paths::MANIFEST),
                what: "files".to_owned(),
                expected: name.to_owned(),
                actual: "not listed".to_owned(),
            })
    }

    /// A small file, compared with its recorded hash, if the manifest lists it.
    fn optional<T>(
        &self,
        name: &str,
        parse_bytes: fn(&[u8]) -> Result<T, FormatError>,
    ) -> Result<Option<T>, EngineError> {
        let Some(record) = self.manifest.files.get(name) else {
            return Ok(None);
        };
        let path = self.dir.join(name);
        let bytes = read(&path)?;
        let actual = Sha256Hex::from_bytes(Sha256::digest(&bytes));
        if actual != record.sha256 {
            return Err(EngineError::Damaged {
                path,
                what: "SHA-256".to_owned(),
                expected: record.sha256.to_string(),
                actual: actual.to_string(),
            });
        }
        parse(&path, &bytes[..], parse_bytes).map(Some)
    }
}

fn parse<B: ?Sized, T>(
    path: &Path,
    from: &B,
    f: impl FnOnce(&B) -> Result<T, FormatError>,
) -> Result<T, EngineError> {
    f(from).map_err(|source| EngineError::Format {
        path: path.to_owned(),
        source,
    })
}

fn read(path: &Path) -> Result<Vec<u8>, EngineError> {
    read_once(path).map_err(|error| EngineError::NotAModel {
        dir: path.to_owned(),
        reason: format!("cannot be read: {error}"),
    })
}

/// What is read has to be what was checked: nothing in the directory may lead elsewhere. The directory itself may be a link.
fn refuse_links(dir: &Path) -> Result<(), EngineError> {
    let folders = [paths::EXPERTS_DIR, paths::TOKENIZER_DIR];
    let found =
        find_link(dir, &folders).map_err(|source| StorageError::io("listing", dir, source))?;
    match found {
        None => Ok(()),
        Some(link) => Err(EngineError::NotAModel {
            dir: dir.to_owned(),
            reason: format!(
                "{} is a link, and a model has none; copy what it leads to",
                link.shown()
            ),
        }),
    }
}

fn not_a_model(dir: &Path) -> EngineError {
    let reason = if has_partial(dir) {
        "its installation was cut short; give the same `ouzel install` again, and it goes on where it stopped"
    } else if !dir.exists() {
        "there is nothing at this path; check the spelling, or install a model with `ouzel install`"
    } else if dir.join("config.json").is_file() {
        "this is a checkpoint; turn it into a model with `ouzel install --from` and this path"
    } else {
        "there is no manifest.json, so it is another folder or an unfinished installation; run `ouzel install` again"
    };
    EngineError::NotAModel {
        dir: dir.to_owned(),
        reason: reason.to_owned(),
    }
}

/// Whether what an installation of `dir` has written so far lies beside it.
fn has_partial(dir: &Path) -> bool {
    let Some(name) = dir.file_name() else {
        return false;
    };
    let mut name = name.to_owned();
    name.push(".partial");
    dir.with_file_name(name).is_dir()
}
