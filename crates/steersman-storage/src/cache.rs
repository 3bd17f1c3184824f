//! The current state of all resources: one `ResourceCache` each, and the newest applied revision.
//!
//! Written from the log only (`feeder`), never by writers. Locks, in the order in which they are taken: the map, then
//! one resource.

use crate::interest::Group;
use crate::key;
use crate::kv;
use crate::parallel;
use crate::resource_cache::{Change, Newest, ResourceCache};
use crate::ring::Limits;
use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use steersman_machinery::object::DecodeError;
use steersman_machinery::{GroupResource, Object, ObjectKey, Revision};
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Debug)]
pub(crate) struct Cache {
    applied: watch::Sender<Applied>,
    limits: Limits,
    resources: RwLock<Resources>,
    /// Stored entries that are damaged or no objects, and the revision of each. Reading one by its key fails. Lists do not have one
    /// that was there at open, or that is damaged; one that came later and is no object is shown as it was before. No other lock is
    /// taken while this one is held.
    unreadable: Mutex<HashMap<Bytes, Revision>>,
}

/// The progress of the log's application.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Applied {
    /// Whether nothing more will be applied.
    pub(crate) closed: bool,
    pub(crate) revision: Revision,
}

#[derive(Debug)]
struct Resources {
    by_resource: HashMap<GroupResource, Arc<ResourceCache>>,
    /// Handles that were given out. If the cache of the same resource is made again, it continues to use its handle.
    asked: HashMap<GroupResource, Newest>,
    /// A resource that is not in the map has had no objects since this revision; its earlier history has been dropped.
    floor: Revision,
}

/// A stored entry that is not an object.
#[derive(Debug, thiserror::Error)]
enum Unreadable {
    /// The key is not of the form `group/resource/key`.
    #[error("stored key {key:?} names no object")]
    Key {
        /// The key.
        key: Bytes,
    },
    /// The value is no object.
    #[error("stored key {key:?} holds no object")]
    Object {
        /// The key.
        key: Bytes,
        /// The fault of the value.
        #[source]
        source: DecodeError,
    },
}

// === impl Cache ===

impl Cache {
    /// The cache of the loaded entries. Blocks while it sorts.
    pub(crate) fn new(loading: &Loading, floor: Revision, limits: Limits) -> Cache {
        let resource = |(resource, mut objects): (GroupResource, Vec<Arc<Object>>)| {
            parallel::sort(&mut objects, |a, b| a.key.cmp(&b.key));
            (resource, Arc::new(ResourceCache::new(objects, floor)))
        };
        let by_resource = std::mem::take(&mut *loading.objects.lock()).into_iter().map(resource).collect();
        Cache {
            applied: watch::Sender::new(Applied { closed: false, revision: floor }),
            limits,
            resources: RwLock::new(Resources { asked: HashMap::new(), by_resource, floor }),
            unreadable: Mutex::new(std::mem::take(&mut *loading.unreadable.lock())),
        }
    }

