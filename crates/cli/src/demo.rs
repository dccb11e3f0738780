//! The bundled model: a checkpoint that is part of the program, unpacked once into the user's models folder.
//!
//! It goes through the same installation as any other checkpoint, so the first command shows what the real model does. Each start
//! hashes the unpacked files, some 26 MB, and unpacks them again where they are damaged.

use std::fs;
use std::path::{Path, PathBuf};

use ouzel_install::{Embedded, InstallOptions, install, verify_dir};
use ouzel_storage::{DirLock, OsDisk, StorageError};

/// Expert slots of each layer where nothing else is asked for: of 32 experts, so that the model really streams.
pub const SLOTS: u32 = 8;

/// The first 16 digits of the SHA-256 of all files, each name and its content in order; a test compares it.
const CONTENT: &str = "e54062275b9641ec";

macro_rules! files {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_bytes!(concat!("../../../models/demo/", $name)).as_slice())),*]
    };
}

const FILES: &[(&str, &[u8])] = files![
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "tokenizer.json",
    "tokenizer_config.json",
];

/// Bytes of its checkpoint.
pub fn bytes() -> u64 {
    FILES.iter().map(|(_, bytes)| bytes.len() as u64).sum()
}

/// Whether a path in the models folder is the bundled model of this program or of another version.
pub fn is_demo(path: &Path) -> bool {
    let name = path
        .file_stem()
        .and_then(|stem| stem.to_str())
        .unwrap_or("");
    let digits = name.strip_prefix("demo-").unwrap_or("");
    digits.len() == CONTENT.len() && digits.bytes().all(|b| b.is_ascii_hexdigit())
}

/// The directory of the bundled model, verified; unpacks it if it is missing or damaged.
pub fn unpack(models: &Path) -> anyhow::Result<PathBuf> {
    let dir = models.join(format!("demo-{CONTENT}.gturbo"));
    let is_good = || verify_dir(&OsDisk, &dir, &mut |_| {}).is_ok_and(|found| found.has_receipt);
    if is_good() {
        return Ok(dir);
    }
    fs::create_dir_all(models)
        .map_err(|source| StorageError::io("making the folder", models, source))?;
    let _lock = DirLock::acquire(&models.join("demo.lock"))?;
    // Another process may have unpacked it while this one waited.
    if !is_good() {
        let options = InstallOptions {
            overwrite: true,
            model_id: Some("ouzel-demo-47m".to_owned()),
            ..InstallOptions::default()
        };
        install(&Embedded::new(FILES), &OsDisk, &dir, &options, &mut |_| {})?;
        verify_dir(&OsDisk, &dir, &mut |_| {})?;
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ouzel_storage::Sha256;

    #[test]
    fn the_directory_is_named_after_the_content() {
        let mut hash = Sha256::new();
        for (name, bytes) in FILES {
            hash.update(name.as_bytes());
            hash.update(bytes);
        }
        let digits: String = hash.finish()[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        assert_eq!(
            CONTENT, digits,
            "the bundled files changed: their name changes with them"
        );
    }

    #[test]
    fn only_the_bundled_model_has_its_name() {
        for (name, expected) in [
            ("demo-0123456789abcdef.gturbo", true),
            ("demo-0123456789abcde.gturbo", false),
            ("demo-large.gturbo", false),
            ("gemma.gturbo", false),
        ] {
            assert_eq!(is_demo(Path::new(name)), expected, "{name}");
        }
    }
}
