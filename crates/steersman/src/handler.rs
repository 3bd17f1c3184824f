//! What a handler of events is, and what it is told.
//!
//! Handlers are synchronous and only map objects to keys; the work happens behind a queue. Every handler has its own
//! bounded queue and its own task, see [`crate::informer`].

use std::fmt;
use std::sync::Arc;

use kube::Resource;

use crate::delta::DecodeError;
use crate::key::ObjectKey;

/// Told what happened to the objects of an informer, in order per object.
///
/// Called on a task of its own, one call at a time. It must not block: a slow handler holds up nobody else, but it
/// falls behind, and once it does, what happened to one object in the meantime is told as one event. A panic is caught,
/// logged and costs that one event.
pub trait EventHandler<K>: Send + 'static {
    /// An object appeared.
    fn on_add(&mut self, object: &Arc<K>, arrival: Arrival);

    /// An object changed. At a resync it did not: then `Arc::ptr_eq(old, new)`.
    fn on_update(&mut self, old: &Arc<K>, new: &Arc<K>);

    /// An object is gone.
    fn on_delete(&mut self, deleted: &Deleted<K>);

    /// An object exists that cannot be decoded. It stays so until the next event about it. The default does nothing;
    /// the informer has logged it.
    fn on_error(&mut self, _error: &Arc<DecodeError>) {}
}

/// Whether an object is new, or only new to the handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Arrival {
    /// It was there when the handler started.
    Initial,
    /// It appeared since.
    Later,
}

/// An object that is gone.
#[derive(Debug)]
pub enum Deleted<K> {
    /// The server reported the deletion; this is the final state.
    Final(Arc<K>),
    /// The deletion was missed while disconnected, or its object could not be decoded.
    Tombstone {
        /// Which object.
        key: ObjectKey,
        /// Its state when last seen, which is not its final one. `None`: it was never decodable.
        last_known: Option<Arc<K>>,
    },
}

/// One event as a value, for handlers that are one function and for predicates.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// An object appeared.
    Added(&'a Arc<K>, Arrival),
    /// An object is gone.
    Deleted(&'a Deleted<K>),
    /// An object exists that cannot be decoded.
    Undecodable(&'a Arc<DecodeError>),
    /// An object changed, or, at a resync, did not: then `Arc::ptr_eq(old, new)`.
    Updated {
        /// The state before.
        old: &'a Arc<K>,
        /// The state now.
        new: &'a Arc<K>,
    },
}

/// A handler made of one function; see [`handler_fn`].
pub struct HandlerFn<F> {
    function: F,
}

/// Makes a handler of one function that sees every event as a [`Change`].
pub fn handler_fn<K, F>(function: F) -> HandlerFn<F>
where
    F: FnMut(Change<'_, K>) + Send + 'static,
{
    HandlerFn { function }
}

// === impl Deleted ===

impl<K> Deleted<K> {
    /// The object as far as it is known: its final state, or the one last seen.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Final(object) => Some(object),
            Self::Tombstone { last_known, .. } => last_known.as_ref(),
        }
    }
}

impl<K: Resource> Deleted<K> {
    /// Which object is gone.
    pub fn key(&self) -> ObjectKey {
        match self {
            Self::Final(object) => ObjectKey::of(&**object),
            Self::Tombstone { key, .. } => key.clone(),
        }
    }
}

impl<K> Clone for Deleted<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Final(object) => Self::Final(Arc::clone(object)),
            Self::Tombstone { key, last_known } => Self::Tombstone { key: key.clone(), last_known: last_known.clone() },
        }
    }
}

// === impl Change ===

impl<K: Resource> Change<'_, K> {
    /// Which object this is about; `None` for an undecodable one without a name.
    pub fn key(&self) -> Option<ObjectKey> {
        match self {
            Self::Added(object, _) => Some(ObjectKey::of(&***object)),
            Self::Deleted(deleted) => Some(deleted.key()),
            Self::Undecodable(error) => error.key.clone(),
            Self::Updated { new, .. } => Some(ObjectKey::of(&***new)),
        }
    }

    /// The newest known state of the object.
    pub fn object(&self) -> Option<&K> {
        match self {
            Self::Added(object, _) => Some(object),
            Self::Deleted(deleted) => deleted.object().map(|object| &**object),
            Self::Undecodable(_) => None,
            Self::Updated { new, .. } => Some(new),
        }
    }

    /// Whether this is a resync: the object is delivered again although nothing happened.
    pub fn is_resync(&self) -> bool {
        matches!(self, Self::Updated { old, new } if Arc::ptr_eq(old, new))
    }

    /// Whether the desired state changed: everything but an update that left `metadata.generation` alone. Objects
    /// whose server does not count generations always pass.
    ///
    /// Changes of labels, annotations, finalizers and status do not count; a deletion that waits for finalizers does.
    pub fn is_generation_change(&self) -> bool {
        match self {
            Self::Added(..) | Self::Deleted(_) | Self::Undecodable(_) => true,
            Self::Updated { old, new } => {
                let (old, new) = (old.meta(), new.meta());
                new.generation.is_none_or(|generation| old.generation != Some(generation))
                    || old.deletion_timestamp != new.deletion_timestamp
            }
        }
    }
}

// === impl HandlerFn ===

impl<K, F> EventHandler<K> for HandlerFn<F>
where
    F: FnMut(Change<'_, K>) + Send + 'static,
{
    fn on_add(&mut self, object: &Arc<K>, arrival: Arrival) {
        (self.function)(Change::Added(object, arrival));
    }

    fn on_update(&mut self, old: &Arc<K>, new: &Arc<K>) {
        (self.function)(Change::Updated { old, new });
    }

    fn on_delete(&mut self, deleted: &Deleted<K>) {
        (self.function)(Change::Deleted(deleted));
    }

    fn on_error(&mut self, error: &Arc<DecodeError>) {
        (self.function)(Change::Undecodable(error));
    }
}

impl<F> fmt::Debug for HandlerFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerFn").finish_non_exhaustive()
    }
}
