//! The kinds that register webhooks and policies for admission: defaults and validation, including that of expressions.

pub mod initializer;
pub mod policy;
pub mod webhook;

pub(in crate::builtin) mod client;
mod rule;

const GROUP: &str = "admissionregistration.k8s.io";
const CATEGORIES: &[&str] = &["api-extensions"];
