//! The room through its door: the real and the demo tokenizer, the golden files and the reference library.

mod data;
mod detokenize;
mod golden;
mod guard;
mod oracle;
mod output;
mod smoke;
mod template;
