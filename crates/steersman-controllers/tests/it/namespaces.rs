//! Objects that namespaces and owners hold together.

pub(crate) mod accounts;
pub(crate) mod deletion;
pub(crate) mod ending_namespaces;
pub(crate) mod garbage_collection;
pub(crate) mod legacy_tokens;
pub(crate) mod resource_quotas;
pub(crate) mod tokens;
