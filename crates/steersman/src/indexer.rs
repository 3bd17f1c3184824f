//! The cache: every object of one watch, found by key or by any number of named indexes.
//!
//! One writer (the informer's task) applies batches under one lock; readers get `Arc`s and never a copy. A relist is
//! done in place: what the list names is marked, what is not marked is swept out as tombstones. Objects that exist but
//! cannot be decoded have an entry of their own, so that nobody takes them for deleted.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use kube::Resource;
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::delta::{DecodeError, Delta, Entry, Replacement};
use crate::handler::Deleted;
use crate::key::ObjectKey;

/// The name of the index that every indexer has: by namespace, cluster-scoped objects under the empty string.
pub const NAMESPACE_INDEX: &str = "namespace";

/// A thread-safe cache of the objects of one type. Clones share the cache.
pub struct Indexer<K> {
    core: Arc<RwLock<Core<K>>>,
    /// The newest version the cache covers, empty before the first list; a doorbell for those who wait for one.
    version: Arc<watch::Sender<String>>,
}

/// Why an index operation was refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum IndexError {
    /// The name is taken.
    #[error("an index named {name:?} exists already")]
    Exists {
        /// The name.
        name: String,
    },
    /// There is no such index.
    #[error("there is no index named {name:?}; there are {known:?}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
}

/// What a read of one key found.
#[derive(Debug)]
pub enum Found<K> {
    /// Nothing: the object does not exist, as far as the cache knows.
    Absent,
    /// The object.
    Object(Arc<K>),
    /// The object exists, and its current state cannot be decoded.
    Undecodable(Arc<DecodeError>),
}

/// What a delta changed, in the order handlers hear of it.
#[derive(Debug)]
pub enum Outcome<K> {
    /// An object appeared.
    Added(Entry<K>),
    /// An object is gone.
    Deleted(ObjectKey, Deleted<K>),
    /// The first list is complete.
    Filled,
    /// An object exists that cannot be decoded.
    Undecodable(Arc<DecodeError>),
    /// An object changed.
    Updated {
        /// Which one.
        key: ObjectKey,
        /// The state before.
        old: Arc<K>,
        /// The state now.
        new: Arc<K>,
    },
}

/// Computes the values under which an object is found.
type IndexFn<K> = Box<dyn Fn(&K) -> Vec<String> + Send + Sync>;

struct Core<K> {
    /// Which slot a key is in. Every value here is an occupied slot.
    by_key: HashMap<ObjectKey, u32>,
    slots: Vec<Option<Slot<K>>>,
    free: Vec<u32>,
    indexes: BTreeMap<String, Index<K>>,
    /// Number of the current relist; slots marked with an older one are swept at its end.
    relist: u32,
    filled: bool,
}

struct Slot<K> {
    key: ObjectKey,
    /// The state last decoded. `None` only while `broken` is set.
    object: Option<Arc<K>>,
    /// Set while the current state cannot be decoded.
    broken: Option<Arc<DecodeError>>,
    /// The relist that last named this object.
    relist: u32,
}

struct Index<K> {
    function: IndexFn<K>,
    /// Slots by value. No set is empty.
    postings: HashMap<String, HashSet<u32>>,
}

// === impl Indexer ===

impl<K: Resource> Default for Indexer<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Resource> Indexer<K> {
    /// An empty cache with the namespace index.
    pub fn new() -> Self {
        let by_namespace = Index {
            function: Box::new(|object: &K| vec![object.meta().namespace.clone().unwrap_or_default()]),
            postings: HashMap::new(),
        };
        let core = Core {
            by_key: HashMap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            indexes: BTreeMap::from([(NAMESPACE_INDEX.to_owned(), by_namespace)]),
            relist: 0,
            filled: false,
        };
        Self { core: Arc::new(RwLock::new(core)), version: Arc::new(watch::Sender::new(String::new())) }
    }

