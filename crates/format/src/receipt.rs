//! `verified-install.json`: what was hashed when the directory was installed or last verified.
//!
//! It vouches for sizes and hashes. The path it records is where that happened; a directory that was moved stays verified.

use std::collections::BTreeMap;

use crate::json::{self, Encode, Writer};
use crate::manifest::decode_files;
use crate::{FileRecord, FormatError, Sha256Hex, paths};

const WHAT: &str = "verified-install.json";
const SCHEMA_VERSION: u32 = 1;

/// A decoded receipt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// SHA-256 of `manifest.json`.
    pub manifest_sha256: Sha256Hex,
    /// Where the directory lay.
    pub model_directory_path: String,
    /// When, in ISO 8601: [`timestamp`].
    pub verification_timestamp: String,
    /// The program that verified, and its version.
    pub tool_version: String,
    /// The manifest's files and the manifest itself.
    pub files: BTreeMap<String, FileRecord>,
    /// The source's repository, where there was one.
    pub source_repo_id: Option<String>,
    /// The source's revision, where there was one.
    pub source_revision: Option<String>,
}

impl Receipt {
    /// Decodes and checks a receipt.
    ///
    /// # Errors
    /// A [`FormatError`] that names the field.
    pub fn parse(bytes: &[u8]) -> Result<Receipt, FormatError> {
        let json = json::parse(WHAT, json::MAX_JSON_BYTES, bytes)?;
        let root = json.root(WHAT)?;
        let actual = root.need("schemaVersion")?.u64()?;
        if actual != u64::from(SCHEMA_VERSION) {
            return Err(FormatError::UnsupportedVersion {
                what: WHAT,
                expected: SCHEMA_VERSION.into(),
                actual,
            });
        }
        let text = |name| Ok::<_, FormatError>(root.need(name)?.text()?.to_owned());
        let receipt = Receipt {
            manifest_sha256: Sha256Hex::parse(
                "manifestSha256",
                root.need("manifestSha256")?.text()?,
            )?,
            model_directory_path: text("modelDirectoryPath")?,
            verification_timestamp: text("verificationTimestamp")?,
            tool_version: text("toolVersion")?,
            files: decode_files(&root.need("files")?.object()?)?,
            source_repo_id: root.optional("sourceRepoID", |text| Ok(text.text()?.to_owned()))?,
            source_revision: root.optional("sourceRevision", |text| Ok(text.text()?.to_owned()))?,
        };
        receipt.check()?;
        Ok(receipt)
    }

    /// The bytes of `verified-install.json`.
    ///
    /// # Panics
    /// When [`Receipt::check`] fails.
    pub fn encode(&self) -> Vec<u8> {
        if let Err(error) = self.check() {
            panic!("not a receipt: {error}");
        }
        json::encode(self)
    }

    /// Checks what has to hold, whoever made it.
    ///
    /// # Errors
    /// An error of the file list; [`FormatError::FileNotListed`] without the manifest; [`FormatError::Disagreement`] about its hash.
    pub fn check(&self) -> Result<(), FormatError> {
        paths::check_list(&self.files, &[paths::RECEIPT])?;
        let path = paths::MANIFEST;
        let manifest = self
            .files
            .get(path)
            .ok_or_else(|| FormatError::FileNotListed {
                path: path.to_owned(),
            })?;
        crate::manifest::agree(
            "manifestSha256",
            self.manifest_sha256.to_string(),
            "files.manifest.json.sha256",
            manifest.sha256.to_string(),
        )
    }
}

impl Encode for Receipt {
    fn encode(&self, w: &mut Writer) {
        let mut fields: Vec<(&str, &dyn Encode)> = vec![
            ("schemaVersion", &SCHEMA_VERSION),
            ("manifestSha256", &self.manifest_sha256),
            ("modelDirectoryPath", &self.model_directory_path),
            ("verificationTimestamp", &self.verification_timestamp),
            ("toolVersion", &self.tool_version),
            ("files", &self.files),
        ];
        if let Some(repo) = &self.source_repo_id {
            fields.push(("sourceRepoID", repo));
        }
        if let Some(revision) = &self.source_revision {
            fields.push(("sourceRevision", revision));
        }
        w.object(fields);
    }
}

/// The ISO 8601 text, in UTC, of a moment in seconds since 1970: `2026-02-28T23:59:59Z`.
pub fn timestamp(unix_seconds: u64) -> String {
    const DAY: u64 = 86_400;
    /// Days of 400 Gregorian years, after which the calendar repeats.
    const ERA: u64 = 146_097;
    let (day, second) = (unix_seconds / DAY, unix_seconds % DAY);
    // Count from 1 March of year 0, so that the leap day is a year's last day; 1970-01-01 is day 719,468 of that count.
    let day = day + 719_468;
    let (era, day) = (day / ERA, day % ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Months from March have 31, 30, 31, 30, 31 days, again and again: 153 in five.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    let year = 400 * era + year + carry;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}
