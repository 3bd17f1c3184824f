//! From events to keys: which changes of a type count for a controller, and which keys run for them.
//!
//! A handler treats the keys differently while the controller does not work yet, see
//! [`crate::control::controller::standby`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::cache::cached::Cached;
use crate::cache::handler::{Change, Event, EventHandler, EventKind};
use crate::cache::indexer::Indexer;
use crate::cache::informer::Informer;
use crate::cache::outcome::{Arrival, Outcome};
use crate::control::controller::standby::Standby;
use crate::control::controller::{Predicate, passes};
use crate::control::fence::{KeySource, Refill};
use crate::control::queue::Priority;
use crate::shared::key::ObjectKey;
use crate::shared::selection::CachedResource;
use crate::writing::owners::{OwnedBy, OwnerType};

/// Which events count, and the keys that run for them.
pub(crate) struct KeyMapping<T> {
    pub(crate) predicates: Vec<Box<Predicate<T>>>,
    pub(crate) map: Map<T>,
    /// The priority of the keys for changes.
    pub(crate) priority: Priority,
}

/// Maps changes to keys.
pub(crate) enum Map<T> {
    /// By the change as a whole, with decoded objects.
    Change(Box<MapChange<T>>),
    /// The object's own key; nothing is decoded.
    Key,
    /// By the metadata of the previous and of the new state; nothing else is decoded.
    Metadata(Box<MapMetadata>),
    /// By the previous and by the new state, each alone.
    States(Box<MapState<T>>),
}

