//! The kinds that register webhooks and policies for admission: defaults and validation, including that of expressions.

pub(crate) mod initializer;
pub(crate) mod policy;
pub(crate) mod webhook;

mod client;
mod rule;

const GROUP: &str = "admissionregistration.k8s.io";
const CATEGORIES: &[&str] = &["api-extensions"];
