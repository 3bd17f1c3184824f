//! The state of a cache and its changes by deltas. [`crate::cache::indexer`] has the lock around it.

use std::any::Any;
use std::borrow::Borrow;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use kube::Resource;

use crate::cache::cached::{Cached, Decoder};
use crate::cache::indexer::index::{AnyIndex, ByFunction, ByNamespace, Function};
use crate::cache::indexer::lists::Lists;
use crate::cache::outcome::{Arrival, Finality, Outcome};
use crate::list_watch::delta::{Delta, Entry};
use crate::shared::decode_error::DecodeError;
use crate::shared::key::ObjectKey;
use crate::shared::selection::{CachedResource, Scope};
use crate::shared::sparse::{is_sparse, release, reuse};

pub(super) struct Core<K> {
    /// The slot of each key. Every number here is an occupied slot, whose key it is found by.
    by_key: HashTable<u32>,
    hasher: DefaultHashBuilder,
    slots: Vec<Option<Slot<K>>>,
    free: Vec<u32>,
    by_namespace: ByNamespace,
    /// In the order in which they were added. None is ever removed.
    indexes: Vec<Box<dyn AnyIndex<K>>>,
    /// Whether an index reads whole objects, not their metadata alone.
    is_read_whole: bool,
    lists: Lists,
    /// Each list has ended once, and [`Outcome::Filled`] was sent.
    filled: bool,
}

pub(super) struct Slot<K> {
    pub(super) key: ObjectKey,
    /// The last decodable state. `None` only while `broken` is set.
    pub(super) object: Option<Cached<K>>,
    /// Set while the current state cannot be decoded.
    pub(super) broken: Option<Arc<DecodeError>>,
    /// Number of the list that last contained this object, or that was the current one when a change did.
    list: u32,
}

impl<K> Slot<K> {
    pub(super) fn entry(&self) -> Option<Entry<K>> {
        Some(Entry { key: self.key.clone(), object: self.object.clone()? })
    }
}

impl<K> Core<K> {
    pub(super) fn new(scope: &Scope) -> Self {
        Self {
            by_key: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            slots: Vec::new(),
            free: Vec::new(),
            by_namespace: ByNamespace::default(),
            indexes: Vec::new(),
            is_read_whole: false,
            lists: Lists::new(scope),
            filled: false,
        }
    }

    /// Whether a list of the namespace of `delta` has begun and not ended, so that the cache covers no version there.
    pub(super) fn is_listing(&self, delta: &Delta<K>) -> bool
    where
        K: Resource,
    {
        self.lists.of(delta.namespace()).is_listing()
    }

    /// Whether the first list is in the cache; with several namespaces, that of each.
    pub(super) fn is_filled(&self) -> bool {
        self.filled
    }

