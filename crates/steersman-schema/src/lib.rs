//! Pure functions of (schema, value): validate, default, prune, patch, apply, write as OpenAPI.
//!
//! One compiled [`Schema`] serves built-in kinds (from the embedded [`Definitions`]) and custom resources (from
//! [`structural::compile`]). Nothing here does IO, reads a clock or knows a concrete kind's rules.

mod model;
mod ownership;
mod patch;
mod values;

pub use crate::model::{definitions, openapi, schema, structural};
pub use crate::ownership::{fields, managed};
pub use crate::patch::{json_patch, merge_patch, mutation, strategic};
pub use crate::values::{decode, default, format, pattern, prune, validate};
pub mod json_path;

pub use crate::json_path::JsonPath;
pub use crate::model::definitions::{Definitions, Edition};
pub use crate::model::schema::Schema;
pub use steersman_machinery::Budget;
