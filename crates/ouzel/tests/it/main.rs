//! The library through its door, on the demo model: `models/demo` is installed once a run, below the target folder.

mod answers;
mod demo;
mod directories;
mod prefixes;
mod sessions;
mod smoke;
