//! The injector and the pilot as a whole, on a control plane in the test's own process.
//!
//! The tests of `steersman-cli` cover what needs a process and kubectl.

#![expect(clippy::unwrap_used, reason = "a failed unwrap here is a failed test")]

mod both_ways;
mod decisions;
mod environment;
mod life;
mod manifests;
mod others;
mod pilot;
mod refusals;
