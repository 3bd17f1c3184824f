//! Access: who a request comes from, what they may do, and what is recorded of it.

pub mod audit;
pub mod authn;
pub mod authz;
pub(crate) mod pod_references;
