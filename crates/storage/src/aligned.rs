//! Memory that a direct read may go to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::StorageError;

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
        let no_memory = StorageError::NoMemory { bytes: len };
        if len == 0 {
            return Ok(AlignedBuf {
                start: NonNull::<Aligned>::dangling().cast(),
                len,
            });
        }
        let Ok(layout) = Layout::from_size_align(len, Self::ALIGNMENT) else {
            return Err(no_memory);
        };
        // SAFETY: the layout's size is not zero: checked above.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start) {
            Some(start) => Ok(AlignedBuf { start, len }),
            None => Err(no_memory),
        }
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
        let layout = Layout::from_size_align(self.len, Self::ALIGNMENT)
            .expect("the layout it was made with");
        // SAFETY: `new` allocated `start` with this layout, and nothing else frees it.
        unsafe { dealloc(self.start.as_ptr(), layout) }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points to `len` initialised bytes that live as long as `self`, or is dangling but aligned with `len` 0.
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
