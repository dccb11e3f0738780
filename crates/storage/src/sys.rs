//! What differs between systems, one file each, all with the same functions.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub use unix::{
    CAN_TELL_FILES_APART, Map, allocate, create_private_dir, create_private_file, has_own_console,
    is_at, read_at, release, sync_dir, taken, without_links, write_all_at,
};
#[cfg(windows)]
pub use windows::{
    CAN_TELL_FILES_APART, Map, allocate, begin_sync, create_private_dir, create_private_file,
    drop_pages, free_memory, free_space, give_way, has_own_console, is_at, open_direct,
    open_direct_to_write, peak_memory, program_file_bytes, read_at, release, resident_memory_of,
    sync_dir, taken, without_links, write_all_at,
};

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::{
    begin_sync, drop_pages, free_memory, free_space, give_way, open_direct, open_direct_to_write,
    peak_memory, program_file_bytes, resident_memory_of,
};

#[cfg(target_os = "macos")]
mod macos;
#[cfg(target_os = "macos")]
pub use macos::{
    begin_sync, drop_pages, free_memory, free_space, give_way, open_direct, open_direct_to_write,
    peak_memory, program_file_bytes, resident_memory_of,
};