    /// Adds an index and fills it from the objects present, at any time.
    ///
    /// `function` gives the values an object is found under, always the same for the same object. It runs under the
    /// write lock, so it must be quick and must not read this cache. If it panics, the object has no place in this
    /// index.
    ///
    /// # Errors
    /// [`IndexError::Exists`].
    pub fn add_index<F>(&self, name: &str, function: F) -> Result<(), IndexError>
    where
        F: Fn(&K) -> Vec<String> + Send + Sync + 'static,
    {
        let mut core = self.core.write();
        if core.indexes.contains_key(name) {
            return Err(IndexError::Exists { name: name.to_owned() });
        }
        let mut index = Index { function: Box::new(function), postings: HashMap::new() };
        for (number, slot) in (0_u32..).zip(&core.slots) {
            if let Some(object) = slot.as_ref().and_then(|slot| slot.object.as_ref()) {
                index.update(number, None, Some(object));
            }
        }
        core.indexes.insert(name.to_owned(), index);
        Ok(())
    }

    /// Looks one key up.
    pub fn get(&self, key: &ObjectKey) -> Found<K> {
        self.core.read().get(key)
    }

    /// Every object, in no order. Of an undecodable object, the state last decoded.
    pub fn list(&self) -> Vec<Arc<K>> {
        let core = self.core.read();
        core.slots.iter().flatten().filter_map(|slot| slot.object.clone()).collect()
    }

    /// The key of every object that exists, undecodable ones included, in no order.
    pub fn keys(&self) -> Vec<ObjectKey> {
        self.core.read().by_key.keys().cloned().collect()
    }

    /// The objects under `value` of the index `name`, in no order.
    ///
    /// # Errors
    /// [`IndexError::Unknown`].
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<K>>, IndexError> {
        let core = self.core.read();
        let Some(index) = core.indexes.get(name) else {
            let known = core.indexes.keys().cloned().collect();
            return Err(IndexError::Unknown { name: name.to_owned(), known });
        };
        let Some(slots) = index.postings.get(value) else { return Ok(Vec::new()) };
        Ok(slots.iter().filter_map(|&slot| core.slot(slot)?.object.clone()).collect())
    }

    /// The values that the index `name` has objects under, in no order.
    ///
    /// # Errors
    /// [`IndexError::Unknown`].
    pub fn index_values(&self, name: &str) -> Result<Vec<String>, IndexError> {
        let core = self.core.read();
        match core.indexes.get(name) {
            Some(index) => Ok(index.postings.keys().cloned().collect()),
            None => Err(IndexError::Unknown { name: name.to_owned(), known: core.indexes.keys().cloned().collect() }),
        }
    }

    /// How many objects exist, undecodable ones included.
    pub fn len(&self) -> usize {
        self.core.read().by_key.len()
    }

    /// Whether no object exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is wrong with the objects that cannot be decoded at present.
    pub fn undecodable(&self) -> Vec<Arc<DecodeError>> {
        self.core.read().slots.iter().flatten().filter_map(|slot| slot.broken.clone()).collect()
    }

    /// The newest version that the cache covers; empty before the first list.
    pub fn resource_version(&self) -> String {
        self.version.borrow().clone()
    }

    /// Announces every version that the cache comes to cover.
    pub(crate) fn versions(&self) -> watch::Receiver<String> {
        self.version.subscribe()
    }

    /// The cached object at `key`, if it is at `resource_version` and is the same object.
    pub(crate) fn at_version(&self, key: &ObjectKey, resource_version: &str, uid: &str) -> Option<Arc<K>> {
        let core = self.core.read();
        let slot = core.slot(*core.by_key.get(key)?)?;
        let object = slot.object.as_ref().filter(|_| slot.broken.is_none())?;
        let meta = object.meta();
        let is_same = !resource_version.is_empty()
            && meta.resource_version.as_deref() == Some(resource_version)
            && meta.uid.as_deref().unwrap_or_default() == uid;
        is_same.then(|| Arc::clone(object))
    }

