//! The discovery service against a real Envoy, the program named by `STEERSMAN_ENVOY`, which `cargo xtask test` and `cargo xtask tools`
//! fetch; and against clients written by hand.

#![allow(clippy::unwrap_used, reason = "tests")]

mod envoy;
mod limits;

mod support;
