//! Objects that may have duplicate networks: the next reconcile finds all their networks.

use crate::reconcile::observe::Lookup;
use parking_lot::Mutex;
use std::collections::HashSet;

/// The objects by uid; bounded by the number of objects, as only those in the cache are added.
#[derive(Debug, Default)]
pub(crate) struct PossibleDuplicates {
    uids: Mutex<HashSet<String>>,
}

impl PossibleDuplicates {
    pub(crate) fn add(&self, uid: &str) {
        self.uids.lock().insert(uid.to_owned());
    }

    /// Which networks of an object to find in this reconcile.
    pub(crate) fn lookup(&self, uid: &str) -> Lookup {
        if self.uids.lock().contains(uid) { Lookup::All } else { Lookup::Recorded }
    }

    /// Removes the object: all its networks were found, and it is ready.
    pub(crate) fn clear(&self, uid: &str) {
        self.uids.lock().remove(uid);
    }
}
