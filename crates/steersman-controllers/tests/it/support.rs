//! Helpers of several tests.

pub(crate) mod events;
pub(crate) mod moved;
