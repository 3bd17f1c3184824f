//! The kinds that register webhooks and policies for admission. They are stored and checked; admission does not act on them yet,
//! which every writer of one that would act is told.

pub(crate) mod initializer;
pub(crate) mod policy;
pub(crate) mod webhook;

mod client;
mod rule;

const GROUP: &str = "admissionregistration.k8s.io";
const CATEGORIES: &[&str] = &["api-extensions"];
