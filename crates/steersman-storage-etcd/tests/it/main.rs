//! The engine against real etcd processes on loopback. etcd is the program named by `STEERSMAN_ETCD`, which `cargo xtask
//! test` and `cargo xtask tools` build.

#![allow(clippy::unwrap_used, reason = "tests")]

mod access;
mod contract;
mod expiry;
mod lost_answers;
mod outages;
mod registry;
mod restore;
mod sharing;
mod sizes;
mod snapshot;
mod support;
