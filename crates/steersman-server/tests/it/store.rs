//! The store below the server: delays, failures, damage, several servers.

pub(crate) mod backup;
pub(crate) mod broken;
pub(crate) mod damage;
pub(crate) mod engine;
mod read_only;
mod shared;
