//! What Linux and macOS share.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// One read at `offset`, possibly short.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

/// Makes the names in a folder durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// A private read-only mapping.
#[derive(Debug)]
pub struct Map {
    start: *mut std::ffi::c_void,
    len: usize,
}

// SAFETY: the mapping is read-only memory that this value owns alone.
unsafe impl Send for Map {}
// SAFETY: sharing it gives shared access to bytes that nobody in this process writes.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `len` bytes.
    pub fn new(file: &File, len: usize) -> io::Result<Map> {
        if len == 0 {
            return Ok(Map {
                start: std::ptr::null_mut(),
                len,
            });
        }
        // SAFETY: the kernel chooses the address, so no existing memory is replaced; the length is not zero.
        let start = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::PRIVATE,
                file,
                0,
            )?
        };
        Ok(Map { start, len })
    }

    /// The mapped bytes.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `start` is a live mapping of `len` readable bytes. The files mapped are replaced, never changed in place
        // (the contract of `Mmap::open`), so the bytes do not change under the reference.
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `new` mapped exactly this range, and no reference outlives `self`. A failure leaves the mapping in place.
            let _ = unsafe { munmap(self.start, self.len) };
        }
    }
}
