//! Objects for which more than one network was seen, to be looked at more carefully once.

use crate::observe::Care;
use parking_lot::Mutex;
use std::collections::HashSet;

/// By uid; bounded by the number of objects, as only those in the cache are added.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    uids: Mutex<HashSet<String>>,
}

impl Suspects {
    pub(crate) fn add(&self, uid: &str) {
        self.uids.lock().insert(uid.to_owned());
    }

    /// How carefully to look at an object this time.
    pub(crate) fn care(&self, uid: &str) -> Care {
        if self.uids.lock().contains(uid) { Care::Thorough } else { Care::Usual }
    }

    /// A careful look has ended well.
    pub(crate) fn clear(&self, uid: &str) {
        self.uids.lock().remove(uid);
    }
}
