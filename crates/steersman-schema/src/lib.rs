//! Pure functions of (schema, value): check, default, prune, patch, apply, print as OpenAPI.
//!
//! One compiled [`Schema`] serves built-in kinds (from the embedded [`Definitions`]) and custom resources (from
//! [`structural::compile`]). Nothing here does IO, reads a clock or knows a concrete kind's rules.

pub mod definitions;
pub mod pattern;
pub mod schema;

pub use crate::definitions::Definitions;
pub use crate::schema::Schema;
