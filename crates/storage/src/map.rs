//! A file mapped into memory for reading.

use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use crate::{StorageError, sys};

/// The bytes of a file, paged in as they are touched. For small files that are read at random; never for experts.
#[derive(Debug)]
pub struct Mmap(sys::Map);

impl Mmap {
    /// Maps the whole file. Whoever writes such a file must replace it, never change it in place.
    ///
    /// # Errors
    /// [`StorageError::Io`].
    pub fn open(path: &Path) -> Result<Mmap, StorageError> {
        let map = File::open(path).and_then(|file| {
            let len = file.metadata()?.len();
            let len = usize::try_from(len).map_err(|_| std::io::ErrorKind::FileTooLarge)?;
            sys::Map::new(&file, len)
        });
        map.map(Mmap)
            .map_err(|source| StorageError::io("mapping", path, source))
    }
}

impl Deref for Mmap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}
