//! The operator as a whole: on a control plane in the test's own process, with the simulated cloud or a real Neutron.
//!
//! The tests of `steersman-cli` cover what needs a process (signals, kills, an election between two).

#![expect(clippy::unwrap_used, reason = "a failed unwrap here is a failed test")]

mod drift;
mod environment;
mod failures;
mod manifests;
mod neutron;
mod permissions;
mod real;
mod requests;
mod transitions;
