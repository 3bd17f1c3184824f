//! Writes: admission, and the one loop that changes what is stored.

pub mod admission;
pub(crate) mod initializers;
pub(crate) mod registry;
pub(crate) mod writes;
