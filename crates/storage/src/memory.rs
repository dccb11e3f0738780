//! How much memory the system has to give, and how much this process took.

use crate::sys;

/// Bytes that new work may take without swapping, as the system estimates them, control groups considered; `None` where it does not say.
pub fn free_memory() -> Option<u64> {
    sys::free_memory()
}

/// The most bytes that this process ever had resident; `None` where the system does not say.
pub fn peak_memory() -> Option<u64> {
    sys::peak_memory()
}

/// The bytes that another process holds now, resident or swapped out; `None` where the system does not say.
pub fn resident_memory_of(pid: u32) -> Option<u64> {
    sys::resident_memory_of(pid)
}
