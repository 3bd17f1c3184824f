//! Changes of the cache, in the form in which they go to each handler.
//!
//! Objects are held as in the cache, so an outcome takes the size of a key and two pointers, however many handlers get
//! it. Handlers get it as a [`Change`](crate::cache::Change), once its objects are decoded.

use std::sync::Arc;

use crate::cache::cached::Cached;
use crate::list_watch::delta::Entry;
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;

/// The effect of a delta on the cache, in the order in which handlers get it.
#[derive(Debug)]
pub enum Outcome<K> {
    /// An object appeared.
    Added(Entry<K>, Arrival),
    /// An object is gone.
    Deleted {
        /// The key of the object.
        key: ObjectKey,
        /// Its final state or the last known one; `None` if neither is known.
        object: Option<Cached<K>>,
        /// Whether `object` is its final state.
        finality: Finality,
    },
    /// The first list is complete. For a handler: it has received all objects that existed when it was added.
    Filled,
    /// An object exists that cannot be decoded.
    Undecodable(Arc<DecodeError>),
    /// An object changed, or, at a resync, did not: then both are the same object in memory.
    Updated {
        /// The key of the object.
        key: ObjectKey,
        /// The previous state.
        old: Cached<K>,
        /// The new state.
        new: Cached<K>,
    },
}

/// Whether an object appeared, or existed before the handler was added.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// It existed when the handler was added.
    Initial,
    /// It appeared later.
    Later,
}

/// Whether the final state of a deleted object is known.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finality {
    /// It was missing from a relist, or its final state could not be decoded: the last known state is not its final
    /// one.
    Missed,
    /// The server reported the deletion with its final state.
    Reported,
}

impl<K> Outcome<K> {
    /// The key of the object; `None` for the end of the first list, and for an undecodable object without a name.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Added(entry, _) => Some(&entry.key),
            Self::Deleted { key, .. } | Self::Updated { key, .. } => Some(key),
            Self::Filled => None,
            Self::Undecodable(error) => error.key.as_ref(),
        }
    }

    /// Whether the object is only delivered again, without a change.
    pub(crate) fn is_resync(&self) -> bool {
        matches!(self, Self::Updated { old, new, .. } if Cached::ptr_eq(old, new))
    }

    /// Merges `later`, which is about the same object, if only the state between the two is lost by that; otherwise
    /// returns it.
    pub(crate) fn absorb(&mut self, later: Self) -> Option<Self> {
        match (&mut *self, later) {
            (Self::Added(entry, _), Self::Updated { new, .. }) => entry.object = new,
            (Self::Updated { new: between, .. }, Self::Updated { new, .. }) => *between = new,
            (_, later) => return Some(later),
        }
        None
    }
}

impl<K> Clone for Outcome<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(entry, arrival) => Self::Added(entry.clone(), *arrival),
            Self::Deleted { key, object, finality } => {
                Self::Deleted { key: key.clone(), object: object.clone(), finality: *finality }
            }
            Self::Filled => Self::Filled,
            Self::Undecodable(error) => Self::Undecodable(Arc::clone(error)),
            Self::Updated { key, old, new } => Self::Updated { key: key.clone(), old: old.clone(), new: new.clone() },
        }
    }
}
