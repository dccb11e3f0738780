//! One large piece of memory that is cut into pieces which change hands.
//!
//! A [`Region`] owns its bytes alone, as a `Vec<u8>` does; splitting gives part of them to a new owner, and nothing is ever
//! joined again, so no two regions cover one byte. The memory goes back to the system with the last piece.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::{AlignedBuf, StorageError};

/// A piece of a shared allocation, owned alone.
#[derive(Debug)]
pub struct Region {
    /// Keeps the memory alive; its bytes are reached through the regions only.
    whole: Arc<AlignedBuf>,
    start: usize,
    len: usize,
}

impl Region {
    /// `len` zero bytes that start at a multiple of [`AlignedBuf::ALIGNMENT`]. The system makes them resident as they are touched.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`].
    pub fn new(len: usize) -> Result<Region, StorageError> {
        Ok(Region {
            whole: Arc::new(AlignedBuf::new(len)?),
            start: 0,
            len,
        })
    }

    /// Gives up the bytes from `at` on.
    ///
    /// # Panics
    /// If `at` is beyond the end.
    pub fn split_off(&mut self, at: usize) -> Region {
        assert!(at <= self.len, "cut at {at} of {} bytes", self.len);
        let rest = Region {
            whole: Arc::clone(&self.whole),
            start: self.start + at,
            len: self.len - at,
        };
        self.len = at;
        rest
    }
}

impl Deref for Region {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start..start + len` lies in the allocation: `new` covers all of it and `split_off` only divides. The regions of one
        // allocation are disjoint and nobody else reaches its bytes, so a shared borrow of this region excludes writes to them.
        unsafe { std::slice::from_raw_parts(self.whole.start().add(self.start), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.whole.start().add(self.start), self.len) }
    }
}
