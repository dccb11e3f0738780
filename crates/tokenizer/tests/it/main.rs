//! The room through its door: the real and the demo tokenizer, the golden files and the reference library.

mod conversation;
mod data;
mod detokenize;
mod golden;
mod grammar;
mod grammar_limits;
mod guard;
mod oracle;
mod output;
mod schemas;
mod smoke;
mod template;
