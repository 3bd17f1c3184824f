//! Arbitrary but stable numbers: ids and sizes of images, picks from ranges, times within a period.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number that depends on the value only.
pub(crate) fn seed(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
