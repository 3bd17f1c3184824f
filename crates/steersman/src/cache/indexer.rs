//! The cache: every object of one selection, found by key, by namespace or by any number of indexes.
//!
//! One writer (the informer's task) applies batches under one lock; readers get `Arc`s and never a copy. An object held
//! as bytes is decoded by its reader, outside the lock. A relist is applied object by object as it arrives, so that
//! until its end readers see some objects in the new state and others in the old one: objects that the list names are
//! marked, and at its end unmarked objects are removed as tombstones. Objects that exist but cannot be decoded have an
//! entry of their own, so that nobody takes them for deleted. [`core`] has the state, [`index`] one index,
//! [`crate::cache::index`] adds and reads indexes.

mod core;
mod index;
mod lists;
mod posting;

use std::borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::RwLock;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cache::cached::{Cached, Decoder, Keep};
use crate::cache::indexer::core::{Core, Slot};
use crate::cache::indexer::index::ByFunction;
use crate::cache::outcome::Outcome;
use crate::list_watch::delta::{Delta, Entry};
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Scope, resource_name};

pub(crate) use crate::cache::indexer::index::Function;
pub(crate) use crate::cache::indexer::lists::Covered;

/// A thread-safe cache of the objects of one type. Clones share the cache.
pub struct Indexer<K> {
    core: Arc<RwLock<Core<K>>>,
    decoder: Arc<Decoder<K>>,
    /// The scope of the watch. The state of namespaces outside it is unknown.
    scope: Arc<Scope>,
    /// The newest version that the cache covers, empty before the first list. Waits for a version subscribe to it.
    version: Arc<watch::Sender<Covered>>,
    /// True once the first list is in `core`. Set under its lock, so that a reader that finds it set reads a complete
    /// state.
    is_filled: Arc<AtomicBool>,
    /// When a list was last asked for because the watch seemed to stand still. The reflector subscribes to it.
    relist: Arc<watch::Sender<Option<Instant>>>,
}

/// The result of reading one key.
#[derive(Debug)]
pub enum Found<K> {
    /// The object does not exist, as far as the cache knows.
    Absent,
    /// The object.
    Object(Arc<K>),
    /// The object exists, and its current state cannot be decoded.
    Undecodable(Arc<DecodeError>),
}

/// The metadata of one object, as far as the cache has them.
pub(crate) enum Metadata {
    Absent,
    Known(Box<ObjectMeta>),
    /// The object exists, and its current state cannot be decoded.
    Unreadable,
}

/// The result of a read under the lock: decoded objects, and bytes that are decoded once the lock is released.
struct Hits<K> {
    decoded: Vec<Arc<K>>,
    held: Vec<Entry<K>>,
}

// === impl Indexer ===

