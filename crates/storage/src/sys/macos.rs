//! macOS: `F_NOCACHE`, `getrusage`, `host_statistics64`. Type-checked in CI; run only where there is a Mac.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::statvfs;

/// Opens for reads past the page cache.
pub fn open_direct(path: &Path) -> io::Result<File> {
    past_the_cache(File::open(path)?)
}

/// Opens a file that is there for writes past the page cache.
pub fn open_direct_to_write(path: &Path) -> io::Result<File> {
    past_the_cache(File::options().write(true).open(path)?)
}

fn past_the_cache(file: File) -> io::Result<File> {
    // SAFETY: the descriptor is open for as long as `file` lives, and F_NOCACHE takes an int.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_NOCACHE, 1) };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}

/// There is no such advice here: `F_NOCACHE` files leave no pages.
pub fn drop_pages(_file: &File, _offset: u64, _len: u64) {}

/// Not known of others here.
pub fn resident_memory_of(_pid: u32) -> Option<u64> {
    None
}

/// Threads share as the system sees fit here.
pub fn give_way() {}

/// There is no such advice here.
pub fn begin_sync(_file: &File) {}

/// Bytes free to this user.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let stat = statvfs(path)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Pages that are free, and pages that nothing used lately.
pub fn free_memory() -> Option<u64> {
    let mut pages = std::mem::MaybeUninit::<libc::vm_statistics64>::zeroed();
    let mut n_words = libc::HOST_VM_INFO64_COUNT;
    // SAFETY: `pages` is a writable vm_statistics64 of `n_words` words, which the call fills; all-zero bytes are a valid one too.
    let (pages, page_bytes) = unsafe {
        #[allow(deprecated, reason = "one call is no reason for another crate")]
        let host = libc::mach_host_self();
        let words = pages.as_mut_ptr().cast();
        if libc::host_statistics64(host, libc::HOST_VM_INFO64, words, &mut n_words) != 0 {
            return None;
        }
        (pages.assume_init(), libc::sysconf(libc::_SC_PAGESIZE))
    };
    let n_pages = u64::from(pages.free_count) + u64::from(pages.inactive_count);
    Some(n_pages * u64::try_from(page_bytes).ok()?)
}

/// The length of the program's file.
pub fn program_file_bytes(program: &Path) -> Option<u64> {
    Some(std::fs::metadata(program).ok()?.len())
}

/// The largest resident size, which macOS counts in bytes.
pub fn peak_memory() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a writable rusage, which getrusage fills; all-zero bytes are a valid rusage too.
    let usage = unsafe {
        if libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) != 0 {
            return None;
        }
        usage.assume_init()
    };
    u64::try_from(usage.ru_maxrss).ok()
}
