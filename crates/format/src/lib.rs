//! The `.gturbo` model directory and its sources as types and bytes: decode, validate, encode.
//!
//! Everything here is a pure function of bytes. This room opens no file, reads no clock, starts no thread and never looks at a weight's
//! value; callers read bytes, hand them in and get either a value that keeps every rule of the format or a [`FormatError`] that
//! names what is wrong. So a parser may be handed anything: it neither panics nor allocates more than a small multiple of its input.
//!
//! | file | type |
//! |---|---|
//! | `manifest.json` | [`Manifest`] |
//! | `verified-install.json` | [`Receipt`] |
//! | `model_weights.bin` (its index) | [`ResidentIndex`] |
//! | `packed_experts/layout.json` | [`Layout`] |
//! | `packed_experts/checksums.bin` | [`Checksums`] |
//! | `*.safetensors` (its header), `model.safetensors.index.json` | [`safetensors`] |
//! | `config.json`, `generation_config.json` | [`CheckpointConfig`], [`GenerationConfig`] |

mod arch;
mod checksums;
mod config;
mod dtype;
mod error;
mod generation;
mod json;
mod layout;
mod manifest;
pub mod names;
pub mod paths;
mod quantization;
mod receipt;
mod resident;
pub mod safetensors;
mod sha256;

pub use arch::Arch;
pub use checksums::Checksums;
pub use config::CheckpointConfig;
pub use dtype::Dtype;
pub use error::{FormatError, PathFault};
pub use generation::GenerationConfig;
pub use layout::{ExpertLayout, ExpertPart, LayerLayout, Layout, PartLayout};
pub use manifest::{FileRecord, Flags, Manifest, Quant};
pub use quantization::{Quantization, bits_from_shape};
pub use receipt::{Receipt, timestamp};
pub use resident::{Extent, ResidentEntry, ResidentIndex};
pub use sha256::Sha256Hex;

/// Alignment in bytes of the resident index, of the expert blobs and so of the expert stride, whatever the host's page size.
pub const ALIGNMENT: u64 = 16_384;

/// Elements of a quantization group: each has one scale and one bias.
pub const GROUP_SIZE: u32 = 64;
