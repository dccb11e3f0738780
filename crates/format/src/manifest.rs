//! `manifest.json`: what a model directory is, which files it consists of, and that it is complete.
//!
//! Version 1 may gain fields under a higher minor version; they are ignored and not kept. A flag changes the meaning of what is
//! already there, so an unknown one is refused, and so is a known one with a value that this program cannot follow.

use std::collections::BTreeMap;

use crate::json::{self, Encode, Object, Writer};
use crate::{ALIGNMENT, Arch, FormatError, GROUP_SIZE, Layout, Sha256Hex, paths};

const WHAT: &str = "manifest.json";
const MAGIC: &str = "GTURBO";
const VERSION_MAJOR: u32 = 1;

/// A decoded `manifest.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// Minor version of the format; 0 is written.
    pub version_minor: u32,
    /// The model's name, as its repository has it.
    pub model_id: String,
    /// Hash of the source's safetensors index, where it was known.
    pub source_snapshot_hash: Option<String>,
    /// What a reader has to be able to do.
    pub flags: Flags,
    /// The model's shape.
    pub arch: Arch,
    /// Bits of a weight by its place in the model.
    pub quant: Option<Quant>,
    /// Every file of the directory but the manifest and the receipt, by its path from the directory.
    pub files: BTreeMap<String, FileRecord>,
    /// Routed experts in each expert file.
    pub experts_per_layer: u32,
    /// Expert files.
    pub num_layers: u32,
    /// Bytes from one expert of a file to the next.
    pub expert_stride: u64,
    /// How many tensors of the source had a bit width of their own.
    pub bit_width_overrides_honored: Option<u32>,
}

/// What a reader has to be able to do. [`Flags::default`] is the only combination that this program reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Experts lie in files of their own, to be streamed.
    pub streaming_present: bool,
    /// The KV cache is to be quantized.
    pub turbo_quant_kv: bool,
    /// The shared expert is laid out for Apple's neural engine.
    pub ane_shared_expert: bool,
}

impl Default for Flags {
    fn default() -> Self {
        Flags {
            streaming_present: true,
            turbo_quant_kv: false,
            ane_shared_expert: false,
        }
    }
}

/// Bits of a weight, 4 or 8, by its place in the model. Group size (64), scheme (affine) and types (BF16) are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quant {
    /// The embedding, which is the output head too.
    pub embedding: u32,
    /// The projections of the attention.
    pub attention: u32,
    /// The router.
    pub router: u32,
    /// The shared expert.
    pub shared_expert: u32,
    /// The routed experts.
    pub routed_expert: u32,
}

/// Size and hash of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// Bytes.
    pub size: u64,
    /// SHA-256 of the whole file.
    pub sha256: Sha256Hex,
}

