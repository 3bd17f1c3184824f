//! The vocabulary of all other crates: names of kinds and resources, object keys, revisions, the stored [`Object`],
//! selectors, quantities, durations, schedules, the expiration of bootstrap tokens, resource usage, request budgets,
//! validation errors, and the `Status` that clients see.
//!
//! Pure data and pure functions. Nothing here does IO, reads a clock, draws random numbers or knows a concrete kind,
//! except for quota accounting, the resources of pods, and bootstrap tokens.
#![deny(missing_docs)]

mod formats;
mod kinds;
mod names;

pub use crate::formats::{cron, duration, quantity, selector, time};
pub use crate::kinds::{bootstrap_token, pod, quota, usage};
pub use crate::names::{gvk, key, name, resource_name, revision};
pub mod budget;
pub mod field;
pub mod object;
pub mod status;
pub mod value;

pub use crate::budget::Budget;
pub use crate::names::gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use crate::names::key::ObjectKey;
pub use crate::names::revision::Revision;
pub use crate::object::{Draft, Header, Meta, Object, OwnerReference};
pub use crate::value::Value;
