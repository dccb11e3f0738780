//! Bodies of the fuzz targets: each takes arbitrary bytes and must return. The seeded smoke test in the suite calls the same functions.

use crate::prefix::file::{Header, seal};

/// Reads bytes as the head of a file that holds kept rows; with `reseal`, after writing the checksum they call for, so that the fields
/// are reached. Returns whether they are a head; then it was also used, and written again.
///
/// # Panics
/// If what is written again is read as something else.
pub fn prefix_head(bytes: &[u8], reseal: bool) -> bool {
    let mut bytes = bytes.to_vec();
    if reseal {
        seal(&mut bytes);
    }
    let Some(header) = Header::parse(&bytes) else {
        return false;
    };
    if header.file_bytes().is_some() {
        let last = header.n_pieces() - 1;
        let (first, end) = (header.piece(0), header.piece(last));
        assert_eq!((first.start, end.end), (header.rows.start, header.rows.end));
        assert_eq!(header.pieces_of(&header.rows), 0..last + 1);
    }
    let again = header.encode().expect("memory for as many bytes again");
    assert_eq!(Header::parse(&again), Some(header));
    true
}