impl<K: CachedResource> Default for Indexer<K>
where
    K::DynamicType: Default,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<K: CachedResource> Indexer<K> {
    /// An empty cache, for a type known when the program is built.
    pub fn new() -> Self
    where
        K::DynamicType: Default,
    {
        Self::with(&resource_name::<K>(&K::DynamicType::default()), 0)
    }

    /// An empty cache. `resource` names the type in errors; `decoded_max` of the objects that are held as bytes are
    /// also kept decoded.
    pub fn with(resource: &str, decoded_max: usize) -> Self {
        Self::keeping(resource, Keep::AtMost(decoded_max))
    }

    pub(crate) fn keeping(resource: &str, keep: Keep) -> Self {
        Self {
            core: Arc::new(RwLock::new(Core::new(&Scope::All))),
            decoder: Arc::new(Decoder::new(resource, keep)),
            scope: Arc::default(),
            version: Arc::new(watch::Sender::new(Covered::default())),
            is_filled: Arc::default(),
            relist: Arc::default(),
        }
    }

    /// The same cache, empty, for the objects in `scope`. With several namespaces, each has a list of its own, and the
    /// cache is filled after all of them. A [`Lister`](crate::Lister) refuses reads of other namespaces, whose state is
    /// unknown.
    pub fn scoped(self, scope: &Scope) -> Self {
        Self {
            core: Arc::new(RwLock::new(Core::new(scope))),
            decoder: self.decoder,
            scope: Arc::new(scope.clone()),
            version: Arc::new(watch::Sender::new(Covered::nothing(scope))),
            is_filled: Arc::default(),
            relist: Arc::default(),
        }
    }

    /// The scope of the watch.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Has the reflector that fills the cache break off its watch and list anew, unless that was asked for within `pause`.
    pub(crate) fn relist(&self, pause: Duration) {
        let now = Instant::now();
        self.relist.send_if_modified(|asked| {
            let is_due = asked.is_none_or(|asked| pause <= now.saturating_duration_since(asked));
            if is_due {
                *asked = Some(now);
            }
            is_due
        });
    }

    /// Is told when [`Indexer::relist`] asks for a list.
    pub(crate) fn relists(&self) -> watch::Receiver<Option<Instant>> {
        self.relist.subscribe()
    }

    /// Adds an index and fills it from the objects present. Returns its number.
    pub(crate) fn add<V: Eq + Hash + Send + Sync + 'static>(&self, function: Function<K, V>) -> usize {
        self.core.write().add_index(function, &self.decoder)
    }

    /// Looks one key up.
    pub fn get(&self, key: &ObjectKey) -> Found<K> {
        let found = {
            let core = self.core.read();
            match core.find(key) {
                None => return Found::Absent,
                Some(slot) if slot.broken.is_some() => {
                    return slot.broken.clone().map_or(Found::Absent, Found::Undecodable);
                }
                Some(slot) => slot.object.clone(),
            }
        };
        match found.map(|object| self.decoder.decode(key, &object)) {
            None => Found::Absent,
            Some(Ok(object)) => Found::Object(object),
            Some(Err(error)) => Found::Undecodable(error),
        }
    }

    /// Whether an object exists at `key`, undecodable or not. Decodes nothing.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        self.core.read().find(key).is_some()
    }

    /// Every object, in no order. An undecodable object is returned in the state last decoded, or left out if it is
    /// held as bytes.
    pub fn list(&self) -> Vec<Arc<K>> {
        let mut found = Hits::default();
        {
            let core = self.core.read();
            core.slots().for_each(|(_, slot)| found.push(slot));
        }
        found.decode(&self.decoder)
    }

    /// Every object whose metadata passes, in no order. Objects held as bytes are decoded only if they pass.
    pub fn list_where(&self, passes: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<K>> {
        self.decode_where(self.entries(), passes)
    }

    /// The key of every object that exists, undecodable ones included, in no order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.core.read().slots().map(|(_, slot)| slot.key.clone()).collect()
    }

    /// Every object in `namespace`, in no order; with the empty string, every cluster-scoped one.
    pub fn list_in(&self, namespace: &str) -> Vec<Arc<K>> {
        let mut found = Hits::default();
        {
            let core = self.core.read();
            core.slots_in(namespace).for_each(|slot| found.push(slot));
        }
        found.decode(&self.decoder)
    }

    /// Every object in `namespace` whose metadata passes, in no order. Objects held as bytes are decoded only if they
    /// pass.
    pub fn list_in_where(&self, namespace: &str, passes: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<K>> {
        let entries = self.core.read().slots_in(namespace).filter_map(Slot::entry).collect();
        self.decode_where(entries, passes)
    }

    /// The key of every object in `namespace`, undecodable ones included, in no order. Decodes nothing.
    pub fn keys_in(&self, namespace: &str) -> Vec<ObjectKey> {
        self.core.read().slots_in(namespace).map(|slot| slot.key.clone()).collect()
    }

    /// The objects under `value` of the index `number`, whose values are of type `V`; in no order.
    pub(crate) fn indexed<V, Q>(&self, number: usize, value: &Q) -> Vec<Arc<K>>
    where
        V: borrow::Borrow<Q> + Eq + Hash + Send + Sync + 'static,
        Q: ?Sized + Eq + Hash,
    {
        let mut found = Hits::default();
        {
            let core = self.core.read();
            found.extend(core.index::<V>(number).map(|index| index.objects(value)).unwrap_or_default(), &core);
        }
        found.decode(&self.decoder)
    }

    /// As [`Indexer::indexed`], for the objects whose metadata passes.
    pub(crate) fn indexed_where<V, Q>(
        &self,
        number: usize,
        value: &Q,
        passes: impl Fn(&ObjectMeta) -> bool,
    ) -> Vec<Arc<K>>
    where
        V: borrow::Borrow<Q> + Eq + Hash + Send + Sync + 'static,
        Q: ?Sized + Eq + Hash,
    {
        let entries = self.core.read().indexed_slots::<V, Q>(number, value).filter_map(Slot::entry).collect();
        self.decode_where(entries, passes)
    }

    /// The keys under `value` of the index `number`, whose values are of type `V`; in no order.
    pub(crate) fn indexed_keys<V, Q>(&self, number: usize, value: &Q) -> Vec<ObjectKey>
    where
        V: borrow::Borrow<Q> + Eq + Hash + Send + Sync + 'static,
        Q: ?Sized + Eq + Hash,
    {
        self.core.read().indexed_slots::<V, Q>(number, value).map(|slot| slot.key.clone()).collect()
    }

    /// The number of objects under `value` of the index `number`, whose values are of type `V`.
    pub(crate) fn indexed_count<V, Q>(&self, number: usize, value: &Q) -> usize
    where
        V: borrow::Borrow<Q> + Eq + Hash + Send + Sync + 'static,
        Q: ?Sized + Eq + Hash,
    {
        self.core.read().index::<V>(number).map_or(0, |index| index.objects(value).len())
    }

    /// The values under which the index `number` has objects, in no order.
    pub(crate) fn indexed_values<V: Clone + Eq + Hash + Send + Sync + 'static>(&self, number: usize) -> Vec<V> {
        self.core.read().index::<V>(number).map(ByFunction::used_values).unwrap_or_default()
    }

    /// Whether the cache has had a complete list. Before that, an object that is absent here may exist: reads of this
    /// type do not say so, those of a [`Lister`](crate::Lister) do.
    pub fn is_filled(&self) -> bool {
        self.is_filled.load(Ordering::Acquire)
    }

    /// The number of objects that exist, undecodable ones included.
    pub fn len(&self) -> usize {
        self.core.read().len()
    }

    /// Whether no object exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The errors of the objects that cannot be decoded at present. For objects held as bytes, only those that are not
    /// even JSON with a name: other errors appear when the object is read.
    pub fn undecodable(&self) -> Vec<Arc<DecodeError>> {
        self.core.read().slots().filter_map(|(_, slot)| slot.broken.clone()).collect()
    }

    /// The newest version that the cache covers; empty before the first list. With several namespaces, each of which is
    /// covered up to a version of its own, the oldest of these.
    pub fn resource_version(&self) -> String {
        self.version.borrow().all()
    }

    /// The newest version up to which the cache covers `namespace`.
    pub(crate) fn version_in(&self, namespace: Option<&str>) -> String {
        self.version.borrow().of(namespace).to_owned()
    }

    /// Receives every version that the cache comes to cover.
    pub(crate) fn versions(&self) -> watch::Receiver<Covered> {
        self.version.subscribe()
    }

    /// The object at `key`, if the cache has it at `resource_version` and with the same uid.
    pub(crate) fn at_version(&self, key: &str, resource_version: &str, uid: &str) -> Option<Entry<K>> {
        let core = self.core.read();
        let slot = core.find_text(key)?;
        let object = slot.object.as_ref().filter(|_| slot.broken.is_none())?;
        let is_same =
            !resource_version.is_empty() && object.resource_version() == resource_version && object.uid() == uid;
        is_same.then(|| Entry { key: slot.key.clone(), object: object.clone() })
    }

    /// The version of the cached object at `key`, also of a state that cannot be decoded; `None` if no such object
    /// exists.
    pub(crate) fn version_of(&self, key: &ObjectKey) -> Option<String> {
        let core = self.core.read();
        let slot = core.find(key)?;
        match &slot.broken {
            Some(error) => Some(error.resource_version.clone()),
            None => Some(slot.object.as_ref()?.resource_version().to_owned()),
        }
    }

    /// The metadata of the object at `key`, without the rest.
    pub(crate) fn metadata_of(&self, key: &ObjectKey) -> Metadata {
        let object = {
            let core = self.core.read();
            let Some(slot) = core.find(key) else { return Metadata::Absent };
            slot.object.clone().filter(|_| slot.broken.is_none())
        };
        match object.as_ref().map(Cached::metadata) {
            Some(Ok(metadata)) => Metadata::Known(Box::new(metadata.into_owned())),
            Some(Err(_)) | None => Metadata::Unreadable,
        }
    }

    /// The metadata of every object in `namespace`, or of every object, with their keys.
    pub(crate) fn metadata_in(&self, namespace: Option<&str>) -> Vec<(ObjectKey, ObjectMeta)> {
        let entries = match namespace {
            None => self.entries(),
            Some(namespace) => self.core.read().slots_in(namespace).filter_map(Slot::entry).collect(),
        };
        entries.into_iter().filter_map(|entry| Some((entry.key, entry.object.metadata().ok()?.into_owned()))).collect()
    }

    /// Whether the object with `uid` is gone from `key`, or waits for its finalizers. An undecodable state counts as
    /// gone: the cache will not learn more about it, and a wait for the deletion might never end.
    pub(crate) fn is_gone_or_going(&self, key: &ObjectKey, uid: &str) -> bool {
        let object = {
            let core = self.core.read();
            let slot = core.find(key).filter(|slot| slot.broken.is_none());
            slot.and_then(|slot| slot.object.clone()).filter(|object| object.uid() == uid)
        };
        let is_going = |object: &Cached<K>| object.with_metadata(|metadata| metadata.deletion_timestamp.is_some());
        object.is_none_or(|object| is_going(&object).unwrap_or(true))
    }

    /// Every object with its key, for a handler that is added or a resync.
    pub(crate) fn entries(&self) -> Vec<Entry<K>> {
        let core = self.core.read();
        core.slots().filter_map(|(_, slot)| slot.entry()).collect()
    }

    /// The state at `key` for a stream of one object: the object, or the error of its current state.
    pub(crate) fn entry(&self, key: &ObjectKey) -> (Vec<Entry<K>>, Vec<Arc<DecodeError>>) {
        let core = self.core.read();
        let Some(slot) = core.find(key) else { return (Vec::new(), Vec::new()) };
        if let Some(broken) = &slot.broken {
            return (Vec::new(), vec![Arc::clone(broken)]);
        }
        let entry = slot.object.clone().map(|object| Entry { key: slot.key.clone(), object });
        (entry.into_iter().collect(), Vec::new())
    }

    pub(crate) fn decoder(&self) -> &Arc<Decoder<K>> {
        &self.decoder
    }

    fn decode_where(&self, entries: Vec<Entry<K>>, passes: impl Fn(&ObjectMeta) -> bool) -> Vec<Arc<K>> {
        let selected =
            entries.iter().filter(|entry| entry.object.with_metadata(|metadata| passes(metadata)).unwrap_or(false));
        selected.filter_map(|entry| self.decoder.decode(&entry.key, &entry.object).ok()).collect()
    }

    /// Applies `batch` under one lock and appends the changes to `outcomes`. An informer does this; call it only on an
    /// indexer of your own.
    pub fn apply(&self, batch: &mut Vec<Delta<K>>, outcomes: &mut Vec<Outcome<K>>) {
        let mut reached = Covered::nothing(&self.scope);
        {
            let mut core = self.core.write();
            for delta in batch.drain(..) {
                // A delta within a list covers no version; only the end of the list does, and it covers all objects.
                if (!core.is_listing(&delta) || matches!(delta, Delta::ListEnded { .. }))
                    && let Some(version) = delta.resource_version()
                {
                    reached.set(delta.namespace(), version);
                }
                core.apply(delta, &self.decoder, outcomes);
            }
            self.decoder.set_objects(core.len());
            if core.is_filled() {
                self.is_filled.store(true, Ordering::Release);
            }
        }
        // Subscribers are woken even if no version advanced: those that wait for the version of one object look at that
        // object, and it may have come with a list that is not over.
        self.version.send_modify(|covered| covered.advance(reached));
    }
}

