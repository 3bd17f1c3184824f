//! Numbers that may be any but must not change: ids and sizes of images, picks out of ranges, times within a period.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A number that is the same for the same of everything.
pub(crate) fn seed(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}
