//! The current objects of one resource, the ring of its recent events, and its groups of watchers.
//!
//! Only the feeder writes it, under one lock per batch; lists and watchers read it. A list at a past revision undoes
//! the later events.

use crate::cache::event::{Event, Kind};
use crate::cache::interest::{Group, Groups, Interest};
use crate::cache::ring::{Limits, Ring};
use crate::cache::sorted::Sorted;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use steersman_machinery::{Object, ObjectKey, Revision};
use tokio::time::Instant;

/// The objects of a resource that a list or a watch covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// All objects.
    All,
    /// The objects of one namespace.
    Namespace(Box<str>),
}

/// The state that a list shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum At {
    /// The state at exactly this revision.
    Exact(Revision),
    /// The newest state in the cache.
    Latest,
}

/// Whether objects that are not initialized are visible.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Visibility {
    /// All objects.
    #[default]
    All,
    /// Only objects without `metadata.initializers`.
    Initialized,
}

/// Selects a part of a list.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// The most objects to return; `None` for all.
    pub limit: Option<usize>,
    /// Only objects after this key.
    pub start_after: Option<&'a ObjectKey>,
}

/// Objects in the order of their keys, at one revision.
#[derive(Clone, Debug)]
pub struct List {
    /// Whether more objects follow the last.
    pub more: bool,
    /// The objects.
    pub objects: Vec<Arc<Object>>,
    /// The number of objects that follow; `None` if it was not counted.
    pub remaining: Option<usize>,
    /// The revision whose state this is.
    pub revision: Revision,
}

#[derive(Debug)]
pub(crate) struct ResourceCache {
    /// The groups of watchers. Locked after `state`, never before it.
    groups: Mutex<Groups>,
    /// Set before the objects of its revision can be read.
    newest: Newest,
    state: RwLock<State>,
}

/// The revision of the newest change of a resource that can be read. Reading it is one atomic load.
#[derive(Clone, Debug, Default)]
pub struct Newest(Arc<AtomicU64>);

#[derive(Debug)]
pub(crate) struct State {
    objects: Sorted,
    /// The objects that are not initialized.
    uninitialized: BTreeMap<ObjectKey, Arc<Object>>,
    pub(crate) ring: Ring,
}

/// A decoded change of one object, ready to be applied.
pub(crate) enum Change {
    Delete(ObjectKey, Revision),
    /// The object is lost to damage. It follows all other changes at its revision.
    Lose(ObjectKey, Revision),
    Put(Arc<Object>),
}

/// The reason why a list cannot show a revision.
pub(crate) enum Miss {
    Compacted(Revision),
    Future(Revision),
}

impl Scope {
    /// The objects of one namespace.
    pub fn namespace(name: impl Into<Box<str>>) -> Scope {
        Scope::Namespace(name.into())
    }

    /// Whether an object with this key is in the scope.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Scope::All => true,
            Scope::Namespace(namespace) => key.namespace.as_ref() == Some(namespace),
        }
    }
}

impl Page<'_> {
    /// The whole list.
    pub const ALL: Page<'static> = Page { limit: None, start_after: None };
}

// === impl Newest ===

impl Newest {
    /// The revision; zero if nothing has changed since the store was opened.
    pub fn revision(&self) -> Revision {
        Revision(self.0.load(Ordering::Acquire))
    }

    fn advance(&self, revision: Revision) {
        self.0.fetch_max(revision.0, Ordering::Release);
    }
}

// === impl ResourceCache ===

impl ResourceCache {
    /// A cache of these objects, in the order of their keys, without history before `floor`.
    pub(crate) fn new(objects: Vec<Arc<Object>>, floor: Revision) -> ResourceCache {
        let uninitialized = objects.iter().filter(|object| object.meta().is_uninitialized());
        let uninitialized = uninitialized.map(|object| (object.key.clone(), object.clone())).collect();
        let state = State { objects: Sorted::new(objects), uninitialized, ring: Ring::new(floor) };
        ResourceCache { groups: Mutex::default(), newest: Newest::default(), state: RwLock::new(state) }
    }

    /// The same cache, which publishes its newest change through another handle.
    pub(crate) fn with_newest(self, newest: Newest) -> ResourceCache {
        ResourceCache { newest, ..self }
    }

    pub(crate) fn newest(&self) -> &Newest {
        &self.newest
    }

    /// Applies changes in order. The caller wakes the watchers in `woken` after the whole batch.
    pub(crate) fn apply(&self, changes: Vec<Change>, limits: &Limits, now: Instant, woken: &mut Vec<Arc<Group>>) {
        let mut state = self.state.write();
        self.push(&mut state, changes, now, woken);
        state.ring.trim(limits, now);
    }

    /// Applies changes that lead to a revision, between which others are not known, and drops all history: watchers that have not read
    /// what was before fail. Nobody sees a part of the changes.
    pub(crate) fn take_up(&self, changes: Vec<Change>, revision: Revision, now: Instant, woken: &mut Vec<Arc<Group>>) {
        let mut state = self.state.write();
        self.push(&mut state, changes, now, woken);
        state.ring.restart(revision);
    }

