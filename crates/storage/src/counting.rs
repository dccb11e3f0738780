//! An allocator that counts, for tests that prove how much memory some work takes. It lives here because implementing one is unsafe.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which also counts what each thread asks for. A test binary makes it its `#[global_allocator]`.
#[derive(Debug)]
pub struct CountingAllocator;

/// What a thread asked for while it was watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Calls that asked for memory.
    pub n_allocations: u64,
    /// The most bytes held at once beyond those held at the start.
    pub peak_bytes: u64,
}

thread_local! {
    static N_ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    // Signed: a thread may release what another one asked for.
    static LIVE: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

/// Does some work on this thread and counts what the thread asks for. Counts zero where [`CountingAllocator`] is not the allocator.
pub fn count<T>(work: impl FnOnce() -> T) -> (T, Counts) {
    let (allocations, live) = (N_ALLOCATIONS.get(), LIVE.get());
    PEAK.set(live);
    let result = work();
    let counts = Counts {
        n_allocations: N_ALLOCATIONS.get() - allocations,
        peak_bytes: (PEAK.get() - live) as u64,
    };
    (result, counts)
}

fn note(n_allocations: u64, bytes: i64) {
    // A thread that is ending has no counters any more, and nobody watches it.
    let _ = N_ALLOCATIONS.try_with(|n| n.set(n.get() + n_allocations));
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches only constant-initialised thread-locals of plain
// integers, which never allocate.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // While bytes are moved, both blocks may exist.
        note(1, new_size as i64);
        note(0, -(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::realloc`.
        unsafe { System.realloc(block, layout, new_size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: the caller keeps the contract of `GlobalAlloc::dealloc`.
        unsafe { System.dealloc(block, layout) }
    }
}
