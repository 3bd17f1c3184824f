//! The operator as a whole: on a control plane in the test's own process, with the double or a real Neutron.
//!
//! What only a process can show (signals, kills, an election between two) is in `steersman-cli`'s tests.

#![expect(clippy::unwrap_used, reason = "a failed unwrap here is a failed test")]

mod drift;
mod failures;
mod manifests;
mod neutron;
mod permissions;
mod real;
mod requests;
mod transitions;
mod world;
