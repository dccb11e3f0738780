//! One module a command.

pub mod app;
pub mod bench;
pub mod chat;
pub mod completions;
pub mod decode_service;
pub mod eval;
pub mod generate;
pub mod inspect;
pub mod install;
pub mod models;
pub mod pdf_text;
pub mod serve;
pub mod tokenize;
pub mod verify;

mod answer;
