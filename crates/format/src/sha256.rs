//! A SHA-256 as the format writes it: 64 hexadecimal digits. Computing one is the business of `storage`.

use std::fmt;
use std::str::FromStr;

use crate::FormatError;

/// A SHA-256 digest; reads digits of either case, writes lower case.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Hex([u8; 32]);

impl Sha256Hex {
    /// The digest of these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Sha256Hex(bytes)
    }

    /// The digest's bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Reads 64 digits; `path` is the file that an error names.
    pub(crate) fn parse(path: &str, digits: &str) -> Result<Self, FormatError> {
        decode(digits)
            .map(Sha256Hex)
            .ok_or_else(|| FormatError::BadHash {
                path: path.to_owned(),
                actual: digits.chars().take(80).collect(),
            })
    }
}

fn decode(digits: &str) -> Option<[u8; 32]> {
    let digits: &[u8; 64] = digits.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = (high * 16 + low) as u8;
    }
    Some(bytes)
}

impl FromStr for Sha256Hex {
    type Err = FormatError;

    fn from_str(digits: &str) -> Result<Self, FormatError> {
        Sha256Hex::parse("SHA-256", digits)
    }
}

impl fmt::Display for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
