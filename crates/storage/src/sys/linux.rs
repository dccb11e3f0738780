//! Linux: `O_DIRECT`, `/proc`.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Advice, OFlags, fadvise, statvfs};

use super::cgroup;

/// Opens for reads past the page cache.
pub fn open_direct(path: &Path) -> io::Result<File> {
    direct().read(true).open(path)
}

/// Opens a file that is there for writes past the page cache.
pub fn open_direct_to_write(path: &Path) -> io::Result<File> {
    direct().write(true).open(path)
}

fn direct() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.custom_flags(OFlags::DIRECT.bits() as i32);
    options
}

/// Drops pages of the cache again, all from `offset` on where `len` is 0; only advice, so a refusal changes nothing.
pub fn drop_pages(file: &File, offset: u64, len: u64) {
    let _ = fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed);
}

/// Gives the processor to other threads first; only this thread's own word, so a refusal changes nothing.
pub fn give_way() {
    // Here "process 0" is the calling thread, and 19 the least that may be asked for.
    let _ = rustix::process::setpriority_process(None, 19);
}

/// Starts to write dirty pages back and does not wait; only advice.
pub fn begin_sync(file: &File) {
    // SAFETY: the descriptor is open for as long as `file` lives; a length of 0 means to the end. A refusal changes nothing.
    unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
}

/// Bytes free to this user.
pub fn free_space(path: &Path) -> io::Result<u64> {
    let stat = statvfs(path)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// `MemAvailable` of `/proc/meminfo`, or what the control groups of this process leave, if that is less.
pub fn free_memory() -> Option<u64> {
    let machine = kib_of(
        &std::fs::read_to_string("/proc/meminfo").ok()?,
        "MemAvailable:",
    )?;
    Some(cgroup::room().map_or(machine, |room| room.min(machine)))
}

/// `VmHWM` of `/proc/self/status`.
pub fn peak_memory() -> Option<u64> {
    kib_of(
        &std::fs::read_to_string("/proc/self/status").ok()?,
        "VmHWM:",
    )
}

/// How far into the program's file its mappings reach, from `/proc/self/maps`: what follows is never loaded.
pub fn program_file_bytes(program: &Path) -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines()
        .filter(|line| line.ends_with(program.to_string_lossy().as_ref()))
        .filter_map(end_in_file)
        .max()
}

/// `from-to permissions offset …`, in hexadecimal.
fn end_in_file(line: &str) -> Option<u64> {
    let mut fields = line.split_whitespace();
    let (from, to) = fields.next()?.split_once('-')?;
    let offset = u64::from_str_radix(fields.nth(1)?, 16).ok()?;
    let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).ok());
    offset.checked_add(to?.checked_sub(from?)?)
}

/// `VmRSS` of another process, with what it swapped out.
pub fn resident_memory_of(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let swapped = kib_of(&status, "VmSwap:").unwrap_or(0);
    Some(kib_of(&status, "VmRSS:")? + swapped)
}

fn kib_of(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Lets the kernel back a mapping with huge pages: streaming gigabytes through 4 KiB pages spends its time in page walks. A kernel
/// without them says no, and nothing changes.
pub fn ask_for_huge_pages(start: *mut u8, len: usize) {
    // SAFETY: the advice changes no byte; the range was mapped by the caller.
    let _ = unsafe { rustix::mm::madvise(start.cast(), len, rustix::mm::Advice::LinuxHugepage) };
}
