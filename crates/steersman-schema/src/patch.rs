//! The formats of patches, and their application to an object.

pub mod json_patch;
pub mod merge_patch;
pub mod mutation;
pub mod strategic;
