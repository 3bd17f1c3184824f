//! The crate against real servers: the conformance suite over every backend, and tests that need a wire.
//!
//! A real Neutron (and, for sign-in, a real Keystone) is started once by `tests/neutron/neutron-up.sh` of the workspace
//! and stopped when the test process ends. Where it is not available, its tests print a message and pass; with `CI` set
//! they fail.

#![expect(clippy::unwrap_used, reason = "a failed unwrap here is a failed test")]

mod conformance;
mod keystone;
mod neutron;
mod real;
mod scripted;
mod simulated;
mod wire;
