//! What a change of the cache was: the form in which it goes from the cache to each handler.
//!
//! Objects are as the cache holds them, so an outcome costs what its key and two pointers weigh, however many handlers get it.
//! What a handler makes of it, once its objects are decoded, is a [`Change`](crate::cache::Change).

use std::sync::Arc;

use crate::cached::Cached;
use crate::decode_error::DecodeError;
use crate::delta::Entry;
use crate::key::ObjectKey;

/// What a delta changed, in the order handlers hear of it.
#[derive(Debug)]
pub enum Outcome<K> {
    /// An object appeared.
    Added(Entry<K>, Arrival),
    /// An object is gone.
    Deleted {
        /// Which one.
        key: ObjectKey,
        /// Its final state or the one last seen; `None` if neither is known.
        object: Option<Cached<K>>,
        /// Which of the two it is.
        finality: Finality,
    },
    /// The first list is complete; to a handler: it has heard of everything that was there when it was added.
    Filled,
    /// An object exists that cannot be decoded.
    Undecodable(Arc<DecodeError>),
    /// An object changed, or, at a resync, did not: then both are the same object in memory.
    Updated {
        /// Which one.
        key: ObjectKey,
        /// The state before.
        old: Cached<K>,
        /// The state now.
        new: Cached<K>,
    },
}

/// Whether an object is new, or only new to the handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// It was there when the handler started.
    Initial,
    /// It appeared since.
    Later,
}

/// How it is known that an object is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Finality {
    /// It was missing from a relist, or its final state could not be decoded: the state last seen is not its final one.
    Missed,
    /// The server said so and sent its final state.
    Reported,
}

impl<K> Outcome<K> {
    /// Which object this is about; `None` for the end of the first list, and for an undecodable object without a name.
    pub fn key(&self) -> Option<&ObjectKey> {
        match self {
            Self::Added(entry, _) => Some(&entry.key),
            Self::Deleted { key, .. } | Self::Updated { key, .. } => Some(key),
            Self::Filled => None,
            Self::Undecodable(error) => error.key.as_ref(),
        }
    }

    /// Nothing happened; the object is delivered again.
    pub(crate) fn is_resync(&self) -> bool {
        matches!(self, Self::Updated { old, new, .. } if Cached::ptr_eq(old, new))
    }

    /// Takes `later`, which is about the same object, in if the state between the two is all that is lost; otherwise hands
    /// it back.
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