impl Manifest {
    /// Decodes and checks a manifest.
    ///
    /// # Errors
    /// A [`FormatError`] that names the field.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, FormatError> {
        let json = json::parse(WHAT, json::MAX_JSON_BYTES, bytes)?;
        let root = json.root(WHAT)?;
        check_version(&root)?;
        let manifest = Manifest {
            version_minor: root.need("versionMinor")?.u32()?,
            model_id: root.need("modelID")?.text()?.to_owned(),
            source_snapshot_hash: root
                .optional("sourceSnapshotHash", |hash| Ok(hash.text()?.to_owned()))?,
            flags: Flags::decode(&root.need("flags")?.object()?)?,
            arch: Arch::decode(&root.need("arch")?.object()?)?,
            quant: root.optional("quant", |quant| Quant::decode(&quant.object()?))?,
            files: decode_files(&root.need("files")?.object()?)?,
            experts_per_layer: root.need("expertsPerLayer")?.dimension()?,
            num_layers: root.need("numLayers")?.dimension()?,
            expert_stride: root.need("expertStride")?.u64()?,
            bit_width_overrides_honored: root
                .optional("bitWidthOverridesHonored", |count| count.u32())?,
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// The bytes of `manifest.json`.
    ///
    /// # Panics
    /// When [`Manifest::check`] fails.
    pub fn encode(&self) -> Vec<u8> {
        if let Err(error) = self.check() {
            panic!("not a manifest: {error}");
        }
        json::encode(self)
    }

    /// Checks what the format demands of a manifest, whoever made it.
    ///
    /// # Errors
    /// A [`FormatError`] that names the field.
    pub fn check(&self) -> Result<(), FormatError> {
        self.flags.check()?;
        self.arch.check()?;
        if let Some(quant) = &self.quant {
            quant.check()?;
        }
        paths::check_list(&self.files, &[paths::MANIFEST, paths::RECEIPT])?;
        agree(
            "numLayers",
            self.num_layers,
            "arch.numLayers",
            self.arch.num_layers,
        )?;
        agree(
            "expertsPerLayer",
            self.experts_per_layer,
            "arch.numExperts",
            self.arch.num_experts,
        )?;
        check_stride("expertStride", self.expert_stride)
    }

    /// The record of the file at `path`.
    ///
    /// # Errors
    /// [`FormatError::FileNotListed`].
    pub fn file(&self, path: &str) -> Result<&FileRecord, FormatError> {
        self.files
            .get(path)
            .ok_or_else(|| FormatError::FileNotListed {
                path: path.to_owned(),
            })
    }

    /// Checks that `layout` is this model's: its stride and counts, and that each of its files is listed with the right size.
    ///
    /// # Errors
    /// [`FormatError::Disagreement`], [`FormatError::FileNotListed`], [`FormatError::SizeMismatch`].
    pub fn check_layout(&self, layout: &Layout) -> Result<(), FormatError> {
        agree(
            "layout.json's expertStride",
            layout.expert_stride,
            "manifest.json's",
            self.expert_stride,
        )?;
        agree(
            "layout.json's numLayers",
            layout.num_layers,
            "manifest.json's",
            self.num_layers,
        )?;
        agree(
            "layout.json's expertsPerLayer",
            layout.experts_per_layer,
            "manifest.json's",
            self.experts_per_layer,
        )?;
        // No overflow: `Layout::check` ran, or the layout came from its parser.
        let expected = layout
            .expert_stride
            .saturating_mul(u64::from(layout.experts_per_layer));
        for layer in &layout.layers {
            let path = paths::in_experts_dir(&layer.file);
            let actual = self.file(&path)?.size;
            if actual != expected {
                return Err(FormatError::SizeMismatch {
                    name: path,
                    expected,
                    actual,
                });
            }
        }
        Ok(())
    }
}

/// Magic and major version come first: of another format no other field means anything.
fn check_version(root: &Object<'_, '_>) -> Result<(), FormatError> {
    let magic = root.need("magic")?.text()?;
    if magic != MAGIC {
        let actual = magic.chars().take(80).collect();
        return Err(FormatError::WrongMagic {
            what: WHAT,
            expected: MAGIC,
            actual,
        });
    }
    let actual = root.need("versionMajor")?.u64()?;
    if actual != u64::from(VERSION_MAJOR) {
        return Err(FormatError::UnsupportedVersion {
            what: WHAT,
            expected: VERSION_MAJOR.into(),
            actual,
        });
    }
    Ok(())
}

pub(crate) fn agree<T: PartialEq + ToString>(
    field: &str,
    actual: T,
    other: &str,
    expected: T,
) -> Result<(), FormatError> {
    if actual == expected {
        return Ok(());
    }
    Err(FormatError::Disagreement {
        field: field.to_owned(),
        actual: actual.to_string(),
        other: other.to_owned(),
        expected: expected.to_string(),
    })
}

pub(crate) fn check_stride(field: &'static str, stride: u64) -> Result<(), FormatError> {
    if stride == 0 || !stride.is_multiple_of(ALIGNMENT) {
        return Err(FormatError::StrideNotAligned {
            field,
            actual: stride,
        });
    }
    Ok(())
}

pub(crate) fn decode_files(
    object: &Object<'_, '_>,
) -> Result<BTreeMap<String, FileRecord>, FormatError> {
    object
        .fields()
        .map(|(path, record)| {
            let record = record.object()?;
            let digits = record.need("sha256")?.text()?;
            let record = FileRecord {
                size: record.need("size")?.u64()?,
                sha256: Sha256Hex::parse(&record.path_of("sha256"), digits)?,
            };
            Ok((path.to_owned(), record))
        })
        .collect()
}

impl Flags {
    fn named(&self) -> [(&'static str, bool); 3] {
        [
            ("streamingPresent", self.streaming_present),
            ("turboQuantKV", self.turbo_quant_kv),
            ("aneSharedExpert", self.ane_shared_expert),
        ]
    }

    fn check(&self) -> Result<(), FormatError> {
        for ((flag, actual), (_, supported)) in
            self.named().into_iter().zip(Flags::default().named())
        {
            if actual != supported {
                return Err(FormatError::UnsupportedFlag { flag, actual });
            }
        }
        Ok(())
    }

    fn decode(object: &Object<'_, '_>) -> Result<Flags, FormatError> {
        let known = Flags::default().named();
        if let Some((flag, _)) = object
            .fields()
            .find(|(name, _)| known.iter().all(|(known, _)| known != name))
        {
            return Err(FormatError::UnknownFlag {
                flag: flag.to_owned(),
            });
        }
        let flag = |name| object.need(name)?.bool();
        Ok(Flags {
            streaming_present: flag("streamingPresent")?,
            turbo_quant_kv: flag("turboQuantKV")?,
            ane_shared_expert: flag("aneSharedExpert")?,
        })
    }
}

impl Quant {
    fn named(&self) -> [(&'static str, u32); 5] {
        [
            ("embedding", self.embedding),
            ("attention", self.attention),
            ("router", self.router),
            ("sharedExpert", self.shared_expert),
            ("routedExpert", self.routed_expert),
        ]
    }

    fn check(&self) -> Result<(), FormatError> {
        for (place, bits) in self.named() {
            if bits != 4 && bits != 8 {
                let feature = format!("quant.{place}.weightBits");
                return Err(FormatError::UnsupportedFeature {
                    feature,
                    value: bits.to_string(),
                });
            }
        }
        Ok(())
    }

    fn decode(object: &Object<'_, '_>) -> Result<Quant, FormatError> {
        let bits = |place| {
            let slot = object.need(place)?.object()?;
            for (name, expected) in SLOT_TEXTS {
                let value = slot.need(name)?.text()?;
                if value != expected {
                    return Err(FormatError::UnsupportedFeature {
                        feature: slot.path_of(name),
                        value: value.to_owned(),
                    });
                }
            }
            let group_size = slot.need("groupSize")?.u32()?;
            if group_size != GROUP_SIZE {
                let feature = slot.path_of("groupSize");
                return Err(FormatError::UnsupportedFeature {
                    feature,
                    value: group_size.to_string(),
                });
            }
            slot.need("weightBits")?.u32()
        };
        Ok(Quant {
            embedding: bits("embedding")?,
            attention: bits("attention")?,
            router: bits("router")?,
            shared_expert: bits("sharedExpert")?,
            routed_expert: bits("routedExpert")?,
        })
    }
}

/// The texts that every slot of `quant` holds.
const SLOT_TEXTS: [(&str, &str); 3] = [
    ("scheme", "affine"),
    ("scaleType", "BF16"),
    ("biasType", "BF16"),
];

struct QuantSlot(u32);

impl Encode for QuantSlot {
    fn encode(&self, w: &mut Writer) {
        let mut fields: Vec<(&str, &dyn Encode)> =
            vec![("groupSize", &GROUP_SIZE), ("weightBits", &self.0)];
        fields.extend(
            SLOT_TEXTS
                .iter()
                .map(|(name, text)| (*name, text as &dyn Encode)),
        );
        w.object(fields);
    }
}

impl Encode for Quant {
    fn encode(&self, w: &mut Writer) {
        let slots = self.named().map(|(place, bits)| (place, QuantSlot(bits)));
        w.object(
            slots
                .iter()
                .map(|(place, slot)| (*place, slot as &dyn Encode))
                .collect(),
        );
    }
}

impl Encode for Flags {
    fn encode(&self, w: &mut Writer) {
        let named = self.named();
        w.object(
            named
                .iter()
                .map(|(name, value)| (*name, value as &dyn Encode))
                .collect(),
        );
    }
}

impl Encode for Sha256Hex {
    fn encode(&self, w: &mut Writer) {
        self.to_string().encode(w);
    }
}

impl Encode for FileRecord {
    fn encode(&self, w: &mut Writer) {
        let fields: Vec<(&str, &dyn Encode)> = vec![("sha256", &self.sha256), ("size", &self.size)];
        w.object(fields);
    }
}

impl Encode for Manifest {
    fn encode(&self, w: &mut Writer) {
        let mut fields: Vec<(&str, &dyn Encode)> = vec![
            ("magic", &MAGIC),
            ("versionMajor", &VERSION_MAJOR),
            ("versionMinor", &self.version_minor),
            ("modelID", &self.model_id),
            ("flags", &self.flags),
            ("arch", &self.arch),
            ("files", &self.files),
            ("expertsPerLayer", &self.experts_per_layer),
            ("numLayers", &self.num_layers),
            ("expertStride", &self.expert_stride),
        ];
        if let Some(hash) = &self.source_snapshot_hash {
            fields.push(("sourceSnapshotHash", hash));
        }
        if let Some(quant) = &self.quant {
            fields.push(("quant", quant));
        }
        if let Some(count) = &self.bit_width_overrides_honored {
            fields.push(("bitWidthOverridesHonored", count));
        }
        w.object(fields);
    }
}
