//! The decode service: the model in a process of its own, so that its memory is given back to the last byte when it ends, and so that what
//! kills it does not take along who asked.
//!
//! ```text
//! owner: Service --requests-> standard input  -> child::run: LoadedModel
//!                <-reports--  standard output <-
//! ```
//!
//! [`turn`] has the words for a turn and its answer, [`protocol`] the messages of both sides, [`LoadedModel`] what answers, in whichever
//! process it is. [`Program`] starts a service, [`Service`] asks it and ends it, [`run`] is one. `docs/decode-service.md` describes what goes over
//! the pipes.
//!
//! The room knows no HTTP and no page. It starts a process, but not which: that is handed in.

pub mod line;
pub mod protocol;
pub mod turn;

mod child;
mod exact;
mod experts;
mod model;
mod stack;
mod supervisor;

pub use child::{ChildError, run};
pub use experts::{Experts, LayerExperts};
pub use model::LoadedModel;
pub use stack::on_deep_stack;
pub use supervisor::{OnLoss, Program, Service, ServiceError};

#[cfg(test)]
mod tests;
