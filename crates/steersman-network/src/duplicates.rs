//! Objects that may have a network that was made twice: all their networks are looked for at the next reconcile.

use crate::observe::Lookup;
use parking_lot::Mutex;
use std::collections::HashSet;

/// By uid; bounded by the number of objects, as only those in the cache are added.
#[derive(Debug, Default)]
pub(crate) struct PossibleDuplicates {
    uids: Mutex<HashSet<String>>,
}

impl PossibleDuplicates {
    pub(crate) fn add(&self, uid: &str) {
        self.uids.lock().insert(uid.to_owned());
    }

    /// Which networks of an object to look for this time.
    pub(crate) fn lookup(&self, uid: &str) -> Lookup {
        if self.uids.lock().contains(uid) { Lookup::All } else { Lookup::Recorded }
    }

    /// All were looked for, and the object is ready.
    pub(crate) fn clear(&self, uid: &str) {
        self.uids.lock().remove(uid);
    }
}
