//! The whole model in f64, in one readable file.
