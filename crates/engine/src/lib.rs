//! The forward pass, the expert cache and the memory budget of Gemma 4 mixture-of-experts models.
//!
//! [`Model::open`] reads what a model directory says about itself. [`Session::new`] plans the memory, loads the resident
//! weights and allocates the rest; [`Session::prefill`] and [`Session::decode`] take token ids and give logits;
//! [`Sampler`] chooses the next id. Routed experts stream from the disk into slots. This crate knows nothing of text,
//! terminals, the network or the environment.

mod blocks;
mod budget;
mod cache;
mod config;
mod cpu;
mod error;
mod expert_files;
pub mod floor;
mod forward;
mod ids;
mod kv;
mod model;
mod ops;
mod options;
mod readers;
mod sampler;
mod session;
mod stats;
mod stop;
mod store;
#[cfg(test)]
mod testing;
mod weights;

pub use budget::{
    Budget, BudgetLine, DEFAULT_CONTEXT_TOKENS, DEFAULT_MEMORY_BYTES, FREE_BY_AUTO, ModelBytes,
};
pub use cache::{LayerCache, Placement, Plan};
pub use config::{Config, LayerKind, LayerShape};
pub use error::EngineError;
pub use ids::{ExpertId, LayerId, SlotId, TokenId};
pub use model::Model;
pub use options::{Options, Precision};
pub use ouzel_kernels::Isa;
pub use ouzel_storage::{IoMode, ReadMode};
pub use sampler::{Logprobs, MAX_LOGPROBS, Sampler, SamplerOptions};
pub use session::{LayerTrace, Progress, Restore, Session};
pub use stats::Stats;
pub use stop::Stop;
pub use store::Experts;