    fn push(&self, state: &mut State, changes: Vec<Change>, now: Instant, woken: &mut Vec<Arc<Group>>) {
        let groups = self.groups.lock();
        for change in changes {
            if let Some(event) = state.change(change) {
                self.newest.advance(event.revision);
                groups.push(&event, state.ring.end(), woken);
                state.ring.push(Arc::new(event), now);
            }
        }
    }

    /// The group of a watcher that begins after a revision, and its start position in the ring; `Err` with the oldest
    /// possible revision if the ring no longer reaches that far back.
    pub(crate) fn join(
        &self,
        scope: &Scope,
        interest: &Interest,
        after: Revision,
    ) -> Result<(Arc<Group>, u64), Revision> {
        let state = self.state.read();
        if after < state.ring.floor() {
            return Err(state.ring.floor());
        }
        let position = state.ring.position_of_watch(after);
        Ok((self.groups.lock().join(scope, interest, position, &state.ring), position))
    }

    pub(crate) fn leave(&self, group: &Group) {
        self.groups.lock().leave(group);
    }

    pub(crate) fn wake_all(&self) {
        self.groups.lock().wake_all();
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.state.read().objects.get(key).cloned()
    }

    pub(crate) fn count(&self) -> usize {
        self.state.read().objects.len()
    }

    pub(crate) fn count_in(&self, scope: &Scope) -> usize {
        let range = Range::new(scope, None);
        let (lower, upper) = range.bounds();
        self.state.read().objects.count(lower, upper)
    }

    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        let state = self.state.read();
        state.objects.range(Bound::Unbounded, Bound::Unbounded).map(|object| object.key.clone()).collect()
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read())
    }

    pub(crate) fn trim(&self, limits: &Limits, now: Instant) {
        let mut state = self.state.write();
        state.ring.trim(limits, now);
        self.groups.lock().forget_before(state.ring.start());
    }

    pub(crate) fn drop_through(&self, revision: Revision) {
        self.state.write().ring.drop_through(revision);
    }

    /// The objects that are not initialized.
    pub(crate) fn uninitialized(&self) -> Vec<Arc<Object>> {
        self.state.read().uninitialized.values().cloned().collect()
    }

    /// A page of a list; `applied` is a revision that was applied before the call.
    pub(crate) fn list(
        &self,
        scope: &Scope,
        at: At,
        page: Page<'_>,
        visibility: Visibility,
        applied: Revision,
    ) -> Result<List, Miss> {
        let range = Range::new(scope, page.start_after);
        self.state.read().list(&range, at, page.limit, visibility, applied)
    }
}

// === impl State ===

impl State {
    fn change(&mut self, change: Change) -> Option<Event> {
        match change {
            Change::Delete(key, revision) => {
                // The engine reports deletions of existing keys only, so this is `None` only after an unreadable value.
                self.take(&key).map(|last| Event::deleted(last, revision))
            }
            Change::Lose(key, revision) => self.take(&key).map(|last| Event::lost(last, revision)),
            Change::Put(object) => {
                let previous = self.objects.replace(object.clone());
                if object.meta().is_uninitialized() {
                    self.uninitialized.insert(object.key.clone(), object.clone());
                } else if previous.as_ref().is_some_and(|previous| previous.meta().is_uninitialized()) {
                    self.uninitialized.remove(&object.key);
                }
                let kind = if previous.is_some() { Kind::Modified } else { Kind::Added };
                Some(Event::new(kind, object, previous))
            }
        }
    }

    fn take(&mut self, key: &ObjectKey) -> Option<Arc<Object>> {
        let last = self.objects.take(key)?;
        if last.meta().is_uninitialized() {
            self.uninitialized.remove(key);
        }
        Some(last)
    }

    pub(crate) fn is_bare(&self) -> bool {
        self.objects.is_empty() && self.ring.is_empty()
    }

    fn list(
        &self,
        range: &Range<'_>,
        at: At,
        limit: Option<usize>,
        visibility: Visibility,
        applied: Revision,
    ) -> Result<List, Miss> {
        // The batch that is being applied may already be included before `applied` is advanced.
        let newest = applied.max(self.ring.newest());
        let revision = match at {
            At::Exact(revision) if revision < self.ring.floor() => return Err(Miss::Compacted(self.ring.floor())),
            At::Exact(revision) if newest < revision => return Err(Miss::Future(newest)),
            At::Exact(revision) => revision,
            At::Latest => newest,
        };
        let since = self.undo(revision, range);
        let (lower, upper) = range.bounds();
        let limit = limit.unwrap_or(usize::MAX);
        let is_hidden = |object: &Arc<Object>| object.meta().is_uninitialized();
        let hides = visibility == Visibility::Initialized
            && (!self.uninitialized.is_empty() || since.values().flatten().any(|held| is_hidden(held)));
        if hides {
            // The number of hidden objects after the page is known only when all have been examined.
            let (mut objects, mut remaining) = (Vec::new(), 0);
            merge(self.objects.range(lower, upper), &since, |object| {
                if !is_hidden(object) {
                    if objects.len() < limit {
                        objects.push(object.clone());
                    } else {
                        remaining += 1;
                    }
                }
                true
            });
            return Ok(List { more: 0 < remaining, objects, remaining: Some(remaining), revision });
        }
        let n_now = self.objects.count(lower, upper);
        let mut objects = Vec::with_capacity(n_now.min(limit));
        merge(self.objects.range(lower, upper), &since, |object| {
            if objects.len() < limit {
                objects.push(object.clone());
            }
            objects.len() < limit
        });
        // Keys that have changed since count in their earlier state.
        let n_held = since.values().filter(|held| held.is_some()).count();
        let n_changed = since.keys().filter(|key| self.objects.get(key).is_some()).count();
        let remaining = (n_now + n_held).saturating_sub(n_changed + objects.len());
        Ok(List { more: 0 < remaining, objects, remaining: Some(remaining), revision })
    }

