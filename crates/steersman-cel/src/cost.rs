//! The cost of an expression: its estimate before, and its measurement during the evaluation.

pub(crate) mod charge;
pub(crate) mod estimate;
pub(crate) mod meter;
