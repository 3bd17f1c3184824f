//! Handlers of events, and the events they get.
//!
//! Handlers are synchronous and only map objects to keys; the work happens behind a queue. Every handler has its own
//! bounded queue and its own task, see [`crate::cache::informer`].

mod previous;

use std::fmt;
use std::sync::Arc;

use kube::Resource;

use crate::cache::cached::{Cached, Decoder};
use crate::cache::outcome::{Arrival, Finality, Outcome};
use crate::list_watch::delta::Entry;
use crate::shared::chain::Chain;
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;

pub use crate::cache::handler::previous::Previous;

/// Gets the events of an informer, in order per object.
///
/// Called on a task of its own, one call at a time. It must not block: a slow handler falls behind, and once it is too
/// far behind ([`HandlerOptions::events_max`](crate::cache::HandlerOptions)), the cache waits for it. A panic is caught
/// and logged, and only that event is lost.
pub trait EventHandler<K: CachedResource>: Send + 'static {
    /// An object appeared. The default does nothing, as do those of the next methods.
    fn on_add(&mut self, _object: &Arc<K>, _arrival: Arrival) {}

    /// An object changed. At a resync it did not: both then have the same version.
    fn on_update(&mut self, _old: &Previous<'_, K>, _new: &Arc<K>) {}

    /// An object is gone.
    fn on_delete(&mut self, _deleted: &Deleted<K>) {}

    /// An object exists that cannot be decoded. That holds until the next event about it. The informer has logged it.
    fn on_error(&mut self, _error: &Arc<DecodeError>) {}

    /// Any event. The default decodes objects held as bytes ([`CacheMode::Compact`](crate::cache::CacheMode)) and calls
    /// one of the other methods. A handler that needs only the key or the metadata implements this one alone, and
    /// nothing is decoded for it.
    fn on_event(&mut self, event: &Event<'_, K>) {
        event.with_change(|change| match change {
            Change::Added(object, arrival) => self.on_add(object, *arrival),
            Change::Deleted(deleted) => self.on_delete(deleted),
            Change::Undecodable(error) => self.on_error(error),
            Change::Updated { old, new } => self.on_update(old, new),
        });
    }
}

/// An event about an object, before anything is decoded; see [`EventHandler::on_event`].
#[derive(Debug)]
pub struct Event<'a, K> {
    outcome: &'a Outcome<K>,
    decoder: &'a Decoder<K>,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventKind {
    /// An object appeared.
    Added(Arrival),
    /// An object is gone.
    Deleted,
    /// The object is delivered again, without a change.
    Resync,
    /// An object exists that cannot be decoded.
    Undecodable,
    /// An object changed.
    Updated,
}

/// An object that is gone.
#[derive(Debug)]
pub enum Deleted<K> {
    /// The server reported the deletion; this is the final state.
    Final(Arc<K>),
    /// The deletion was missed while disconnected, or its object could not be decoded.
    Tombstone {
        /// The key of the object.
        key: ObjectKey,
        /// Its last known state, which is not its final one. `None`: it was never decodable.
        last_known: Option<Arc<K>>,
    },
}

/// One event as a value, for predicates and for handlers that are one function.
#[derive(Debug)]
pub enum Change<'a, K> {
    /// An object appeared.
    Added(&'a Arc<K>, Arrival),
    /// An object is gone.
    Deleted(&'a Deleted<K>),
    /// An object exists that cannot be decoded.
    Undecodable(&'a Arc<DecodeError>),
    /// An object changed, or, at a resync, did not.
    Updated {
        /// The previous state.
        old: &'a Previous<'a, K>,
        /// The new state.
        new: &'a Arc<K>,
    },
}

/// A handler made of one function; see [`handler_fn`].
pub struct HandlerFn<F> {
    function: F,
}

/// Makes a handler of one function, which gets every event as a [`Change`].
pub fn handler_fn<K, F>(function: F) -> HandlerFn<F>
where
    F: FnMut(Change<'_, K>) + Send + 'static,
{
    HandlerFn { function }
}

// === impl Event ===

impl<'a, K> Event<'a, K> {
    pub(crate) fn new(outcome: &'a Outcome<K>, decoder: &'a Decoder<K>) -> Self {
        Self { outcome, decoder }
    }

    /// The key of the object; `None` for an undecodable one without a name.
    pub fn key(&self) -> Option<&'a ObjectKey> {
        self.outcome.key()
    }

    /// The type of the event.
    pub fn kind(&self) -> EventKind {
        match self.outcome {
            Outcome::Added(_, arrival) => EventKind::Added(*arrival),
            Outcome::Deleted { .. } => EventKind::Deleted,
            // `Filled` marks the end of the initial list; handlers do not get it as an event.
            Outcome::Filled | Outcome::Undecodable(_) => EventKind::Undecodable,
            outcome @ Outcome::Updated { .. } if outcome.is_resync() => EventKind::Resync,
            Outcome::Updated { .. } => EventKind::Updated,
        }
    }

    /// The newest known state; for a deleted object, the final or the last known one.
    pub fn object(&self) -> Option<&'a Cached<K>> {
        match self.outcome {
            Outcome::Added(entry, _) => Some(&entry.object),
            Outcome::Deleted { object, .. } => object.as_ref(),
            Outcome::Filled | Outcome::Undecodable(_) => None,
            Outcome::Updated { new, .. } => Some(new),
        }
    }

    /// The previous state of an object that changed.
    pub fn old(&self) -> Option<&'a Cached<K>> {
        match self.outcome {
            Outcome::Updated { old, .. } => Some(old),
            Outcome::Added(..) | Outcome::Deleted { .. } | Outcome::Filled | Outcome::Undecodable(_) => None,
        }
    }
}

