//! Where things lie in a model directory, and which paths a list of files may hold.
//!
//! Paths come from a file that anyone may have written and end up in calls that create, read and delete. So they are checked for
//! the strictest of the systems that a directory may travel to: what is one file on macOS or Windows counts as one file here.

use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization;

use crate::{FormatError, PathFault};

/// Written last: its presence says that the directory is complete.
pub const MANIFEST: &str = "manifest.json";
/// What was hashed when the directory was installed.
pub const RECEIPT: &str = "verified-install.json";
/// The resident tensors behind their index.
pub const WEIGHTS: &str = "model_weights.bin";
/// The folder of the routed experts.
pub const EXPERTS_DIR: &str = "packed_experts";
/// Where each expert lies.
pub const LAYOUT: &str = "packed_experts/layout.json";
/// One checksum an expert.
pub const CHECKSUMS: &str = "packed_experts/checksums.bin";
/// The folder of the tokenizer and the source's configuration.
pub const TOKENIZER_DIR: &str = "tokenizer";
/// The source's tokenizer.
pub const TOKENIZER: &str = "tokenizer/tokenizer.json";
/// The source's configuration.
pub const CONFIG: &str = "tokenizer/config.json";
/// The source's generation settings; absent in directories of other writers.
pub const GENERATION_CONFIG: &str = "tokenizer/generation_config.json";
/// The source's chat template.
pub const CHAT_TEMPLATE: &str = "tokenizer/chat_template.jinja";

/// The longest path in bytes; the shortest limit of common systems is Windows' 260 characters, of which the base takes its share.
pub const MAX_PATH_BYTES: usize = 240;

/// The name that writers give the expert file of a layer, inside [`EXPERTS_DIR`].
pub fn layer_file(layer: u32) -> String {
    format!("layer_{layer:02}.bin")
}

/// The path of an expert file from the directory's root.
pub fn in_experts_dir(file: &str) -> String {
    format!("{EXPERTS_DIR}/{file}")
}

/// Checks that `path` names something below the directory it is joined to, on every system.
///
/// # Errors
/// [`FormatError::UnsafePath`] with the rule that it breaks.
pub fn check_path(path: &str) -> Result<(), FormatError> {
    match fault(path) {
        None => Ok(()),
        Some(fault) => Err(FormatError::UnsafePath {
            path: path.to_owned(),
            fault,
        }),
    }
}

/// Like [`check_path`], for a bare file name.
///
/// # Errors
/// [`FormatError::UnsafePath`] with the rule that it breaks.
pub fn check_file_name(name: &str) -> Result<(), FormatError> {
    check_path(name)?;
    if name.contains('/') {
        return Err(FormatError::UnsafePath {
            path: name.to_owned(),
            fault: PathFault::Folder,
        });
    }
    Ok(())
}

fn fault(path: &str) -> Option<PathFault> {
    if path.is_empty() {
        return Some(PathFault::Empty);
    }
    if path.len() > MAX_PATH_BYTES {
        return Some(PathFault::TooLong);
    }
    if path.starts_with('/') {
        return Some(PathFault::Absolute);
    }
    for c in path.chars() {
        match c {
            '\0' => return Some(PathFault::Nul),
            '\\' => return Some(PathFault::Backslash),
            ':' => return Some(PathFault::Colon),
            _ => {}
        }
    }
    path.split('/').find_map(|component| match component {
        "" => Some(PathFault::EmptyComponent),
        "." | ".." => Some(PathFault::DotComponent),
        _ => None,
    })
}

/// What two paths have in common if some system takes them for one: Unicode NFC, then lower case.
fn folded(path: &str) -> String {
    path.nfc().collect::<String>().to_lowercase()
}

/// Checks each path of a list and all of them together; `reserved` are those that the list may not hold.
pub(crate) fn check_list<T>(
    files: &BTreeMap<String, T>,
    reserved: &[&str],
) -> Result<(), FormatError> {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for path in files.keys() {
        check_path(path)?;
        let folded = folded(path);
        if reserved.contains(&folded.as_str()) {
            return Err(FormatError::ReservedPath { path: path.clone() });
        }
        if let Some(other) = seen.insert(folded, path) {
            return Err(FormatError::DuplicatePath {
                path: path.clone(),
                other: other.to_owned(),
            });
        }
    }
    for (folded, path) in &seen {
        for (end, _) in folded.match_indices('/') {
            if let Some(ancestor) = seen.get(&folded[..end]) {
                return Err(FormatError::AncestorPath {
                    path: (*path).to_owned(),
                    ancestor: (*ancestor).to_owned(),
                });
            }
        }
    }
    Ok(())
}
