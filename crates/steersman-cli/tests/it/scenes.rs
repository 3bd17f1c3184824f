//! Scenes of a cluster with the stock kubectl.

pub(crate) mod initializers;
pub(crate) mod mesh;
pub(crate) mod pilot;
pub(crate) mod tour;
pub(crate) mod webhooks;
pub(crate) mod workloads;
