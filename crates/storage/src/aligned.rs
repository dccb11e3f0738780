//! Memory that a direct read may go to. It comes from the system itself: zeroed, resident as it is touched, in huge pages where
//! there are any, given back at once.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::{StorageError, sys};

/// A zeroed buffer whose address is a multiple of [`AlignedBuf::ALIGNMENT`].
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its bytes alone, as a `Box<[u8]>` would; bytes may move to another thread.
unsafe impl Send for AlignedBuf {}
// SAFETY: a shared `AlignedBuf` only gives shared access to plain bytes.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// 16 KiB: a page of every system, a block of every disk, and the alignment of the file format.
    pub const ALIGNMENT: usize = 16_384;

    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    /// [`StorageError::NoMemory`].
    pub fn new(len: usize) -> Result<AlignedBuf, StorageError> {
        if len == 0 {
            return Ok(AlignedBuf {
                start: NonNull::<Aligned>::dangling().cast(),
                len,
            });
        }
        match sys::allocate(len, Self::ALIGNMENT) {
            Some(start) => Ok(AlignedBuf { start, len }),
            None => Err(StorageError::NoMemory { bytes: len }),
        }
    }

    /// The first byte. Whoever writes through it must own the bytes alone.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }
}

/// Only lends its alignment to the empty buffer's address.
#[repr(align(16384))]
struct Aligned;

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.len == 0 {
            return;
        }
        // SAFETY: `new` allocated `len` bytes at `start`, and nothing else frees them.
        unsafe { sys::release(self.start, self.len) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` zeroed bytes that live as long as `self`, or is dangling but aligned with `len` 0.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}
