//! Arbitrary bytes as what a model writes; `fuzz/src/lib.rs` explains.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| ouzel_tokenizer::fuzz::tool_calls(data));
