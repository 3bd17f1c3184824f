//! Authentication, authorization, admission and the two logs of requests, as flags and files set them up.

pub(crate) mod access_log;
pub(crate) mod account_keys;
pub(crate) mod admission;
pub(crate) mod audit;
pub(crate) mod audit_log;
pub(crate) mod authentication;
pub(crate) mod authorization;
pub(crate) mod client_certificate;
pub(crate) mod front_proxy;
pub(crate) mod kubelets;
