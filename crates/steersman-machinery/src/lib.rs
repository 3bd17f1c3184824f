//! The vocabulary of all other crates: names of kinds and resources, object keys, revisions, the stored [`Object`],
//! selectors, quantities, durations, schedules, the expiration of bootstrap tokens, resource usage, request budgets,
//! validation errors, and the `Status` that clients see.
//!
//! Pure data and pure functions. Nothing here does IO, reads a clock, draws random numbers or knows a concrete kind,
//! except for quota accounting, the resources of pods, and bootstrap tokens.
#![deny(missing_docs)]

pub mod bootstrap_token;
pub mod budget;
pub mod cron;
pub mod duration;
pub mod field;
pub mod gvk;
pub mod key;
pub mod name;
pub mod object;
pub mod pod;
pub mod quantity;
pub mod quota;
pub mod resource_name;
pub mod revision;
pub mod selector;
pub mod status;
pub mod time;
pub mod usage;
pub mod value;

pub use crate::budget::Budget;
pub use crate::gvk::{GroupKind, GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource};
pub use crate::key::ObjectKey;
pub use crate::object::{Draft, Header, Meta, Object, OwnerReference};
pub use crate::revision::Revision;
pub use crate::value::Value;
