//! Reads, locks, maps and disks, through the door.

use ouzel_storage::counting::CountingAllocator;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

mod disks;
mod probe;
mod reads;
mod shown;
mod small;
mod streams;
