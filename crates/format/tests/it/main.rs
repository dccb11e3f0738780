//! The room through its door: frozen files, every rejection by name, real checkpoints' headers, and arbitrary bytes.

mod frozen;
