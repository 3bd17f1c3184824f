//! Pure functions of (schema, value): validate, default, prune, patch, apply, write as OpenAPI.
//!
//! One compiled [`Schema`] serves built-in kinds (from the embedded [`Definitions`]) and custom resources (from
//! [`structural::compile`]). Nothing here does IO, reads a clock or knows a concrete kind's rules.

pub mod decode;
pub mod default;
pub mod definitions;
mod embedded;
pub mod fields;
pub mod format;
pub mod json_patch;
pub mod json_path;
mod lists;
pub mod managed;
pub mod merge_patch;
pub mod mutation;
pub mod openapi;
pub mod pattern;
pub mod prune;
pub mod schema;
pub mod strategic;
pub mod structural;
pub mod validate;

pub use crate::definitions::{Definitions, Edition};
pub use crate::json_path::JsonPath;
pub use crate::schema::Schema;
pub use steersman_machinery::Budget;
