//! An object against its schema: decoding, defaulting, pruning and validation.

pub mod decode;
pub mod default;
pub(crate) mod embedded;
pub mod format;
pub mod pattern;
pub mod prune;
pub mod validate;
