//! Tasks beside the requests: bootstrap, definitions, and the objects that the server keeps.

pub(crate) mod aggregation;
pub(crate) mod bootstrap;
pub(crate) mod definitions;
pub(crate) mod expiry;
pub(crate) mod key_rotation;
pub(crate) mod legacy_uses;
pub(crate) mod policy_status;
pub(crate) mod token_secrets;
pub(crate) mod upkeep;
