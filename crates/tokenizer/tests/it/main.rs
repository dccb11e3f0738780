//! The room through its door: the real and the demo tokenizer, the golden files and the reference library.

mod data;
mod golden;
mod template;
