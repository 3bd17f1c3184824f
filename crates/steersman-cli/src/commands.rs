//! The commands of the binary, a module each.

pub(crate) mod cluster;
pub(crate) mod codegen;
pub(crate) mod drop_in;
pub(crate) mod envtest;
pub(crate) mod explain_denied;
pub(crate) mod forward;
pub(crate) mod network;
pub(crate) mod run_as;
pub(crate) mod store;
pub(crate) mod up;
pub(crate) mod webhooks;
