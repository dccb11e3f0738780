//! Arbitrary bytes for the parser that its name says; `fuzz/src/lib.rs` explains.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = ouzel::fuzz::prefix_head(data, true);
});
