//! The server at its boundary: requests in, answers out, through its service. Tests assert what a client can see, and
//! where it matters the content of the store.
//!
//! Recorded answers of a real server are compared elsewhere; these tests cover cases that recordings show badly:
//! concurrency, compacted history, slow clients, failures.
#![expect(clippy::unwrap_used, reason = "everything here is a test; clippy recognises only the functions marked so")]

mod admission;
mod custom;
mod kinds;
mod load;
mod requests;
mod store;
mod support;
mod users;
