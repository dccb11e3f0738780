//! The server through its door: HTTP on loopback against the scripted engine.

mod agents;
mod chat;
mod completions;
mod guard;
mod life;
mod load;
mod messages;
mod page;
mod queue;
mod refused;
mod responses;
mod tool;
mod various;
