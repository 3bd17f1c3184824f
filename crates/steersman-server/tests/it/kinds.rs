//! Kinds with behavior of their own.

pub(crate) mod addresses;
pub(crate) mod answers;
pub(crate) mod api_services;
pub(crate) mod device_claims;
mod made_at_start;
pub(crate) mod pod_parts;
pub(crate) mod pods;
pub(crate) mod resource_metrics;
pub(crate) mod services;
