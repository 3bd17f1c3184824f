//! Users, their certificates, and requests that must be refused.

pub(crate) mod authorization;
pub(crate) mod certificates;
pub(crate) mod hostile;
pub(crate) mod identity;
pub(crate) mod joining;
pub(crate) mod oidc;
pub(crate) mod refusals;
