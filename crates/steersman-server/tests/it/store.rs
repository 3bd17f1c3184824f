//! The store below the server: delays, failures, damage.

pub(crate) mod broken;
pub(crate) mod damage;
pub(crate) mod engine;
