//! The room through its door: frozen files, every rejection by name, real checkpoints' headers, and arbitrary bytes.

mod checksums;
mod config;
mod doors;
mod edit;
mod frozen;
mod layout;
mod manifest;
mod names;
mod receipt;
mod resident;
mod round_trip;
mod safetensors;
mod smoke;
