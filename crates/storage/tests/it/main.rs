//! Reads, locks, maps and disks, through the door.

mod disks;
mod reads;
mod small;
