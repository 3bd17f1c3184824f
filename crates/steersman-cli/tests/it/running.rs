//! The process: its start, its end, its flags, its answers.

pub(crate) mod lifecycle;
pub(crate) mod operation;
pub(crate) mod streams;
pub(crate) mod usage;
