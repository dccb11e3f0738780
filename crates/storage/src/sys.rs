//! What differs between systems, one file each, all with the same functions.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{Map, allocate, read_at, release, sync_dir};
#[cfg(windows)]
pub use windows::{
    Map, allocate, drop_pages, free_memory, free_space, open_direct, open_direct_to_write,
    peak_memory, read_at, release, sync_dir,
};

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::{
    drop_pages, free_memory, free_space, open_direct, open_direct_to_write, peak_memory,
};

#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
pub use macos::{
    drop_pages, free_memory, free_space, open_direct, open_direct_to_write, peak_memory,
};
