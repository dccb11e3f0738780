//! How much memory the system has to give, and how much this process took.

use std::path::Path;

use crate::sys;

/// Bytes that new work may take without swapping, as the system estimates them, control groups considered; `None` where it does not say.
pub fn free_memory() -> Option<u64> {
    sys::free_memory()
}

/// The most bytes that this process ever had resident; `None` where the system does not say.
pub fn peak_memory() -> Option<u64> {
    sys::peak_memory()
}

/// The bytes of this process's own `program` file that the system may keep in memory: those it maps. They are counted as this process's
/// where it was the first to run the program, whether it touches them or not. `None` where the system does not say.
pub fn program_file_bytes(program: &Path) -> Option<u64> {
    sys::program_file_bytes(program)
}

/// The bytes that another process holds now, resident or swapped out; `None` where the system does not say.
pub fn resident_memory_of(pid: u32) -> Option<u64> {
    sys::resident_memory_of(pid)
}
