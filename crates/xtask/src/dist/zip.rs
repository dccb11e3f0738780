//! Zip archives of files with permissions as Unix has them; a system that has none passes over them.

use anyhow::Context;

use super::gzip::{crc32, deflate};
use super::tree::Tree;

/// What is needed to read it: folders and deflate.
const VERSION: u16 = 20;
/// Names are UTF-8.
const UTF8: u16 = 1 << 11;
const DEFLATE: u16 = 8;
/// Made on Unix, so that the permissions are heard.
const MADE_BY: u16 = 3 << 8 | VERSION;
/// A regular file.
const REGULAR: u32 = 0o100_000;

/// All files, sorted. Folders come with their files.
pub fn write(tree: &Tree, time: u64) -> anyhow::Result<Vec<u8>> {
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    let moment = dos_time(time);
    for (path, entry) in tree.files() {
        let at = u32::try_from(out.len()).context("the archive is too large")?;
        let size = u32::try_from(entry.bytes.len()).with_context(|| path.to_owned())?;
        let packed = deflate(&entry.bytes);
        let mut facts = Vec::new();
        facts.extend(UTF8.to_le_bytes());
        facts.extend(DEFLATE.to_le_bytes());
        facts.extend(moment);
        facts.extend(crc32(&entry.bytes).to_le_bytes());
        facts.extend(u32::try_from(packed.len())?.to_le_bytes());
        facts.extend(size.to_le_bytes());
        facts.extend(u16::try_from(path.len())?.to_le_bytes());
        // No further fields.
        facts.extend([0; 2]);
        out.extend(b"PK\x03\x04");
        out.extend(VERSION.to_le_bytes());
        out.extend(&facts);
        out.extend(path.as_bytes());
        out.extend(packed);
        directory.extend(b"PK\x01\x02");
        directory.extend(MADE_BY.to_le_bytes());
        directory.extend(VERSION.to_le_bytes());
        directory.extend(&facts);
        // No comment, the first disk, no attributes of DOS.
        directory.extend([0; 6]);
        directory.extend(((REGULAR | entry.mode()) << 16).to_le_bytes());
        directory.extend(at.to_le_bytes());
        directory.extend(path.as_bytes());
    }
    let n_files = u16::try_from(tree.files().count())?;
    let at = u32::try_from(out.len()).context("the archive is too large")?;
    let n_bytes = u32::try_from(directory.len())?;
    out.extend(directory);
    out.extend(b"PK\x05\x06");
    out.extend([0; 4]);
    out.extend(n_files.to_le_bytes());
    out.extend(n_files.to_le_bytes());
    out.extend(n_bytes.to_le_bytes());
    out.extend(at.to_le_bytes());
    out.extend([0; 2]);
    Ok(out)
}

/// Time and date as DOS has them, in two seconds from 1980, where zip has no other clock.
fn dos_time(time: u64) -> [u8; 4] {
    let (year, month, day) = super::help::date(time);
    let second = time % 86400;
    let clock = (second / 3600) << 11 | (second / 60 % 60) << 5 | ((second % 60) / 2);
    let date = year.clamp(1980, 2107) - 1980;
    let date = date << 9 | month << 5 | day;
    let [low, high] = (clock as u16).to_le_bytes();
    let [date_low, date_high] = (date as u16).to_le_bytes();
    [low, high, date_low, date_high]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_dos() {
        // 2026-11-30, 23:42:08.
        let [a, b, c, d] = dos_time(1_796_082_128);
        assert_eq!(u16::from_le_bytes([a, b]), 23 << 11 | 42 << 5 | 4);
        assert_eq!(u16::from_le_bytes([c, d]), 46 << 9 | 11 << 5 | 30);
    }
}
