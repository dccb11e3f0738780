//! What the hub's programming interface says about a revision: its commit, its files, its terms.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The largest listing that is read: some thousand files.
pub const MAX_BYTES: usize = 16 << 20;

/// A file of the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// In bytes, where the hub says it.
    pub size: Option<u64>,
    /// The entity that the hub names when the file is resolved: SHA-256 of large files, the hash of a blob of others.
    pub entity: Option<String>,
}

/// A revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The commit that the revision is.
    pub commit: String,
    /// The files that lie in no folder.
    pub files: BTreeMap<String, Listed>,
    /// The licence, as the repository states it.
    pub licence: Option<String>,
}

#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
    #[serde(rename = "cardData", default)]
    card: Option<Card>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    #[serde(default)]
    size: Option<u64>,
    #[serde(rename = "blobId", default)]
    blob: Option<String>,
    #[serde(default)]
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    #[serde(default)]
    sha256: Option<String>,
}

#[derive(Deserialize)]
struct Card {
    #[serde(default)]
    license: Option<serde_json::Value>,
    #[serde(default)]
    license_name: Option<serde_json::Value>,
}

impl Listing {
    /// Reads an answer; `None` if it is none.
    pub fn parse(bytes: &[u8]) -> Option<Listing> {
        let answer: Answer = serde_json::from_slice(bytes).ok()?;
        let is_commit = |text: &str| {
            (40..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
        };
        if !is_commit(&answer.sha) {
            return None;
        }
        let files = answer.siblings.into_iter();
        let files = files.filter(|file| !file.rfilename.contains(['/', '\\']));
        let files = files.map(|file| {
            let sha256 = file.lfs.and_then(|lfs| lfs.sha256);
            let listed = Listed {
                size: file.size,
                entity: sha256.or(file.blob),
            };
            (file.rfilename, listed)
        });
        let licence = answer.card.and_then(|card| {
            let named = card.license_name.as_ref().and_then(|name| name.as_str());
            let licence = named.or(card.license.as_ref()?.as_str());
            // It goes to a terminal.
            licence.map(|text| text.escape_debug().take(80).collect())
        });
        Some(Listing {
            commit: answer.sha,
            files: files.collect(),
            licence,
        })
    }
}
