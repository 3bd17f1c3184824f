//! Quota accounting: the usage of an object, its resource names, and its scopes.
//!
//! Both the server's admission and the quota controller use it, so that they agree. Follows kubernetes'
//! `pkg/quota/v1/evaluator/core`.

mod scope;
mod usage;

pub use crate::kinds::quota::scope::{Scope, contains, scopes};
pub use crate::kinds::quota::usage::{Amounts, CountedObject};
