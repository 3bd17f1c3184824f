//! The library at its boundary: a scripted API server on one side, the public API on the other.
//!
//! Time is paused, so backoffs and timeouts of minutes pass at once, and in the right order.
#![expect(clippy::unwrap_used, reason = "everything here is a test; clippy recognises only the functions marked so")]

mod candidates;
mod client;
mod clusters;
mod compact;
mod consistency;
mod controller;
mod converge;
mod dynamic;
mod election;
mod errors;
mod events;
mod health;
mod informer;
mod manager;
mod metrics;
mod parallel;
mod reader;
mod reflector;
mod server;
mod sources;
mod spans;
mod streams;
mod transform;
mod writes;