    /// Every decodable object with its key, for a handler that joins or a resync.
    pub(crate) fn entries(&self) -> Vec<Entry<K>> {
        let core = self.core.read();
        let slots = core.slots.iter().flatten();
        slots.filter_map(|slot| Some(Entry { key: slot.key.clone(), object: slot.object.clone()? })).collect()
    }

    /// Applies `batch` under one lock and appends what it changed to `outcomes`. An informer does this; call it only on
    /// an indexer of your own.
    pub fn apply(&self, batch: &mut Vec<Delta<K>>, outcomes: &mut Vec<Outcome<K>>) {
        let mut version = None;
        {
            let mut core = self.core.write();
            for delta in batch.drain(..) {
                if let Some(covered) = delta.resource_version() {
                    version = Some(covered.to_owned());
                }
                core.apply(delta, outcomes);
            }
        }
        if let Some(version) = version {
            self.version.send_replace(version);
        }
    }
}

impl<K> Clone for Indexer<K> {
    fn clone(&self) -> Self {
        Self { core: Arc::clone(&self.core), version: Arc::clone(&self.version) }
    }
}

impl<K> fmt::Debug for Indexer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let core = self.core.read();
        f.debug_struct("Indexer")
            .field("objects", &core.by_key.len())
            .field("indexes", &core.indexes.keys().collect::<Vec<_>>())
            .finish()
    }
}

// === impl Core ===

impl<K: Resource> Core<K> {
    fn slot(&self, number: u32) -> Option<&Slot<K>> {
        self.slots.get(number as usize)?.as_ref()
    }

    fn get(&self, key: &ObjectKey) -> Found<K> {
        match self.by_key.get(key).and_then(|&number| self.slot(number)) {
            None => Found::Absent,
            Some(Slot { broken: Some(error), .. }) => Found::Undecodable(Arc::clone(error)),
            Some(Slot { object: Some(object), .. }) => Found::Object(Arc::clone(object)),
            Some(Slot { object: None, .. }) => Found::Absent,
        }
    }

    fn apply(&mut self, delta: Delta<K>, outcomes: &mut Vec<Outcome<K>>) {
        match delta {
            Delta::Added(entry) | Delta::Modified(entry) => self.upsert(entry, outcomes),
            // Moves the version only.
            Delta::Bookmark { .. } => {}
            Delta::Deleted { key, object } => {
                let Some(&number) = self.by_key.get(&key) else { return };
                let last_known = self.remove(number);
                let deleted = match object {
                    Some(object) => Deleted::Final(object),
                    None => Deleted::Tombstone { key: key.clone(), last_known },
                };
                outcomes.push(Outcome::Deleted(key, deleted));
            }
            Delta::Replaced(replacement) => self.replace(replacement, outcomes),
            Delta::Undecodable(error) => self.mark_broken(error, outcomes),
        }
    }

    fn upsert(&mut self, entry: Entry<K>, outcomes: &mut Vec<Outcome<K>>) {
        let Some(&number) = self.by_key.get(&entry.key) else {
            let object = Arc::clone(&entry.object);
            self.insert(entry.key.clone(), Some(object), None);
            outcomes.push(Outcome::Added(entry));
            return;
        };
        let relist = self.relist;
        let Some(slot) = self.slots.get_mut(number as usize).and_then(Option::as_mut) else { return };
        slot.relist = relist;
        let was_broken = slot.broken.take().is_some();
        let old = slot.object.replace(Arc::clone(&entry.object));
        for index in self.indexes.values_mut() {
            index.update(number, old.as_deref(), Some(&entry.object));
        }
        match old {
            None => outcomes.push(Outcome::Added(entry)),
            // A relist or a reconnect repeats what is known.
            Some(old) if !was_broken && is_same_version(&*old, &*entry.object) => {}
            Some(old) => outcomes.push(Outcome::Updated { key: entry.key, old, new: entry.object }),
        }
    }

