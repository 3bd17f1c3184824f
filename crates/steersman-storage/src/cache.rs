//! The current state of all resources: one `ResourceCache` each, and the newest applied revision.
//!
//! Written from the log only (`feeder`), never by writers. Locks, in the order in which they are taken: the map, then
//! one resource.

pub(crate) mod event;
pub(crate) mod feeder;
pub(crate) mod interest;
pub(crate) mod resource;
pub(crate) mod ring;
mod sorted;
pub(crate) mod watcher;

use crate::cache::interest::Group;
use crate::cache::resource::{Change, Newest, ResourceCache};
use crate::cache::ring::Limits;
use crate::key;
use crate::kv;
use crate::parallel;
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
    /// Stored entries that are damaged or no objects, and the revision of each. A read of such a key fails. Lists leave the key out, except
    /// if its entry was written after the open and is no object: then they have the object before it. No other lock is taken while this one
    /// is held.
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

    /// Applies committed changes, those of a resource in order and all at once, then advances the revision, then wakes the watchers of
    /// the changed objects. Entries that are not objects are logged and skipped.
    pub(crate) fn apply(&self, batch: kv::Batch, now: Instant) {
        let Decoded { changes, readable } = self.decode(batch.events);
        let mut woken = Vec::new();
        for (resource, changes) in changes.by_resource {
            self.resource_or_new(&resource).apply(changes, &self.limits, now, &mut woken);
        }
        self.readable_again(&readable);
        self.advance(batch.progress);
        wake(woken);
    }

    /// Decodes events. Those that are no objects are logged and marked.
    fn decode(&self, events: impl IntoIterator<Item = kv::Event>) -> Decoded {
        let mut decoded = Decoded::default();
        for event in events {
            let (key, revision) = (event.key.clone(), event.revision);
            match decode(event, decoded.changes.current()) {
                Ok((resource, change)) => {
                    decoded.changes.push(resource, change);
                    if self.has_unreadable() {
                        decoded.readable.push((key, revision));
                    }
                }
                Err(error) => drop(self.unreadable.lock().insert(error.report(), revision)),
            }
        }
        decoded
    }

    fn advance(&self, revision: Revision) {
        self.applied.send_modify(|applied| applied.revision = applied.revision.max(revision));
    }

    /// Records that entries are damaged in the engine. An object that the cache has at the very revision of the entry is whole: it is
    /// returned, to be written again. Others are gone from lists, watches get a deletion of them, and reading them fails.
    pub(crate) fn lose(&self, damaged: Vec<kv::Damaged>, now: Instant) -> Losses {
        let applied = self.applied().revision;
        let (mut whole, mut gone, mut complete_after) = (Vec::new(), Vec::new(), None);
        // Later revisions have not been applied yet.
        for kv::Damaged { key, revision, fault } in damaged.into_iter().filter(|damaged| damaged.revision <= applied) {
            if self.unreadable_at(&key) == Some(revision) {
                continue;
            }
            match self.held(&key) {
                Some(object) if object.revision == revision => whole.push((key, object)),
                held => {
                    if held.is_some() {
                        complete_after = Some(applied.next());
                    }
                    tracing::error!(key = %String::from_utf8_lossy(&key), %revision, "a stored entry is damaged: {fault}");
                    self.unreadable.lock().insert(key.clone(), revision);
                    gone.push(key);
                }
            }
        }
        self.drop_objects(&gone, applied, now);
        Losses { complete_after, whole }
    }

    /// Replaces the state by what the engine holds at a revision, because the changes that led there are no longer known. Watches that have
    /// not handed out all earlier events end.
    ///
    /// A resource is taken up as a whole, and the revision advances when all are: no list has an object that is damaged or gone at the
    /// revision of the list.
    pub(crate) fn catch_up(&self, loaded: kv::Snapshot, damaged: Vec<kv::Damaged>, now: Instant) {
        let kv::Snapshot { mut entries, revision } = loaded;
        let applied = self.applied().revision;
        let loaded: HashMap<Bytes, Revision> =
            entries.iter().map(|entry| (entry.key.clone(), entry.revision)).collect();
        let mut gone: HashSet<Bytes> = self.keys().into_iter().filter(|key| !loaded.contains_key(key)).collect();
        let mut lost = HashMap::new();
        // Later revisions have not been loaded: the feeder looks at them when they are applied.
        for kv::Damaged { key, revision: at, .. } in damaged.into_iter().filter(|damaged| damaged.revision <= revision)
        {
            let held = self.held(&key);
            // An object that is whole in memory is not lost: it is written again.
            if held.as_ref().is_some_and(|object| object.revision == at) {
                gone.remove(&key);
            } else if loaded.get(&key) != Some(&at) {
                gone.extend(held.map(|_| key.clone()));
                lost.insert(key, at);
            }
        }
        self.unreadable.lock().extend(lost.iter().map(|(key, revision)| (key.clone(), *revision)));
        entries.retain(|entry| applied < entry.revision && !lost.contains_key(&entry.key));
        entries.sort_unstable_by_key(|entry| entry.revision);
        let event = |entry: kv::Entry| kv::Event { key: entry.key, revision: entry.revision, value: Some(entry.value) };
        let Decoded { mut changes, readable } = self.decode(entries.into_iter().map(event));
        for key in gone {
            if let Ok((resource, object_key)) = locate(&key, changes.current()) {
                changes.push(resource, Change::Delete(object_key, revision));
            }
        }
        let mut woken = Vec::new();
        for (resource, changes) in changes.by_resource {
            self.resource_or_new(&resource).take_up(changes, revision, now, &mut woken);
        }
        self.unreadable.lock().retain(|key, _| loaded.contains_key(key) || lost.contains_key(key));
        self.readable_again(&readable);
        self.forget_through(&mut self.resources.write(), revision);
        self.advance(revision);
        wake(woken);
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

    /// Removes objects that are lost to damage, at the revision that is applied.
    fn drop_objects(&self, keys: &[Bytes], revision: Revision, now: Instant) {
        let mut woken = Vec::new();
        for (resource, key) in keys.iter().filter_map(|key| locate(key, None).ok()) {
            if let Some(Ok(cache)) = resource.map(|resource| self.resource(&resource)) {
                cache.apply(vec![Change::Lose(key, revision)], &self.limits, now, &mut woken);
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

    /// Removes the marks of keys that were written or deleted at these revisions. A later mark stays.
    fn readable_again(&self, written: &[(Bytes, Revision)]) {
        let mut unreadable = self.unreadable.lock();
        for (key, revision) in written {
            if unreadable.get(key).is_some_and(|marked| marked < revision) {
                unreadable.remove(key);
            }
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
        self.forget_through(&mut resources, revision.min(self.applied().revision));
    }

    fn forget_through(&self, resources: &mut Resources, revision: Revision) {
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

/// The objects that are damaged in the engine.
pub(crate) struct Losses {
    /// Set if the cache had objects that are lost: the engine's log, which does not have their deletions, is complete after this revision.
    pub(crate) complete_after: Option<Revision>,
    /// The objects that are whole in the cache, with their stored keys.
    pub(crate) whole: Vec<(Bytes, Arc<Object>)>,
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
                Ok((_, Change::Delete(..) | Change::Lose(..))) => {}
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

/// Decoded events.
#[derive(Default)]
struct Decoded {
    changes: Changes,
    /// Keys that may be marked as unreadable and no longer are, and the revisions at which they were written or deleted.
    readable: Vec<(Bytes, Revision)>,
}

/// Changes by resource, so that those of a transaction, which have one revision, are applied to a resource together. The resources are in
/// the order of their first changes.
#[derive(Default)]
struct Changes {
    by_resource: Vec<(GroupResource, Vec<Change>)>,
    /// The index in `by_resource` of the resource of the last change.
    last: usize,
    places: HashMap<GroupResource, usize>,
}

impl Changes {
    /// The resource of the last change.
    fn current(&self) -> Option<&GroupResource> {
        self.by_resource.get(self.last).map(|(resource, _)| resource)
    }

    /// Adds the next change of a resource; `None` for that of the last change.
    fn push(&mut self, resource: Option<GroupResource>, change: Change) {
        if let Some(resource) = resource {
            self.last = *self.places.entry(resource).or_insert_with_key(|resource| {
                self.by_resource.push((resource.clone(), Vec::new()));
                self.by_resource.len() - 1
            });
        }
        if let Some((_, changes)) = self.by_resource.get_mut(self.last) {
            changes.push(change);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::event::Kind;
    use crate::cache::interest::Interest;
    use crate::cache::resource::{At, Page, Scope, Visibility};
    use crate::cache::watcher::{Log, Watcher};
    use crate::memory::Memory;
    use std::pin::pin;
    use std::task::{Context, Wake, Waker};

    /// A waker that runs a function at once, in the thread that wakes.
    struct AtOnce<F>(F);

    impl<F: Fn() + Send + Sync + 'static> Wake for AtOnce<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    fn pods() -> GroupResource {
        GroupResource::new("", "pods")
    }

    fn stored(name: &str) -> Bytes {
        format!("/pods/default/{name}").into()
    }

    fn put(key: Bytes, revision: u64) -> kv::Event {
        kv::Event { key, revision: Revision(revision), value: Some(br#"{"metadata":{}}"#.as_slice().into()) }
    }

    fn entry(name: &str, revision: u64) -> kv::Entry {
        let kv::Event { key, revision, value } = put(stored(name), revision);
        kv::Entry { key, revision, value: value.unwrap() }
    }

    fn damaged(name: &str, revision: u64) -> kv::Damaged {
        kv::Damaged { key: stored(name), revision: Revision(revision), fault: "its value is lost".to_owned() }
    }

    fn cache(entries: Vec<kv::Entry>, revision: u64) -> Arc<Cache> {
        let loading = Loading::default();
        loading.take(entries);
        Arc::new(Cache::new(&loading, Revision(revision), Limits::default()))
    }

    /// The revision of the list of all pods, and their names.
    fn list(cache: &Cache) -> (u64, Vec<String>) {
        let applied = cache.applied().revision;
        let pods = cache.resource(&pods()).unwrap();
        let list = pods.list(&Scope::All, At::Latest, Page::ALL, Visibility::All, applied).ok().unwrap();
        (list.revision.0, list.objects.iter().map(|object| object.key.name.to_string()).collect())
    }

    #[test]
    fn a_list_at_the_very_moment_at_which_the_revision_advances_has_nothing_that_is_damaged_or_gone() {
        let cache = cache(vec![entry("a", 1), entry("bad", 2), entry("gone", 3), entry("whole", 3)], 3);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let at_once = {
            let (cache, seen) = (cache.clone(), seen.clone());
            AtOnce(move || seen.lock().push((list(&cache), cache.unreadable_at(&stored("bad")))))
        };
        let waker = Waker::from(Arc::new(at_once));
        let mut applied = cache.subscribe();
        let mut advanced = pin!(applied.wait_for(|applied| Revision(9) <= applied.revision));
        assert!(advanced.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        let loaded = kv::Snapshot { entries: vec![entry("a", 1), entry("b", 5)], revision: Revision(9) };
        cache.catch_up(loaded, vec![damaged("bad", 7), damaged("whole", 3)], Instant::now());
        let names = ["a", "b", "whole"].map(str::to_owned).to_vec();
        assert_eq!(*seen.lock(), [((9, names), Some(Revision(7)))]);
    }

    #[test]
    fn an_entry_that_is_damaged_after_it_was_loaded_is_no_loss() {
        let cache = cache(vec![entry("a", 1)], 3);
        let loaded = kv::Snapshot { entries: vec![entry("a", 1), entry("b", 5)], revision: Revision(9) };
        cache.catch_up(loaded, vec![damaged("b", 5)], Instant::now());
        assert_eq!((list(&cache).1, cache.unreadable_at(&stored("b"))), (vec!["a".to_owned(), "b".to_owned()], None));
        let Losses { complete_after, whole } = cache.lose(vec![damaged("b", 5)], Instant::now());
        assert_eq!(complete_after, None);
        assert_eq!(whole.into_iter().map(|(key, _)| key).collect::<Vec<_>>(), [stored("b")]);
    }

    #[test]
    fn an_entry_that_is_damaged_and_was_not_loaded_is_lost() {
        let cache = cache(vec![entry("a", 1), entry("bad", 2), entry("older", 3)], 3);
        let loaded = kv::Snapshot { entries: vec![entry("a", 1), entry("older", 3)], revision: Revision(9) };
        let all = || vec![damaged("bad", 7), damaged("older", 8), damaged("unseen", 9)];
        cache.catch_up(loaded, all(), Instant::now());
        let lost = [("bad", 7), ("older", 8), ("unseen", 9)].map(|(name, at)| (stored(name), Revision(at))).to_vec();
        assert_eq!((list(&cache), cache.unreadable()), ((9, vec!["a".to_owned()]), lost.clone()));
        let Losses { complete_after, whole } = cache.lose(all(), Instant::now());
        assert_eq!((complete_after, whole.len(), cache.unreadable()), (None, 0, lost));
    }

    #[test]
    fn an_entry_that_is_written_and_damaged_after_the_load_has_the_value_that_was_loaded_until_then() {
        let cache = cache(vec![entry("a", 1)], 3);
        let loaded = kv::Snapshot { entries: vec![entry("a", 5)], revision: Revision(9) };
        cache.catch_up(loaded, vec![damaged("a", 10)], Instant::now());
        let held = cache.resource(&pods()).unwrap().get(&ObjectKey::namespaced("default", "a")).unwrap();
        assert_eq!((held.revision, cache.unreadable()), (Revision(5), Vec::new()));
    }

    fn watcher(cache: &Arc<Cache>, scope: Scope, oldest: u64, after: u64) -> Result<Watcher, Revision> {
        let log = Log { kv: Arc::new(Memory::new()), oldest: Revision(oldest), prefix: "/pods/".into() };
        Watcher::new(cache.clone(), cache.resource_or_new(&pods()), log, scope, Interest::ALL, Revision(after))
    }

    fn next(watcher: &mut Watcher) -> Vec<(Kind, String, u64)> {
        let events = watcher.try_next_batch(9).unwrap();
        events.iter().map(|event| (event.kind, event.object.key.name.to_string(), event.revision.0)).collect()
    }

    /// The events that watches of pods get at once if they begin after a revision; `Err` with the oldest possible one.
    fn watch(cache: &Arc<Cache>, oldest: u64, after: u64) -> Result<Vec<(Kind, String, u64)>, u64> {
        let [all, some] = [Scope::All, Scope::namespace("default")]
            .map(|scope| Ok(next(&mut watcher(cache, scope, oldest, after).map_err(|oldest| oldest.0)?)));
        assert_eq!(all, some);
        all
    }

    #[test]
    fn a_watch_that_begins_before_a_loss_gets_a_deletion_or_is_told_to_list_again() {
        let start = Instant::now();
        let cache = cache(vec![entry("a", 1), entry("bad", 2)], 3);
        assert_eq!((list(&cache).0, watch(&cache, 0, 3)), (3, Ok(Vec::new())));
        let mut running = watcher(&cache, Scope::All, 0, 3).unwrap();
        // The value that is damaged is newer than the one in memory.
        let Losses { complete_after, whole } = cache.lose(vec![damaged("bad", 3)], start);
        assert_eq!((complete_after, whole.len()), (Some(Revision(4)), 0));
        assert_eq!((list(&cache), cache.unreadable_at(&stored("bad"))), ((3, vec!["a".to_owned()]), Some(Revision(3))));
        let deleted = vec![(Kind::Deleted, "bad".to_owned(), 3)];
        assert_eq!(watch(&cache, 4, 3), Ok(deleted.clone()), "it has listed the object at this revision");
        assert_eq!((next(&mut running), next(&mut running)), (deleted.clone(), Vec::new()));
        // There is no later revision at which a client could list.
        let later = start + 2 * Limits::default().age;
        cache.trim(later);
        cache.drop_through(Revision(3));
        assert_eq!(watch(&cache, 4, 3), Ok(deleted.clone()));
        cache.apply(kv::Batch { events: vec![put(stored("b"), 5)], progress: Revision(5) }, later);
        let added = (Kind::Added, "b".to_owned(), 5);
        assert_eq!((watch(&cache, 4, 3), watch(&cache, 4, 4)), (Err(4), Ok(vec![added])));
    }

    /// Applies a transaction of pods, with one change of another resource before the last, and looks when the pods are applied and
    /// nothing else can be.
    #[track_caller]
    fn look_in_between<T>(cache: &Cache, names: [&str; 2], look: impl FnOnce() -> T) -> T {
        let [first, last] = names.map(|name| put(stored(name), 5));
        let events = vec![first, put("/secrets/default/a".into(), 5), last];
        let secrets = cache.resource_or_new(&GroupResource::new("", "secrets"));
        cache.resource_or_new(&pods());
        std::thread::scope(|scope| {
            secrets.read(|_| {
                scope.spawn(|| cache.apply(kv::Batch { events, progress: Revision(5) }, Instant::now()));
                while list(cache).0 < 5 {
                    std::thread::yield_now();
                }
                look()
            })
        })
    }

    #[test]
    fn a_list_that_names_the_revision_of_a_transaction_has_all_its_changes_whatever_else_it_changes() {
        let cache = cache(Vec::new(), 4);
        let names = look_in_between(&cache, ["a", "b"], || list(&cache).1);
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn a_key_stays_unreadable_until_the_change_that_makes_it_readable_is_applied() {
        let cache = cache(vec![kv::Entry { value: "no object".into(), ..entry("a", 3) }], 4);
        let marked = look_in_between(&cache, ["a", "b"], || cache.unreadable_at(&stored("a")));
        assert_eq!((marked, cache.unreadable_at(&stored("a"))), (Some(Revision(3)), None));
    }
}