impl<K> Clone for Indexer<K> {
    fn clone(&self) -> Self {
        Self {
            core: Arc::clone(&self.core),
            decoder: Arc::clone(&self.decoder),
            scope: Arc::clone(&self.scope),
            version: Arc::clone(&self.version),
            is_filled: Arc::clone(&self.is_filled),
            relist: Arc::clone(&self.relist),
        }
    }
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = self.core.read();
        f.debug_struct("Indexer").field("objects", &core.len()).field("indexes", &core.n_indexes()).finish()
    }
}

// === impl Hits ===

impl<K> Default for Hits<K> {
    fn default() -> Self {
        Self { decoded: Vec::new(), held: Vec::new() }
    }
}

impl<K: CachedResource> Hits<K> {
    fn push(&mut self, slot: &Slot<K>) {
        let Some(object) = &slot.object else { return };
        match object.known() {
            Some(object) => self.decoded.push(object),
            None => self.held.push(Entry { key: slot.key.clone(), object: object.clone() }),
        }
    }

    fn extend(&mut self, objects: &[(u32, Cached<K>)], core: &Core<K>) {
        // This takes no lock. It touches each object once, so that its memory is already on the way into the
        // processor's cache when it is locked below.
        self.decoded.reserve(objects.iter().filter(|(_, object)| object.is_likely_known()).count());
        for (number, object) in objects {
            match object.known() {
                Some(object) => self.decoded.push(object),
                None => self
                    .held
                    .extend(core.slot(*number).map(|slot| Entry { key: slot.key.clone(), object: object.clone() })),
            }
        }
    }

    fn decode(self, decoder: &Decoder<K>) -> Vec<Arc<K>> {
        let mut all = self.decoded;
        all.extend(self.held.iter().filter_map(|entry| decoder.decode(&entry.key, &entry.object).ok()));
        all
    }
}

#[cfg(test)]
mod tests;