    fn mark_broken(&mut self, error: Arc<DecodeError>, outcomes: &mut Vec<Outcome<K>>) {
        if let Some(key) = &error.key {
            let relist = self.relist;
            match self.by_key.get(key).copied() {
                None => self.insert(key.clone(), None, Some(Arc::clone(&error))),
                Some(number) => {
                    if let Some(slot) = self.slots.get_mut(number as usize).and_then(Option::as_mut) {
                        slot.relist = relist;
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

    /// Deletions first, then what the list names, in its order.
    fn replace(&mut self, replacement: Replacement<K>, outcomes: &mut Vec<Outcome<K>>) {
        self.relist = self.relist.wrapping_add(1);
        let relist = self.relist;
        let named = replacement.entries.iter().map(|entry| &entry.key);
        for key in named.chain(replacement.undecodable.iter().filter_map(|error| error.key.as_ref())) {
            let slot = self.by_key.get(key).and_then(|&number| self.slots.get_mut(number as usize)?.as_mut());
            if let Some(slot) = slot {
                slot.relist = relist;
            }
        }
        // A list item whose name cannot even be read might be any of the unmarked: nothing is swept then, and the
        // next relist tries again.
        let is_complete = replacement.undecodable.iter().all(|error| error.key.is_some());
        let missing: Vec<u32> = (0_u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| is_complete && slot.as_ref().is_some_and(|slot| slot.relist != relist))
            .map(|(number, _)| number)
            .collect();
        for number in missing {
            let Some(key) = self.slot(number).map(|slot| slot.key.clone()) else { continue };
            let last_known = self.remove(number);
            outcomes.push(Outcome::Deleted(key.clone(), Deleted::Tombstone { key, last_known }));
        }
        for entry in replacement.entries {
            self.upsert(entry, outcomes);
        }
        for error in replacement.undecodable {
            self.mark_broken(error, outcomes);
        }
        if !self.filled {
            self.filled = true;
            outcomes.push(Outcome::Filled);
        }
    }

    fn insert(&mut self, key: ObjectKey, object: Option<Arc<K>>, broken: Option<Arc<DecodeError>>) {
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("invariant: four billion objects do not fit into memory")
        });
        for index in self.indexes.values_mut() {
            index.update(number, None, object.as_deref());
        }
        self.by_key.insert(key.clone(), number);
        self.slots[number as usize] = Some(Slot { key, object, broken, relist: self.relist });
    }

    fn remove(&mut self, number: u32) -> Option<Arc<K>> {
        let slot = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        self.by_key.remove(&slot.key);
        for index in self.indexes.values_mut() {
            index.update(number, slot.object.as_deref(), None);
        }
        slot.object
    }
}

// === impl Index ===

impl<K> Index<K> {
    fn values(&self, object: &K) -> Vec<String> {
        // A panic must not take the informer down with it; it has changed nothing of ours.
        catch_unwind(AssertUnwindSafe(|| (self.function)(object))).unwrap_or_else(|_| {
            tracing::error!("an index function panicked; the object is not in that index");
            Vec::new()
        })
    }

    /// Moves a slot from the values of `old` to those of `new`. Values that both have are not touched.
    fn update(&mut self, slot: u32, old: Option<&K>, new: Option<&K>) {
        let before = old.map(|object| self.values(object)).unwrap_or_default();
        let after = new.map(|object| self.values(object)).unwrap_or_default();
        if before == after {
            return;
        }
        for value in before.iter().filter(|value| !after.contains(value)) {
            if let Some(slots) = self.postings.get_mut(value) {
                slots.remove(&slot);
                if slots.is_empty() {
                    self.postings.remove(value);
                }
            }
        }
        for value in after {
            if !before.contains(&value) {
                self.postings.entry(value).or_default().insert(slot);
            }
        }
    }
}

fn is_same_version<K: Resource>(old: &K, new: &K) -> bool {
    let (old, new) = (old.meta(), new.meta());
    old.resource_version.is_some() && old.resource_version == new.resource_version && old.uid == new.uid
}

#[cfg(test)]
mod tests;
