//! Events, health checks, metrics and spans of a program.

pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod spans;
