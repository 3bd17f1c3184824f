//! The commands for authors of controllers.

pub(crate) mod codegen;
pub(crate) mod envtest;
pub(crate) mod explain_denied;
pub(crate) mod run_as;
pub(crate) mod webhooks;
