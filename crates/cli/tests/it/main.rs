//! The program through its door: the real binary, its output, its exit codes.

#[cfg(unix)]
mod app;
mod arguments;
mod bench;
mod chat;
mod demo;
#[cfg(unix)]
mod desktop;
mod documents;
mod eval;
mod generate;
mod install;
mod models;
mod network;
mod places;
mod running;
mod serve;
mod service;
mod tokens;
mod tool;
