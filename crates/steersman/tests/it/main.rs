//! The library at its boundary: a scripted API server on one side, the public API on the other.
//!
//! Time is paused, so backoffs and timeouts of minutes pass at once, and in the right order.
#![expect(clippy::unwrap_used, reason = "everything here is a test; clippy recognises only the functions marked so")]

mod cache;
mod client;
mod control;
mod leadership;
mod observed;
mod server;
mod writes;
