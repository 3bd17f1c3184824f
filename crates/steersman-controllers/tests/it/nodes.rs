//! Nodes, real and simulated, and the Pods on them.

pub(crate) mod life;
pub(crate) mod pods_without_a_node;
pub(crate) mod requests_of_nodes;
pub(crate) mod resource_metrics;
pub(crate) mod scheduler;
pub(crate) mod simulated;
pub(crate) mod stages;