impl<K> Event<'_, K> {
    /// The state that a reader of the cache finds after this event, as if the object had just appeared; `None` if it
    /// finds none.
    pub(crate) fn arrival(&self) -> Option<Outcome<K>> {
        let arrived = |entry| Outcome::Added(entry, Arrival::Initial);
        match self.outcome {
            Outcome::Added(entry, _) => Some(arrived(entry.clone())),
            Outcome::Deleted { .. } | Outcome::Filled => None,
            Outcome::Undecodable(error) => Some(Outcome::Undecodable(Arc::clone(error))),
            Outcome::Updated { key, new, .. } => Some(arrived(Entry { key: key.clone(), object: new.clone() })),
        }
    }

    /// An event for another outcome of the same cache.
    pub(crate) fn with_outcome<'b>(&'b self, outcome: &'b Outcome<K>) -> Event<'b, K> {
        Event { outcome, decoder: self.decoder }
    }
}

impl<K: CachedResource> Event<'_, K> {
    /// Calls `function` with the event as a change of decoded objects. If an object cannot be decoded, the change is
    /// [`Change::Undecodable`].
    pub fn with_change<R>(&self, function: impl FnOnce(&Change<'_, K>) -> R) -> R {
        let mut function = Some(function);
        let mut returned = None;
        self.visit_change(&mut |change| returned = function.take().map(|function| function(change)));
        returned.expect("invariant: `visit_change` calls the function in each of its arms")
    }

    /// Calls `function` once with the change. It does not depend on the type of the function, so that it is compiled once for a kind and not
    /// for each handler.
    fn visit_change(&self, function: &mut dyn FnMut(&Change<'_, K>)) {
        let key = self.key().cloned().unwrap_or_else(|| ObjectKey::cluster(""));
        let decode = |cached: &Cached<K>| self.decoder.decode_delivered(&key, cached);
        let failed = |error: &Arc<DecodeError>| tracing::warn!(error = %Chain(error), "skipping an object");
        match self.outcome {
            Outcome::Added(entry, arrival) => match decode(&entry.object) {
                Ok(object) => function(&Change::Added(&object, *arrival)),
                Err(error) => {
                    failed(&error);
                    function(&Change::Undecodable(&error));
                }
            },
            Outcome::Deleted { object, finality, .. } => {
                let object = object.as_ref().and_then(|object| decode(object).ok());
                function(&Change::Deleted(&match (object, finality) {
                    (Some(object), Finality::Reported) => Deleted::Final(object),
                    (last_known, _) => Deleted::Tombstone { key: key.clone(), last_known },
                }));
            }
            Outcome::Filled => unreachable!("handlers are not told of the end of the initial list"),
            Outcome::Undecodable(error) => function(&Change::Undecodable(error)),
            Outcome::Updated { old, new, .. } => match decode(new) {
                Ok(new) if self.outcome.is_resync() => {
                    function(&Change::Updated { old: &Previous::from(&new), new: &new });
                }
                Ok(new) => {
                    let decode_old = || decode(old).ok();
                    let old = match old.decoded() {
                        Some(old) => Previous::from(old),
                        None => Previous::held(old, &decode_old),
                    };
                    function(&Change::Updated { old: &old, new: &new });
                }
                Err(error) => {
                    failed(&error);
                    function(&Change::Undecodable(&error));
                }
            },
        }
    }

    /// A state of the object, if it can be decoded.
    pub(crate) fn decode_state(&self, state: &Cached<K>) -> Option<Arc<K>> {
        self.decoder.decode_delivered(self.key()?, state).ok()
    }
}

// === impl Deleted ===

impl<K> Deleted<K> {
    /// The final state of the object, or the last known one.
    pub fn object(&self) -> Option<&Arc<K>> {
        match self {
            Self::Final(object) => Some(object),
            Self::Tombstone { last_known, .. } => last_known.as_ref(),
        }
    }
}

impl<K: Resource> Deleted<K> {
    /// The key of the object.
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

impl<K> Change<'_, K> {
    /// The type of the event.
    pub fn kind(&self) -> EventKind {
        match self {
            Self::Added(_, arrival) => EventKind::Added(*arrival),
            Self::Deleted(_) => EventKind::Deleted,
            Self::Undecodable(_) => EventKind::Undecodable,
            Self::Updated { old, new } if old.is(new) => EventKind::Resync,
            Self::Updated { .. } => EventKind::Updated,
        }
    }
}

impl<K: Resource> Change<'_, K> {
    /// The key of the object; `None` for an undecodable one without a name.
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

    /// Whether this is a resync: the object is delivered again without a change.
    pub fn is_resync(&self) -> bool {
        matches!(self, Self::Updated { old, new } if old.is(new))
    }

    /// Whether the desired state changed: true for everything but an update that left `metadata.generation` unchanged.
    /// Objects without generations always pass.
    ///
    /// Changes of labels, annotations, finalizers and status do not count; a deletion that waits for finalizers does.
    pub fn is_generation_change(&self) -> bool {
        match self {
            Self::Added(..) | Self::Deleted(_) | Self::Undecodable(_) => true,
            Self::Updated { old, new } => {
                let new = new.meta();
                old.metadata().is_none_or(|old| {
                    new.generation.is_none_or(|generation| old.generation != Some(generation))
                        || old.deletion_timestamp != new.deletion_timestamp
                })
            }
        }
    }
}

// === impl HandlerFn ===

impl<K, F> EventHandler<K> for HandlerFn<F>
where
    K: CachedResource,
    F: FnMut(Change<'_, K>) + Send + 'static,
{
    fn on_add(&mut self, object: &Arc<K>, arrival: Arrival) {
        (self.function)(Change::Added(object, arrival));
    }

    fn on_update(&mut self, old: &Previous<'_, K>, new: &Arc<K>) {
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
