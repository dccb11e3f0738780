//! What Linux and macOS share.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::NonNull;

use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// One read at `offset`, possibly short.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.read_at(buf, offset)
}

/// Writes all of `bytes` at `offset`.
pub fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    file.write_all_at(bytes, offset)
}

/// Bytes of the disk that a file takes.
pub fn taken(metadata: &Metadata) -> u64 {
    // POSIX counts blocks of 512 bytes here, whatever the file system has.
    metadata.blocks() * 512
}

/// The same options, which refuse a link at the end of the path.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(OFlags::NOFOLLOW.bits() as i32)
}

/// A file that was removed and made again is another one here.
pub const CAN_TELL_FILES_APART: bool = true;

/// Whether an open file is the one at `path`.
pub fn is_at(file: &File, path: &Path) -> bool {
    let found = file
        .metadata()
        .and_then(|open| Ok((open, path.metadata()?)));
    found.is_ok_and(|(open, there)| open.dev() == there.dev() && open.ino() == there.ino())
}

/// Makes a folder, and those above it, that only its user may enter.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes a file, where it is missing, that only its user may read.
pub fn create_private_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)?;
    Ok(())
}

/// Makes the names in a folder durable.
pub fn sync_dir(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Memory from this size on is aligned to huge pages and asks for them.
const HUGE_PAGE: usize = 2 << 20;

/// `len` zero bytes at a multiple of `alignment`, a power of two; `None` where there is not that much. `len` must not be 0.
pub fn allocate(len: usize, alignment: usize) -> Option<NonNull<u8>> {
    let alignment = if len >= HUGE_PAGE {
        HUGE_PAGE.max(alignment)
    } else {
        alignment
    };
    let padded = mapped_len(len)?.checked_add(alignment)?;
    // SAFETY: the kernel chooses the address, so no existing memory is replaced; the length is not zero.
    let mapping = unsafe {
        mmap_anonymous(
            std::ptr::null_mut(),
            padded,
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE,
        )
    };
    let mapping: *mut u8 = mapping.ok()?.cast();
    let before = mapping.addr().next_multiple_of(alignment) - mapping.addr();
    let start = mapping.wrapping_add(before);
    let end = start.wrapping_add(padded - alignment);
    // SAFETY: both ranges are whole pages of the mapping just made, outside the part that is kept, and nothing refers to them.
    unsafe {
        unmap(mapping, before);
        unmap(end, alignment - before);
    }
    #[cfg(target_os = "linux")]
    if len >= HUGE_PAGE {
        super::linux::ask_for_huge_pages(start, padded - alignment);
    }
    NonNull::new(start)
}

/// Gives memory back.
///
/// # Safety
/// `start` must come from [`allocate`] with the same `len`, and nothing may refer to it any more.
pub unsafe fn release(start: NonNull<u8>, len: usize) {
    if let Some(len) = mapped_len(len) {
        // SAFETY: `allocate` left exactly this range mapped; the caller promises that it is not used any more.
        unsafe { unmap(start.as_ptr(), len) }
    }
}

/// Whole pages of every system.
fn mapped_len(len: usize) -> Option<usize> {
    len.checked_next_multiple_of(crate::AlignedBuf::ALIGNMENT)
}

/// # Safety
/// The range must be whole pages of a mapping to which nothing refers.
unsafe fn unmap(start: *mut u8, len: usize) {
    if len > 0 {
        // SAFETY: the caller's promise. A failure leaves the range mapped.
        let _ = unsafe { munmap(start.cast(), len) };
    }
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

/// A terminal is asked for elsewhere; there are no consoles.
pub fn has_own_console() -> bool {
    false
}
