//! Values, the functions of the library, and the evaluation of a checked expression.

pub(crate) mod data;
pub(crate) mod eval;
pub(crate) mod functions;
pub(crate) mod library;
pub(crate) mod outcome;
pub(crate) mod plan;
pub(crate) mod value;
