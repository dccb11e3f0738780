//! What the fuzz targets call: the rooms' own functions of arbitrary bytes.
//!
//! The format room keeps them in its test suite, tokenizer and library in modules of their own (`ouzel_tokenizer::fuzz`, `ouzel::fuzz`). A
//! seeded smoke test drives the same functions on every system; this package adds a coverage-guided driver. It stands outside the
//! workspace, since nobody who builds Ouzel needs it.
//!
//! To add a room: a module here, a target in `fuzz_targets/` for each of its functions, and its `[[bin]]` in `Cargo.toml`.

#[path = "../../crates/format/tests/it/doors.rs"]
pub mod format;