    /// The object of each changed key in the range, as of a revision.
    fn undo(&self, revision: Revision, range: &Range<'_>) -> BTreeMap<&ObjectKey, Option<&Arc<Object>>> {
        let mut held = BTreeMap::new();
        for event in self.ring.from(self.ring.position_after(revision)) {
            let key = &event.object.key;
            if range.contains(key) {
                held.entry(key).or_insert(event.previous.as_ref());
            }
        }
        held
    }
}

/// Visits the union of both in key order until the visitor returns false. For a key in both, the second one wins.
fn merge<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>>,
    since: &BTreeMap<&'a ObjectKey, Option<&'a Arc<Object>>>,
    mut visit: impl FnMut(&Arc<Object>) -> bool,
) {
    let mut since = since.iter().peekable();
    for object in objects {
        while let Some((_, held)) = since.next_if(|(key, _)| **key < &object.key) {
            if !held.is_none_or(&mut visit) {
                return;
            }
        }
        let goes_on = match since.next_if(|(key, _)| **key == &object.key) {
            Some((_, held)) => held.is_none_or(&mut visit),
            None => visit(object),
        };
        if !goes_on {
            return;
        }
    }
    for held in since.filter_map(|(_, held)| *held) {
        if !visit(held) {
            return;
        }
    }
}

/// The keys that a page covers.
struct Range<'a> {
    /// Whether the range has no keys.
    is_empty: bool,
    /// The smallest key of the namespace and the bound after its largest; `None` for all.
    namespace: Option<(ObjectKey, ObjectKey)>,
    start_after: Option<&'a ObjectKey>,
}

impl<'a> Range<'a> {
    fn new(scope: &Scope, start_after: Option<&'a ObjectKey>) -> Range<'a> {
        let namespace = match scope {
            Scope::All => None,
            // All keys `namespace/...` lie between `namespace/` and `namespace0`: `0` is the byte after the slash.
            Scope::Namespace(namespace) => {
                Some((ObjectKey::namespaced(namespace.clone(), ""), ObjectKey::cluster(format!("{namespace}0"))))
            }
        };
        let is_empty = matches!((&namespace, start_after), (Some((_, behind)), Some(after)) if behind <= after);
        Range { is_empty, namespace, start_after }
    }

    fn bounds(&self) -> (Bound<&ObjectKey>, Bound<&ObjectKey>) {
        let (lowest, highest) = match &self.namespace {
            None => (Bound::Unbounded, Bound::Unbounded),
            Some((first, behind)) => (Bound::Included(first), Bound::Excluded(behind)),
        };
        let lower = match (lowest, self.start_after) {
            (Bound::Included(first), Some(after)) if after < first => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after),
            (lowest, None) => lowest,
        };
        (lower, highest)
    }

    fn contains(&self, key: &ObjectKey) -> bool {
        !self.is_empty && std::ops::RangeBounds::contains(&self.bounds(), key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_the_revision_it_shows_while_a_batch_is_half_applied() {
        let cache = ResourceCache::new(Vec::new(), Revision(4));
        let object = |revision| Object::decode(ObjectKey::cluster("x"), Revision(revision), br#"{"metadata":{}}"#);
        let changes = vec![Change::Put(Arc::new(object(5).unwrap())), Change::Put(Arc::new(object(7).unwrap()))];
        cache.apply(changes, &Limits::default(), Instant::now(), &mut Vec::new());
        // The batch has been applied, and revision 7 is not yet the newest of the cache.
        let list = |at| cache.list(&Scope::All, at, Page::ALL, Visibility::All, Revision(4)).ok().unwrap();
        assert_eq!(list(At::Latest).revision, Revision(7));
        assert_eq!(list(At::Exact(Revision(7))).objects[0].revision, Revision(7));
        assert_eq!(list(At::Exact(Revision(6))).objects[0].revision, Revision(5));
        assert!(list(At::Exact(Revision(4))).objects.is_empty());
        assert!(matches!(
            cache.list(&Scope::All, At::Exact(Revision(8)), Page::ALL, Visibility::All, Revision(4)),
            Err(Miss::Future(_))
        ));
    }
}
