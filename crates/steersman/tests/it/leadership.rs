//! Leader election.

pub(crate) mod candidates;
pub(crate) mod election;