type MapChange<T> = dyn Fn(&Change<'_, T>) -> Vec<ObjectKey> + Send + Sync;
type MapMetadata = dyn Fn(&ObjectMeta) -> Vec<ObjectKey> + Send + Sync;
type MapState<T> = dyn Fn(&T) -> Vec<ObjectKey> + Send + Sync;

/// A handler that adds the keys of events that count.
pub(crate) struct Mapped<T> {
    pub(crate) wanted: Arc<KeyMapping<T>>,
    pub(crate) standby: Arc<Standby>,
}

// === impl KeyMapping ===

impl<T: CachedResource> KeyMapping<T> {
    /// Calls `add` with the keys of a change: those of the previous state and those of the new one.
    fn each_key(&self, event: &Event<'_, T>, add: &mut dyn FnMut(ObjectKey)) {
        match &self.map {
            // Decoded once for predicates and map.
            Map::Change(map) => event.with_change(|change| {
                if passes(&self.predicates, change) {
                    map(change).into_iter().for_each(&mut *add);
                }
            }),
            Map::Key => {
                if self.counts(event) {
                    event.key().cloned().into_iter().for_each(add);
                }
            }
            Map::Metadata(_) => {
                if self.counts(event) {
                    let before = event.old().filter(|_| event.kind() != EventKind::Resync);
                    for state in [before, event.object()].into_iter().flatten() {
                        self.keys_of_state(event, state).into_iter().for_each(&mut *add);
                    }
                }
            }
            Map::States(map) => event.with_change(|change| {
                if !passes(&self.predicates, change) {
                    return;
                }
                match change {
                    Change::Updated { old, .. } if !change.is_resync() => {
                        old.object().map(|old| map(old)).into_iter().flatten().for_each(&mut *add);
                    }
                    // Readers no longer see the previous state.
                    Change::Undecodable(_) => {
                        let before = event.old().map(|old| self.keys_of_state(event, old));
                        before.into_iter().flatten().for_each(&mut *add);
                    }
                    _ => {}
                }
                change.object().map(map).into_iter().flatten().for_each(&mut *add);
            }),
        }
    }

    /// The keys of a change that the cache cannot give once it has the change: those of a deleted object, and those of
    /// a previous state that the new state does not give.
    fn keys_left_behind(&self, event: &Event<'_, T>) -> Vec<ObjectKey> {
        let (before, after) = match event.kind() {
            EventKind::Added(_) | EventKind::Resync => return Vec::new(),
            EventKind::Deleted => (event.object(), None),
            EventKind::Undecodable | EventKind::Updated => (event.old(), event.object()),
        };
        let mut keys = Vec::new();
        match &self.map {
            Map::Change(_) => {
                let mut found = Vec::new();
                if let Some(arrival) = event.arrival() {
                    self.each_key(&event.with_outcome(&arrival), &mut |key| found.push(key));
                }
                self.each_key(event, &mut |key| keys.push(key));
                keys.retain(|key| !found.contains(key));
            }
            Map::Key if event.kind() == EventKind::Deleted => self.each_key(event, &mut |key| keys.push(key)),
            Map::Key => {}
            Map::Metadata(_) | Map::States(_) => {
                if self.counts(event) {
                    let of = |state: Option<&Cached<T>>| state.map(|state| self.keys_of_state(event, state));
                    let after = of(after).unwrap_or_default();
                    keys.extend(of(before).into_iter().flatten().filter(|key| !after.contains(key)));
                }
            }
        }
        keys
    }

    /// The keys of one state, for maps of single states.
    fn keys_of_state(&self, event: &Event<'_, T>, state: &Cached<T>) -> Vec<ObjectKey> {
        match &self.map {
            // Metadata that cannot be read names no owner.
            Map::Metadata(map) => state.with_metadata(|metadata| map(metadata)).unwrap_or_default(),
            Map::States(map) => event.decode_state(state).map(|state| map(&state)).unwrap_or_default(),
            Map::Change(_) | Map::Key => Vec::new(),
        }
    }

    /// Objects of the initial state, and those that a resync repeats, have low priority whatever the priority of
    /// changes.
    fn priority(&self, kind: EventKind) -> Priority {
        match Priority::of(kind) {
            Priority::Low => Priority::Low,
            Priority::Normal | Priority::High => self.priority,
        }
    }

    /// Whether a change passes all predicates. Without any, nothing is decoded.
    fn counts(&self, event: &Event<'_, T>) -> bool {
        self.predicates.is_empty() || event.with_change(|change| passes(&self.predicates, change))
    }

    /// Offers the keys of all cached objects, one object at a time, so that a panic costs only one object.
    pub(crate) fn source(self: &Arc<Self>, indexer: Indexer<T>) -> KeySource {
        let this = Arc::clone(self);
        Box::new(move |refill| {
            if matches!(this.map, Map::Key) && this.predicates.is_empty() {
                return indexer.keys().into_iter().for_each(|key| refill.offer(key));
            }
            let present = indexer.entries().into_iter().map(|entry| Outcome::Added(entry, Arrival::Initial));
            for outcome in present.chain(indexer.undecodable().into_iter().map(Outcome::Undecodable)) {
                this.offer(&outcome, &indexer, refill);
            }
        })
    }

    fn offer(&self, outcome: &Outcome<T>, indexer: &Indexer<T>, refill: &Refill<'_>) {
        let key = outcome.key();
        let is_unwanted = matches!(self.map, Map::Key) && key.is_some_and(|key| !refill.wants(key));
        if is_unwanted || refill.is_over() {
            return;
        }
        let event = Event::new(outcome, indexer.decoder());
        if catch_unwind(AssertUnwindSafe(|| self.each_key(&event, &mut |key| refill.offer(key)))).is_err() {
            tracing::error!(?key, "a predicate or a map panicked; the object is skipped");
        }
    }
}

// === impl Mapped ===

impl<T: CachedResource> EventHandler<T> for Mapped<T> {
    fn on_event(&mut self, event: &Event<'_, T>) {
        if !self.standby.is_over() && self.standby.keep(self.wanted.keys_left_behind(event)) {
            return;
        }
        let priority = self.wanted.priority(event.kind());
        self.wanted.each_key(event, &mut |key| self.standby.queue().add_with(key, priority));
    }
}

/// Maps an object to the keys of the `K`s that own it.
pub(crate) fn to_owners<K: CachedResource, T>(owner: OwnerType, owned_by: OwnedBy, informer: &Informer<K>) -> Map<T> {
    let known = informer.indexer();
    // Where the type does not say whether owners are namespaced, the cached owners do. An owner that is not cached yet
    // runs when it appears.
    Map::Metadata(Box::new(move |metadata| owner.keys(metadata, owned_by, |key| known.contains(key))))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::ConfigMap;

    use super::*;
    use crate::cache::outcome::Finality;
    use crate::list_watch::delta::Entry;

    fn owned_by(owner: &str) -> Cached<ConfigMap> {
        let data = Some(BTreeMap::from([("owner".to_owned(), owner.to_owned())]));
        Arc::new(ConfigMap { data, ..ConfigMap::default() }).into()
    }

    fn owners(object: Option<&Arc<ConfigMap>>) -> Vec<ObjectKey> {
        let owner = object.and_then(|object| object.data.as_ref()?.get("owner"));
        owner.into_iter().map(|owner| ObjectKey::cluster(owner)).collect()
    }

    /// Checks the keys that an event leaves behind, for a map of the change as a whole.
    #[track_caller]
    fn check(outcome: &Outcome<ConfigMap>, expected: &[&str]) {
        let map: Map<ConfigMap> = Map::Change(Box::new(|change| match change {
            Change::Added(object, _) => owners(Some(object)),
            Change::Deleted(deleted) => owners(deleted.object()),
            Change::Undecodable(_) => Vec::new(),
            Change::Updated { old, new } => [owners(old.object()), owners(Some(new))].concat(),
        }));
        let wanted = KeyMapping { predicates: Vec::new(), map, priority: Priority::Normal };
        let indexer = Indexer::<ConfigMap>::new();
        let keys = wanted.keys_left_behind(&Event::new(outcome, indexer.decoder()));
        assert_eq!(keys.iter().map(ObjectKey::as_str).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn of_a_change_as_a_whole_only_those_keys_are_left_behind_that_the_cache_does_not_give() {
        let key = ObjectKey::cluster("x");
        let updated = |old, new| Outcome::Updated { key: key.clone(), old: owned_by(old), new: owned_by(new) };
        check(&updated("a", "a"), &[]);
        check(&updated("a", "b"), &["a"]);
        check(&Outcome::Added(Entry { key: key.clone(), object: owned_by("a") }, Arrival::Later), &[]);
        let object = Some(owned_by("a"));
        check(&Outcome::Deleted { key: key.clone(), object, finality: Finality::Reported }, &["a"]);
    }
}
