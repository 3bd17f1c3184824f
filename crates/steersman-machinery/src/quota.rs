//! What quotas count: what an object uses, under which names, and in which scopes.
//!
//! The server's admission and the loop that counts anew both go by this, so that they agree. Follows kubernetes'
//! `pkg/quota/v1/evaluator/core`.

mod scope;
mod usage;

pub use crate::quota::scope::{Scope, contains, scopes};
pub use crate::quota::usage::{Amounts, Subject};