    /// The arrival of an object that appears now.
    fn arrival(&self) -> Arrival {
        if self.filled { Arrival::Later } else { Arrival::Initial }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Every occupied slot with its number.
    pub(super) fn slots(&self) -> impl Iterator<Item = (u32, &Slot<K>)> {
        (0_u32..).zip(&self.slots).filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    pub(super) fn slot(&self, number: u32) -> Option<&Slot<K>> {
        self.slots.get(number as usize)?.as_ref()
    }

    pub(super) fn find(&self, key: &ObjectKey) -> Option<&Slot<K>> {
        self.slot(self.number(key)?)
    }

    pub(super) fn n_indexes(&self) -> usize {
        self.indexes.len()
    }

    /// Every object in `namespace`.
    pub(super) fn slots_in(&self, namespace: &str) -> impl Iterator<Item = &Slot<K>> {
        self.by_namespace.slots(namespace).iter().filter_map(|(number, ())| self.slot(*number))
    }

    /// The slot of the key with this text.
    pub(super) fn find_text(&self, text: &str) -> Option<&Slot<K>> {
        let is_it = |&number: &u32| self.slot(number).is_some_and(|slot| slot.key.as_str() == text);
        self.slot(*self.by_key.find(self.hasher.hash_one(text), is_it)?)
    }

    fn number(&self, key: &ObjectKey) -> Option<u32> {
        let is_it = |&number: &u32| self.slot(number).is_some_and(|slot| slot.key == *key);
        self.by_key.find(self.hasher.hash_one(key), is_it).copied()
    }

    fn slot_mut(&mut self, number: u32) -> Option<&mut Slot<K>> {
        self.slots.get_mut(number as usize)?.as_mut()
    }
}

impl<K: CachedResource> Core<K> {
    /// Adds an index and fills it. Returns its number.
    pub(super) fn add_index<V>(&mut self, function: Function<K, V>, decoder: &Decoder<K>) -> usize
    where
        V: Eq + Hash + Send + Sync + 'static,
    {
        self.is_read_whole |= matches!(function, Function::Object(_));
        let mut index = ByFunction::new(function);
        for (number, slot) in self.slots() {
            index.update(number, &slot.key, (None, slot.object.as_ref()), decoder);
        }
        self.indexes.push(Box::new(index));
        self.indexes.len() - 1
    }

    /// The index `number`, if its values are of type `V`. The number comes from [`Core::add_index`], and with it the
    /// type.
    pub(super) fn index<V: 'static>(&self, number: usize) -> Option<&ByFunction<K, V>> {
        let index: &dyn Any = &**self.indexes.get(number)?;
        index.downcast_ref()
    }

    /// The objects under `value` of the index `number`.
    pub(super) fn indexed_slots<V, Q>(&self, number: usize, value: &Q) -> impl Iterator<Item = &Slot<K>>
    where
        V: Borrow<Q> + Eq + Hash + 'static,
        Q: ?Sized + Eq + Hash,
    {
        let objects = self.index::<V>(number).map(|index| index.objects(value)).unwrap_or_default();
        objects.iter().filter_map(|(slot, _)| self.slot(*slot))
    }

    pub(super) fn apply(&mut self, delta: Delta<K>, decoder: &Decoder<K>, outcomes: &mut Vec<Outcome<K>>) {
        match delta {
            Delta::Added(entry) | Delta::Modified(entry) => self.upsert(entry, decoder, outcomes),
            // A bookmark moves only the version.
            Delta::Bookmark { .. } => {}
            Delta::Deleted { key, object } => {
                let Some(number) = self.number(&key) else { return };
                let was_broken = self.slot(number).is_some_and(|slot| slot.broken.is_some());
                match (object, self.remove(number, decoder)) {
                    (Some(last), Some(known)) if known.is_same_object(&last) => {
                        if was_broken {
                            // Readers have seen the state before the undecodable one: handlers that acted on it must
                            // learn that it is over.
                            outcomes.push(Outcome::Updated { key: key.clone(), old: known, new: last.clone() });
                        }
                        outcomes.push(Outcome::Deleted { key, object: Some(last), finality: Finality::Reported });
                    }
                    (Some(last), None) => {
                        outcomes.push(Outcome::Deleted { key, object: Some(last), finality: Finality::Reported });
                    }
                    // The known object was deleted earlier, and the object that took its name was never seen.
                    (Some(_), known @ Some(_)) | (None, known) => {
                        outcomes.push(Outcome::Deleted { key, object: known, finality: Finality::Missed });
                    }
                }
            }
            Delta::ListBegun { scope } => self.lists.of_mut(scope.namespace()).begin(),
            Delta::ListEnded { scope, .. } => self.end_list(&scope, decoder, outcomes),
            Delta::Undecodable(error) => self.mark_broken(error, decoder, outcomes),
        }
    }

    fn upsert(&mut self, entry: Entry<K>, decoder: &Decoder<K>, outcomes: &mut Vec<Outcome<K>>) {
        let Some(number) = self.number(&entry.key) else {
            self.insert(entry.key.clone(), Some(entry.object.clone()), None, decoder);
            outcomes.push(Outcome::Added(entry, self.arrival()));
            return;
        };
        let known = self.slot(number).and_then(|slot| slot.object.as_ref());
        if known.is_some_and(|known| !known.is_same_object(&entry.object)) {
            // The deletion of the known object was missed, and another object has its name now.
            let object = self.remove(number, decoder);
            outcomes.push(Outcome::Deleted { key: entry.key.clone(), object, finality: Finality::Missed });
            self.insert(entry.key.clone(), Some(entry.object.clone()), None, decoder);
            outcomes.push(Outcome::Added(entry, self.arrival()));
            return;
        }
        let (list, arrival) = (self.lists.mark(&entry.key), self.arrival());
        let Some(slot) = self.slot_mut(number) else { return };
        slot.list = list;
        let was_broken = slot.broken.take().is_some();
        let is_repeated = slot.object.as_ref().is_some_and(|known| known.is_same_version(&entry.object));
        if is_repeated && !was_broken {
            // A relist or a reconnect repeats the known state.
            return;
        }
        let key = slot.key.clone();
        let old = slot.object.replace(entry.object.clone());
        let _decoded = self.decoded(&key, Some(&entry.object), decoder);
        for index in &mut self.indexes {
            index.update(number, &key, (old.as_ref(), Some(&entry.object)), decoder);
        }
        outcomes.push(match old {
            None => Outcome::Added(entry, arrival),
            Some(old) => Outcome::Updated { key, old, new: entry.object },
        });
    }

    /// Decodes the object if an index is going to: while it is held, all indexes share it.
    fn decoded(&self, key: &ObjectKey, object: Option<&Cached<K>>, decoder: &Decoder<K>) -> Option<Arc<K>> {
        let object = object.filter(|_| self.is_read_whole)?;
        decoder.decode_delivered(key, object).ok()
    }

    fn mark_broken(&mut self, error: Arc<DecodeError>, decoder: &Decoder<K>, outcomes: &mut Vec<Outcome<K>>) {
        if error.key.is_none() {
            self.lists.note_nameless();
        }
        if let Some(key) = &error.key {
            let list = self.lists.mark(key);
            match self.number(key) {
                None => self.insert(key.clone(), None, Some(Arc::clone(&error)), decoder),
                Some(number) => {
                    if let Some(slot) = self.slot_mut(number) {
                        slot.list = list;
                        let repeated = slot.broken.replace(Arc::clone(&error)).is_some_and(|known| {
                            !error.resource_version.is_empty() && known.resource_version == error.resource_version
                        });
                        if repeated {
                            return;
                        }
                    }
                }
            }
        }
        outcomes.push(Outcome::Undecodable(error));
    }

    /// Removes the objects that the list of `scope` did not contain.
    fn end_list(&mut self, scope: &Scope, decoder: &Decoder<K>, outcomes: &mut Vec<Outcome<K>>) {
        let sweeps = self.lists.of_mut(scope.namespace()).end();
        let is_missing = |slot: &Slot<K>| {
            let is_listed = slot.key.namespace().is_none_or(|namespace| scope.contains(namespace));
            is_listed && slot.list != self.lists.mark(&slot.key)
        };
        let unmarked = self.slots().filter(|(_, slot)| sweeps && is_missing(slot));
        let missing: Vec<(u32, ObjectKey)> = unmarked.map(|(number, slot)| (number, slot.key.clone())).collect();
        for (number, key) in missing {
            let object = self.remove(number, decoder);
            outcomes.push(Outcome::Deleted { key, object, finality: Finality::Missed });
        }
        if !self.filled && self.lists.is_filled() {
            self.filled = true;
            outcomes.push(Outcome::Filled);
        }
    }

    fn insert(
        &mut self,
        key: ObjectKey,
        object: Option<Cached<K>>,
        broken: Option<Arc<DecodeError>>,
        decoder: &Decoder<K>,
    ) {
        let number = reuse(&self.slots, &mut self.free).unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("invariant: four billion objects do not fit into memory")
        });
        self.by_namespace.insert(number, &key);
        let _decoded = self.decoded(&key, object.as_ref(), decoder);
        for index in &mut self.indexes {
            index.update(number, &key, (None, object.as_ref()), decoder);
        }
        let hash = self.hasher.hash_one(&key);
        let list = self.lists.mark(&key);
        self.slots[number as usize] = Some(Slot { key, object, broken, list });
        let Self { by_key, hasher, slots, .. } = self;
        by_key.insert_unique(hash, number, |&number| {
            slots[number as usize].as_ref().map_or(0, |slot| hasher.hash_one(&slot.key))
        });
    }

    fn remove(&mut self, number: u32, decoder: &Decoder<K>) -> Option<Cached<K>> {
        let slot = self.slots.get_mut(number as usize)?.take()?;
        if let Ok(entry) = self.by_key.find_entry(self.hasher.hash_one(&slot.key), |&found| found == number) {
            entry.remove();
        }
        self.by_namespace.remove(number, &slot.key);
        for index in &mut self.indexes {
            index.update(number, &slot.key, (slot.object.as_ref(), None), decoder);
        }
        let Self { by_key, hasher, slots, free, .. } = self;
        release(slots, free, number, Option::is_none);
        if is_sparse(by_key.len(), by_key.capacity()) {
            by_key.shrink_to(2 * by_key.len(), |&number| {
                slots[number as usize].as_ref().map_or(0, |slot| hasher.hash_one(&slot.key))
            });
        }
        slot.object
    }

    /// The number of objects that it has room for.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.slots.capacity().max(self.by_key.capacity())
    }
}
