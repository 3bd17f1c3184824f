//! What an operator sees of a program: events, health, metrics, spans.

pub(crate) mod events;
pub(crate) mod health;
pub(crate) mod metrics;
pub(crate) mod spans;
