//! Kinds that users define.

pub(crate) mod conversion;
pub(crate) mod definitions;
pub(crate) mod rewriting;
pub(crate) mod rules;
pub(crate) mod served;
