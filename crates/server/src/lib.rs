//! The HTTP server: today's clients work against a local model without knowing that it is not a cloud.
//!
//! ```text
//! connection -> guard -> door: body -> wire type -> Turn -> Engine::prepare -> Queue -> worker: Loaded::answer
//!      ^                                                                                    |
//!      +------------- a door's Voice <- Ticket <- pieces of the answer <--------------------+
//! ```
//!
//! [`wire`] alone knows what goes over the wire. A request is validated once, at its door, into a [`turn::Turn`]; what cannot be honoured is
//! refused by the name of its field. One worker thread owns the model; everyone else sends it turns through a bounded queue, and a client
//! that goes away takes its turn along. [`engine`] is the seam behind which the model lies: [`model`] is the real one, [`script`] the
//! twin with which all of the rest is tested.
//!
//! [`Page`] is the web app: its files, its conversations, its answers, which go the same way to the model.
//!
//! The room prints nothing and reads no environment: what happens is told to a [`log::Log`], whose records have no place for what
//! people say.

pub mod answer;
pub mod documents;
pub mod engine;
pub mod error;
pub mod installer;
pub mod log;
pub mod model;
pub mod models;
pub mod script;
pub mod turn;
pub mod wire;

mod app;
mod body;
mod guard;
mod ids;
mod listen;
mod metrics;
mod options;
mod paced;
mod page;
mod problem;
mod queue;
mod routes;
mod sse;
mod stop;
mod ticket;
mod worker;

pub use body::{MAX_BODY_BYTES, in_words};
pub use listen::{ServeError, serve};
pub use options::{Loading, ServerOptions};
pub use page::{Page, PageError};
pub use problem::{Problem, ProblemPage};
pub use sse::{Events, HEARTBEAT, Voice};
pub use stop::Stop;
