//! Types: declarations, the environment of names, and the check of a parsed expression.

pub(crate) mod check;
pub(crate) mod decl;
pub(crate) mod declarations;
pub(crate) mod types;
