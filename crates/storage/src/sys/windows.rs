//! Windows: unbuffered files, mapped views. Type-checked in CI; run only where there is a Windows.

use std::ffi::c_void;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::os::windows::fs::{FileExt, OpenOptionsExt};
use std::os::windows::io::AsRawHandle;
use std::path::Path;
use std::ptr::{self, NonNull};

use windows_sys::Win32::Foundation::CloseHandle;
use windows_sys::Win32::Storage::FileSystem::{
    FILE_FLAG_NO_BUFFERING, FILE_FLAG_OPEN_REPARSE_POINT, GetDiskFreeSpaceExW,
};
use windows_sys::Win32::System::Console::GetConsoleProcessList;
use windows_sys::Win32::System::Memory::{
    CreateFileMappingW, FILE_MAP_READ, MEM_COMMIT, MEM_RELEASE, MEM_RESERVE,
    MEMORY_MAPPED_VIEW_ADDRESS, MapViewOfFile, PAGE_READONLY, PAGE_READWRITE, UnmapViewOfFile,
    VirtualAlloc, VirtualFree,
};
use windows_sys::Win32::System::ProcessStatus::{GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::SystemInformation::{GlobalMemoryStatusEx, MEMORYSTATUSEX};
use windows_sys::Win32::System::Threading::GetCurrentProcess;

/// Opens for reads past the cache.
pub fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(FILE_FLAG_NO_BUFFERING)
        .open(path)
}

/// Opens a file that is there for writes past the cache.
pub fn open_direct_to_write(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .custom_flags(FILE_FLAG_NO_BUFFERING)
        .open(path)
}

/// One read at `offset`, possibly short.
pub fn read_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    file.seek_read(buf, offset)
}

/// Writes all of `bytes` at `offset`.
pub fn write_all_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_write(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Files have no holes here unless they are asked for.
pub fn taken(metadata: &Metadata) -> u64 {
    metadata.len()
}

/// The same options, which open a link at the end of the path itself, so that a write to it fails.
pub fn without_links(options: &mut OpenOptions) -> &mut OpenOptions {
    options.custom_flags(FILE_FLAG_OPEN_REPARSE_POINT)
}

/// A lock's file stays behind here.
pub const CAN_TELL_FILES_APART: bool = false;

/// Files are not told apart here, and none that is open is removed.
pub fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

/// Not known of others here.
pub fn resident_memory_of(_pid: u32) -> Option<u64> {
    None
}

/// Threads share as the system sees fit here.
pub fn give_way() {}

/// There is no such advice here.
pub fn begin_sync(_file: &File) {}

/// `len` zero bytes at a multiple of `alignment`, which must be at most 64 KiB, the granularity of this system.
pub fn allocate(len: usize, alignment: usize) -> Option<NonNull<u8>> {
    assert!(alignment <= 64 << 10, "no alignment of {alignment} here");
    // SAFETY: the system chooses the address, so no existing memory is replaced.
    let start = unsafe { VirtualAlloc(ptr::null(), len, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE) };
    NonNull::new(start.cast())
}

/// Gives memory back.
///
/// # Safety
/// `start` must come from [`allocate`], and nothing may refer to it any more.
pub unsafe fn release(start: NonNull<u8>, _len: usize) {
    // SAFETY: the caller's promise; a release takes the whole allocation and wants the size 0.
    unsafe { VirtualFree(start.as_ptr().cast(), 0, MEM_RELEASE) };
}

/// There is no such advice here.
pub fn drop_pages(_file: &File, _offset: u64, _len: u64) {}

/// Makes a file, where it is missing; below the user's own folders the system lets nobody else in.
pub fn create_private_file(path: &Path) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).open(path)?;
    Ok(())
}

/// Makes a folder, and those above it; below the user's own folders the system lets nobody else in.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// Windows makes names durable with the files themselves.
pub fn sync_dir(_path: &Path) -> io::Result<()> {
    Ok(())
}

/// Bytes free to this user.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let wide: Vec<u16> = path.as_os_str().encode_wide().chain([0]).collect();
    let mut free = 0_u64;
    // SAFETY: `wide` ends with a zero and `free` is writable; the other results are not asked for.
    let ok =
        unsafe { GetDiskFreeSpaceExW(wide.as_ptr(), &mut free, ptr::null_mut(), ptr::null_mut()) };
    if ok == 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(free)
    }
}

/// Physical memory that is not in use.
pub fn free_memory() -> Option<u64> {
    let mut status = MEMORYSTATUSEX {
        dwLength: size_of::<MEMORYSTATUSEX>() as u32,
        ..Default::default()
    };
    // SAFETY: `status` is writable and states its size.
    let ok = unsafe { GlobalMemoryStatusEx(&mut status) };
    (ok != 0).then_some(status.ullAvailPhys)
}

/// The length of the program's file.
pub fn program_file_bytes(program: &Path) -> Option<u64> {
    Some(std::fs::metadata(program).ok()?.len())
}

/// The largest working set.
pub fn peak_memory() -> Option<u64> {
    let mut counters = PROCESS_MEMORY_COUNTERS::default();
    let size = size_of::<PROCESS_MEMORY_COUNTERS>() as u32;
    // SAFETY: the pseudo-handle of this process is always valid; `counters` is writable and `size` is its size.
    let ok = unsafe { GetProcessMemoryInfo(GetCurrentProcess(), &mut counters, size) };
    (ok != 0).then_some(counters.PeakWorkingSetSize as u64)
}

/// A read-only view.
#[derive(Debug)]
pub struct Map {
    start: *mut c_void,
    len: usize,
}

// SAFETY: the view is read-only memory that this value owns alone.
unsafe impl Send for Map {}
// SAFETY: sharing it gives shared access to bytes that nobody in this process writes.
unsafe impl Sync for Map {}

impl Map {
    /// Maps the first `len` bytes.
    pub fn new(file: &File, len: usize) -> io::Result<Map> {
        if len == 0 {
            return Ok(Map {
                start: ptr::null_mut(),
                len,
            });
        }
        // SAFETY: the handle is open; no name and no attributes are given.
        let mapping = unsafe {
            CreateFileMappingW(
                file.as_raw_handle(),
                ptr::null(),
                PAGE_READONLY,
                0,
                0,
                ptr::null(),
            )
        };
        if mapping.is_null() {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `mapping` is a live mapping of at least `len` bytes: `len` is the file's length.
        let view = unsafe { MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, len) };
        let error = io::Error::last_os_error();
        // SAFETY: `mapping` was made above; the view keeps the mapping alive by itself.
        unsafe { CloseHandle(mapping) };
        if view.Value.is_null() {
            return Err(error);
        }
        Ok(Map {
            start: view.Value,
            len,
        })
    }

    /// The mapped bytes.
    pub fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `start` is a live view of `len` readable bytes, and mapped files are replaced, never changed in place (the
        // contract of `Mmap::open`).
        unsafe { std::slice::from_raw_parts(self.start.cast(), self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: `new` made this view, and no reference outlives `self`.
            unsafe { UnmapViewOfFile(MEMORY_MAPPED_VIEW_ADDRESS { Value: self.start }) };
        }
    }
}

/// Whether this process has a console and no other process uses it: a shell would.
pub fn has_own_console() -> bool {
    let mut ids = [0_u32; 2];
    // SAFETY: `ids` is writable and has as many places as are told.
    let n_processes = unsafe { GetConsoleProcessList(ids.as_mut_ptr(), ids.len() as u32) };
    n_processes == 1
}
