//! Tape archives as POSIX has them since 1988 (`ustar`), of files and folders that belong to root.

use anyhow::{Context, ensure};

use super::tree::Tree;

const BLOCK: usize = 512;
/// Readers of old take this many blocks at once.
const BLOCKS_AT_ONCE: usize = 20;

/// Folders first, then files, each sorted; every path begins with `prefix`.
pub fn write(tree: &Tree, prefix: &str, time: u64) -> anyhow::Result<Vec<u8>> {
    let mut out = Vec::new();
    if !prefix.is_empty() {
        out.extend(header(prefix, 0o755, 0, time, b'5')?);
    }
    for folder in tree.folders() {
        let path = format!("{prefix}{folder}/");
        out.extend(header(&path, 0o755, 0, time, b'5')?);
    }
    for (path, entry) in tree.files() {
        let path = format!("{prefix}{path}");
        let n_bytes = entry.bytes.len();
        out.extend(header(&path, entry.mode(), n_bytes, time, b'0')?);
        out.extend(&entry.bytes);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out.resize(out.len().next_multiple_of(BLOCKS_AT_ONCE * BLOCK), 0);
    Ok(out)
}

fn header(
    path: &str,
    mode: u32,
    n_bytes: usize,
    time: u64,
    kind: u8,
) -> anyhow::Result<[u8; BLOCK]> {
    let mut block = [0; BLOCK];
    let (above, name) = split(path).with_context(|| format!("{path}: too long for an archive"))?;
    let mut put =
        |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    let (size, time) = (format!("{n_bytes:011o}"), format!("{time:011o}"));
    ensure!(size.len() == 11 && time.len() == 11, "{path}: too large");
    put(124, &size);
    put(136, &time);
    // The sum is taken with spaces in its own place.
    put(148, "        ");
    put(257, "ustar\x0000");
    put(265, "root");
    put(297, "root");
    put(345, above);
    block[156] = kind;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(block)
}

/// A path in two parts, where it does not fit into the first field.
fn split(path: &str) -> Option<(&str, &str)> {
    const NAME: usize = 100;
    const PREFIX: usize = 155;
    if path.len() <= NAME {
        return Some(("", path));
    }
    let mut cuts = path.match_indices('/').map(|(at, _)| at);
    let cut = cuts.find(|at| path.len() - at - 1 <= NAME)?;
    (cut <= PREFIX && cut + 1 < path.len()).then(|| (&path[..cut], &path[cut + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_are_cut_at_a_folder_or_refused() {
        let long = format!("{}/{}", "a".repeat(90), "b".repeat(90));
        let (above, name) = split(&long).unwrap();
        assert_eq!((above.len(), name.len()), (90, 90));
        assert!(split(&"a".repeat(101)).is_none());
        assert!(split(&format!("{}/b", "a".repeat(156))).is_none());
    }
}
