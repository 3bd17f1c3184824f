//! The crate against real servers: the conformance suite over every backend, and what only a wire can show.
//!
//! A real Neutron (and, for sign-in, a real Keystone) is started once by `tests/neutron/neutron-up.sh` of the workspace and
//! stopped when the test process ends. Where it cannot be had, its tests say so loudly and pass; with `CI` set they fail.

#![expect(clippy::unwrap_used, reason = "a failed unwrap here is a failed test")]

mod conformance;
mod keystone;
mod neutron;
mod real;
mod scripted;
mod simulated;
mod wire;