    pub(crate) fn applied(&self) -> Applied {
        *self.applied.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Applied> {
        self.applied.subscribe()
    }

    /// The cache of a resource that has objects, history or watchers; otherwise the revision since which it has had
    /// none.
    pub(crate) fn resource(&self, resource: &GroupResource) -> Result<Arc<ResourceCache>, Revision> {
        let resources = self.resources.read();
        resources.by_resource.get(resource).cloned().ok_or(resources.floor)
    }

    /// The cache of a resource, made if there is none.
    pub(crate) fn resource_or_new(&self, resource: &GroupResource) -> Arc<ResourceCache> {
        if let Ok(found) = self.resource(resource) {
            return found;
        }
        let mut resources = self.resources.write();
        let floor = resources.floor;
        let newest = resources.asked.get(resource).cloned().unwrap_or_default();
        let new = || Arc::new(ResourceCache::new(Vec::new(), floor).with_newest(newest));
        resources.by_resource.entry(resource.clone()).or_insert_with(new).clone()
    }

    /// A handle to the revision of a resource's newest change.
    pub(crate) fn newest(&self, resource: &GroupResource) -> Newest {
        let mut resources = self.resources.write();
        let there = resources.by_resource.get(resource).map(|cache| cache.newest().clone());
        resources.asked.entry(resource.clone()).or_insert(there.unwrap_or_default()).clone()
    }

    /// Applies committed changes in order, then advances the revision, then wakes the watchers of the changed objects.
    /// Entries that are not objects are logged and skipped.
    pub(crate) fn apply(&self, batch: kv::Batch, now: Instant) {
        let mut woken: Vec<Arc<Group>> = Vec::new();
        let mut run: Option<Run> = None;
        for event in batch.events {
            let (key, revision) = (event.key.clone(), event.revision);
            let (resource, change) = match decode(event, run.as_ref().map(|run| &run.resource)) {
                Ok(decoded) => decoded,
                Err(error) => {
                    self.unreadable.lock().insert(error.report(), revision);
                    continue;
                }
            };
            self.readable_again(&key);
            if let Some(resource) = resource {
                if let Some(run) = run.take() {
                    run.cache.apply(run.changes, &self.limits, now, &mut woken);
                }
                run = Some(Run { cache: self.resource_or_new(&resource), resource, changes: Vec::new() });
            }
            if let Some(run) = &mut run {
                run.changes.push(change);
            }
        }
        if let Some(run) = run {
            run.cache.apply(run.changes, &self.limits, now, &mut woken);
        }
        self.applied.send_modify(|applied| applied.revision = applied.revision.max(batch.progress));
        wake(woken);
    }

    /// Takes up that entries are damaged in the engine. An object of which the cache has the very revision is whole here: it is
    /// returned, to be written again. Others are gone from lists, watches are told that they were deleted, and reading them fails.
    pub(crate) fn lose(&self, damaged: Vec<kv::Damaged>, now: Instant) -> Vec<(Bytes, Arc<Object>)> {
        let applied = self.applied().revision;
        let (mut whole, mut gone) = (Vec::new(), Vec::new());
        // Later revisions have not been applied yet.
        for kv::Damaged { key, revision, fault } in damaged.into_iter().filter(|damaged| damaged.revision <= applied) {
            if self.unreadable_at(&key) == Some(revision) {
                continue;
            }
            match self.held(&key) {
                Some(object) if object.revision == revision => whole.push((key, object)),
                _ => {
                    tracing::error!(key = %String::from_utf8_lossy(&key), %revision, "a stored entry is damaged: {fault}");
                    self.unreadable.lock().insert(key.clone(), revision);
                    gone.push(key);
                }
            }
        }
        self.drop_objects(&gone, applied, now);
        whole
    }

    /// Takes up what the engine holds at a revision, because the changes that led there are no longer known. Watches that have not seen
    /// what was known before end.
    pub(crate) fn catch_up(&self, loaded: kv::Snapshot, damaged: Vec<kv::Damaged>, now: Instant) {
        let kv::Snapshot { mut entries, revision } = loaded;
        let applied = self.applied().revision;
        let held: HashSet<Bytes> = entries.iter().map(|entry| entry.key.clone()).collect();
        let mut gone: Vec<Bytes> = self.keys().into_iter().filter(|key| !held.contains(key)).collect();
        let mut unreadable = HashMap::new();
        for kv::Damaged { key, revision, .. } in damaged {
            if self.held(&key).is_some_and(|object| object.revision == revision) {
                gone.retain(|gone| *gone != key);
            } else {
                unreadable.insert(key, revision);
            }
        }
        self.unreadable.lock().retain(|key, _| held.contains(key));
        entries.retain(|entry| applied < entry.revision);
        entries.sort_unstable_by_key(|entry| entry.revision);
        let event = |entry: kv::Entry| kv::Event { key: entry.key, revision: entry.revision, value: Some(entry.value) };
        self.apply(kv::Batch { events: entries.into_iter().map(event).collect(), progress: revision }, now);
        self.unreadable.lock().extend(unreadable);
        self.drop_objects(&gone, revision, now);
        self.drop_through(revision);
    }

    /// The object that is stored under a key, as it is here.
    fn held(&self, key: &Bytes) -> Option<Arc<Object>> {
        let (resource, object_key) = locate(key, None).ok()?;
        self.resource(&resource?).ok()?.get(&object_key)
    }

    /// The stored keys of all objects.
    fn keys(&self) -> Vec<Bytes> {
        let resources: Vec<_> =
            self.resources.read().by_resource.iter().map(|(name, cache)| (name.clone(), cache.clone())).collect();
        let encoded = resources.iter().flat_map(|(resource, cache)| {
            cache.keys().into_iter().filter_map(|key| key::encode(resource, &key).ok()).collect::<Vec<_>>()
        });
        encoded.collect()
    }

    /// Removes objects as if they were deleted at a revision.
    fn drop_objects(&self, keys: &[Bytes], revision: Revision, now: Instant) {
        let mut woken = Vec::new();
        for (resource, key) in keys.iter().filter_map(|key| locate(key, None).ok()) {
            if let Some(Ok(cache)) = resource.map(|resource| self.resource(&resource)) {
                cache.apply(vec![Change::Delete(key, revision)], &self.limits, now, &mut woken);
            }
        }
        wake(woken);
    }

    /// The revision of an entry that is no object, if the key has one.
    pub(crate) fn unreadable_at(&self, key: &[u8]) -> Option<Revision> {
        self.unreadable.lock().get(key).copied()
    }

    /// All entries that are no objects.
    pub(crate) fn unreadable(&self) -> Vec<(Bytes, Revision)> {
        let mut all: Vec<_> = self.unreadable.lock().iter().map(|(key, revision)| (key.clone(), *revision)).collect();
        all.sort_unstable();
        all
    }

    /// Whether any entries are no objects.
    pub(crate) fn has_unreadable(&self) -> bool {
        !self.unreadable.lock().is_empty()
    }

    fn readable_again(&self, key: &[u8]) {
        let mut unreadable = self.unreadable.lock();
        if !unreadable.is_empty() {
            unreadable.remove(key);
        }
    }

    /// Drops history that is too old, and resources without objects, history and watchers.
    pub(crate) fn trim(&self, now: Instant) {
        let resources: Vec<Arc<ResourceCache>> = self.resources.read().by_resource.values().cloned().collect();
        resources.iter().for_each(|cache| cache.trim(&self.limits, now));
        drop(resources);
        let mut resources = self.resources.write();
        let Resources { by_resource, floor, .. } = &mut *resources;
        by_resource.retain(|_, cache| {
            // Under the map's write lock no other reference can be taken.
            let (is_bare, since) = cache.read(|state| (state.is_bare(), state.ring.floor()));
            let keep = !is_bare || Arc::strong_count(cache) > 1;
            if !keep {
                *floor = since.max(*floor);
            }
            keep
        });
    }

    /// Drops history up to and including a revision.
    pub(crate) fn drop_through(&self, revision: Revision) {
        let mut resources = self.resources.write();
        let revision = revision.min(self.applied().revision);
        resources.by_resource.values().for_each(|cache| cache.drop_through(revision));
        resources.floor = resources.floor.max(revision);
    }

    /// The number of objects of all resources.
    pub(crate) fn count(&self) -> usize {
        self.resources.read().by_resource.values().map(|cache| cache.count()).sum()
    }

    /// The objects that are not initialized, by resource.
    pub(crate) fn uninitialized(&self) -> Vec<(GroupResource, Vec<Arc<Object>>)> {
        let resources = self.resources.read();
        let all = resources.by_resource.iter().map(|(resource, cache)| (resource, cache.uninitialized()));
        all.filter(|(_, objects)| !objects.is_empty()).map(|(resource, objects)| (resource.clone(), objects)).collect()
    }

    /// Marks the cache as closed, since nothing more will be applied, and wakes all watchers.
    pub(crate) fn close(&self) {
        self.applied.send_modify(|applied| applied.closed = true);
        self.resources.read().by_resource.values().for_each(|cache| cache.wake_all());
    }
}

/// Wakes the watchers of groups, each once.
fn wake(mut groups: Vec<Arc<Group>>) {
    groups.sort_unstable_by_key(Arc::as_ptr);
    groups.dedup_by(|a, b| Arc::ptr_eq(a, b));
    groups.iter().for_each(|group| group.published.notify_waiters());
}

impl Unreadable {
    /// Logs the entry, and returns its key.
    fn report(self) -> Bytes {
        tracing::error!(cause = std::error::Error::source(&self).map(ToString::to_string), "{self}: it is left out");
        match self {
            Unreadable::Key { key } | Unreadable::Object { key, .. } => key,
        }
    }
}

/// The objects that are loaded when the store opens, before the cache is built from them.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    objects: Mutex<HashMap<GroupResource, Vec<Arc<Object>>>>,
    unreadable: Mutex<HashMap<Bytes, Revision>>,
}

