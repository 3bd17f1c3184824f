//! The names of kinds, objects and versions.

pub mod gvk;
pub mod key;
pub mod name;
pub mod resource_name;
pub mod revision;
