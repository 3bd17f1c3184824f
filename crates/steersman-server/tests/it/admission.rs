//! Admission: what changes or refuses a write.

pub(crate) mod classes;
pub(crate) mod in_force;
pub(crate) mod initializers;
pub(crate) mod plugins;
pub(crate) mod pod_security;
pub(crate) mod policies;
pub(crate) mod quotas;
pub(crate) mod webhooks;