impl Loading {
    /// Adds an entry that is damaged.
    pub(crate) fn leave_out(&self, key: Bytes, revision: Revision) {
        self.unreadable.lock().insert(key, revision);
    }

    /// Adds entries. May run on several threads at once.
    pub(crate) fn take(&self, entries: Vec<kv::Entry>) {
        let mut runs: Vec<(GroupResource, Vec<Arc<Object>>)> = Vec::new();
        for kv::Entry { key, revision, value } in entries {
            let event = kv::Event { key: key.clone(), revision, value: Some(value) };
            match decode(event, runs.last().map(|(resource, _)| resource)) {
                Ok((resource, Change::Put(object))) => {
                    runs.extend(resource.map(|resource| (resource, Vec::new())));
                    runs.last_mut().into_iter().for_each(|(_, objects)| objects.push(object.clone()));
                }
                // An entry is never a deletion.
                Ok((_, Change::Delete(..))) => {}
                Err(error) => drop(self.unreadable.lock().insert(error.report(), revision)),
            }
        }
        // Sorted here, where several threads do it and the decoded objects are still in their processor caches. Later
        // the sorted runs only need a merge.
        runs.iter_mut().for_each(|(_, objects)| objects.sort_unstable_by(|a, b| a.key.cmp(&b.key)));
        let mut objects = self.objects.lock();
        for (resource, run) in runs {
            objects.entry(resource).or_default().extend(run);
        }
    }
}

/// Consecutive changes of one resource.
struct Run {
    cache: Arc<ResourceCache>,
    changes: Vec<Change>,
    resource: GroupResource,
}

/// The change of an event, and its resource unless that is `current`.
fn decode(event: kv::Event, current: Option<&GroupResource>) -> Result<(Option<GroupResource>, Change), Unreadable> {
    let kv::Event { key, revision, value } = event;
    let (resource, object_key) = locate(&key, current)?;
    let change = match value {
        None => Change::Delete(object_key, revision),
        Some(value) => match Object::decode(object_key, revision, &value) {
            Ok(object) => Change::Put(Arc::new(object)),
            Err(source) => return Err(Unreadable::Object { key, source }),
        },
    };
    Ok((resource, change))
}

fn locate(key: &Bytes, current: Option<&GroupResource>) -> Result<(Option<GroupResource>, ObjectKey), Unreadable> {
    let (group, resource, printed) = key::split(key).ok_or_else(|| Unreadable::Key { key: key.clone() })?;
    let same = current.is_some_and(|current| current.group == group && current.resource == resource);
    let resource = (!same).then(|| GroupResource::new(group, resource));
    Ok((resource, ObjectKey::parse(printed)))
}
