//! The kinds that register webhooks and policies for admission: how they are checked, expressions included. Webhooks are not called yet,
//! which every writer of a configuration that would act is told.

pub mod initializer;
pub mod policy;
pub mod webhook;

mod client;
mod rule;

const GROUP: &str = "admissionregistration.k8s.io";
const CATEGORIES: &[&str] = &["api-extensions"];
