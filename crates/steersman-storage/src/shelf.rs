//! One resource's objects as they are now, and the ring of what happened to them.
//!
//! Written by the feeder alone, under one lock per batch; read by lists and watchers. A list at a past revision undoes the
//! events since.

use crate::event::{Event, Kind};
use crate::ring::{Limits, Ring};
use parking_lot::RwLock;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;
use steersman_machinery::{Object, ObjectKey, Revision};
use tokio::sync::watch;
use tokio::time::Instant;

/// Which objects of a resource.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// All of them.
    All,
    /// Those of one namespace.
    Namespace(Box<str>),
}

/// Which state a list shows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum At {
    /// The state at exactly this revision.
    Exact(Revision),
    /// What the cache has now.
    Latest,
}

/// Which part of a list.
#[derive(Clone, Copy, Debug)]
pub struct Page<'a> {
    /// At most so many objects.
    pub limit: Option<usize>,
    /// Only objects ordered behind this key.
    pub start_after: Option<&'a ObjectKey>,
}

/// Objects in the order of their keys, at one revision.
#[derive(Clone, Debug)]
pub struct List {
    /// Whether objects follow behind the last one.
    pub more: bool,
    /// The objects.
    pub objects: Vec<Arc<Object>>,
    /// How many follow; `None` when that was not counted.
    pub remaining: Option<usize>,
    /// The revision this is the state of.
    pub revision: Revision,
}

#[derive(Debug)]
pub(crate) struct Shelf {
    /// Rung after every batch that changed this resource.
    bell: watch::Sender<()>,
    state: RwLock<State>,
}

#[derive(Debug)]
pub(crate) struct State {
    objects: BTreeSet<ByKey>,
    pub(crate) ring: Ring,
}

/// A change of one object, decoded, ready to be applied.
pub(crate) enum Change {
    Delete(ObjectKey, Revision),
    Put(Arc<Object>),
}

/// The history a read needs is gone; this is the oldest revision it can have.
pub(crate) enum Miss {
    Compacted(Revision),
    Future(Revision),
}

/// An object ordered by its key: a set of these is a map that stores each key once.
#[derive(Debug)]
struct ByKey(Arc<Object>);

impl Scope {
    /// One namespace.
    pub fn namespace(name: impl Into<Box<str>>) -> Scope {
        Scope::Namespace(name.into())
    }

    /// Whether an object with this key is among those meant.
    pub fn contains(&self, key: &ObjectKey) -> bool {
        match self {
            Scope::All => true,
            Scope::Namespace(namespace) => key.namespace.as_ref() == Some(namespace),
        }
    }
}

impl Page<'_> {
    /// Everything.
    pub const ALL: Page<'static> = Page { limit: None, start_after: None };
}

// === impl ByKey ===

impl Borrow<ObjectKey> for ByKey {
    fn borrow(&self) -> &ObjectKey {
        &self.0.key
    }
}

impl Ord for ByKey {
    fn cmp(&self, other: &ByKey) -> Ordering {
        self.0.key.cmp(&other.0.key)
    }
}

impl PartialOrd for ByKey {
    fn partial_cmp(&self, other: &ByKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ByKey {
    fn eq(&self, other: &ByKey) -> bool {
        self.0.key == other.0.key
    }
}

impl Eq for ByKey {}

// === impl Shelf ===

impl Shelf {
    /// With these objects, in the order of their keys, and no history before `floor`.
    pub(crate) fn new(objects: Vec<Arc<Object>>, floor: Revision) -> Shelf {
        let state = State { objects: objects.into_iter().map(ByKey).collect(), ring: Ring::new(floor) };
        Shelf { bell: watch::Sender::new(()), state: RwLock::new(state) }
    }

    /// Applies changes in order. The caller rings when the whole batch is in.
    pub(crate) fn apply(&self, changes: Vec<Change>, limits: &Limits, now: Instant) {
        let mut state = self.state.write();
        for change in changes {
            if let Some(event) = state.change(change) {
                state.ring.push(Arc::new(event), now);
            }
        }
        state.ring.trim(limits, now);
    }

    pub(crate) fn ring_bell(&self) {
        self.bell.send_replace(());
    }

    pub(crate) fn listen(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<Object>> {
        self.state.read().objects.get(key).map(|found| found.0.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.state.read().objects.len()
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.read())
    }

    pub(crate) fn trim(&self, limits: &Limits, now: Instant) {
        self.state.write().ring.trim(limits, now);
    }

    pub(crate) fn drop_through(&self, revision: Revision) {
        self.state.write().ring.drop_through(revision);
    }

    /// A page; `applied` is a revision that was applied before the call.
    pub(crate) fn list(&self, scope: &Scope, at: At, page: Page<'_>, applied: Revision) -> Result<List, Miss> {
        self.state.read().list(scope, at, page, applied)
    }
}

// === impl State ===

impl State {
    fn change(&mut self, change: Change) -> Option<Event> {
        match change {
            Change::Delete(key, revision) => match self.objects.take(&key) {
                Some(ByKey(last)) => {
                    let object = Arc::new(last.copy_at(revision));
                    Some(Event::new(Kind::Deleted, object, Some(last)))
                }
                // The engine reports no deletion of what is not there.
                None => None,
            },
            Change::Put(object) => {
                let previous = self.objects.replace(ByKey(object.clone())).map(|ByKey(previous)| previous);
                let kind = if previous.is_some() { Kind::Modified } else { Kind::Added };
                Some(Event::new(kind, object, previous))
            }
        }
    }

    pub(crate) fn is_bare(&self) -> bool {
        self.objects.is_empty() && self.ring.is_empty()
    }

    fn list(&self, scope: &Scope, at: At, page: Page<'_>, applied: Revision) -> Result<List, Miss> {
        // The batch being applied may be in here before `applied` says so.
        let newest = applied.max(self.ring.newest());
        let revision = match at {
            At::Exact(revision) if revision < self.ring.floor() => return Err(Miss::Compacted(self.ring.floor())),
            At::Exact(revision) if newest < revision => return Err(Miss::Future(newest)),
            At::Exact(revision) => revision,
            At::Latest => newest,
        };
        let range = Range::new(scope, page.start_after);
        let since = self.undo(revision, &range);
        let mut list = List { more: false, objects: Vec::new(), remaining: None, revision };
        let limit = page.limit.unwrap_or(usize::MAX);
        let mut n_total = 0;
        let mut take = |object: &Arc<Object>| {
            n_total += 1;
            if list.objects.len() < limit {
                list.objects.push(object.clone());
            }
        };
        merge(range.of(&self.objects).map(|found| &found.0), &since, &mut take);
        list.more = n_total > list.objects.len();
        list.remaining = Some(n_total - list.objects.len());
        Ok(list)
    }

    /// What each key in the range that has changed since a revision held at that revision.
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

/// Visits the union of both in key order; where both have a key, the second decides.
fn merge<'a>(
    objects: impl Iterator<Item = &'a Arc<Object>>,
    since: &BTreeMap<&'a ObjectKey, Option<&'a Arc<Object>>>,
    visit: &mut impl FnMut(&Arc<Object>),
) {
    let mut since = since.iter().peekable();
    for object in objects {
        while let Some((_, held)) = since.next_if(|(key, _)| **key < &object.key) {
            held.iter().for_each(|held| visit(held));
        }
        match since.next_if(|(key, _)| **key == &object.key) {
            Some((_, held)) => held.iter().for_each(|held| visit(held)),
            None => visit(object),
        }
    }
    for (_, held) in since {
        held.iter().for_each(|held| visit(held));
    }
}

/// The keys a page is about.
struct Range<'a> {
    /// The smallest key of the namespace and the bound behind its largest; `None` for all.
    namespace: Option<(ObjectKey, ObjectKey)>,
    start_after: Option<&'a ObjectKey>,
}

impl<'a> Range<'a> {
    fn new(scope: &Scope, start_after: Option<&'a ObjectKey>) -> Range<'a> {
        let namespace = match scope {
            Scope::All => None,
            // All keys `namespace/...` lie between `namespace/` and `namespace0`: the byte behind the slash is a zero.
            Scope::Namespace(namespace) => {
                Some((ObjectKey::namespaced(namespace.clone(), ""), ObjectKey::cluster(format!("{namespace}0"))))
            }
        };
        Range { namespace, start_after }
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

    fn is_empty(&self) -> bool {
        match self.bounds() {
            (Bound::Excluded(lower), Bound::Excluded(upper)) => upper <= lower,
            _ => false,
        }
    }

    fn contains(&self, key: &ObjectKey) -> bool {
        !self.is_empty() && std::ops::RangeBounds::contains(&self.bounds(), key)
    }

    fn of<'o>(&self, objects: &'o BTreeSet<ByKey>) -> impl Iterator<Item = &'o ByKey> {
        // A set panics on a range whose ends are crossed.
        (!self.is_empty()).then(|| objects.range::<ObjectKey, _>(self.bounds())).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_the_revision_it_shows_while_a_batch_is_half_told() {
        let shelf = Shelf::new(Vec::new(), Revision(4));
        let object = |revision| Object::decode(ObjectKey::cluster("x"), Revision(revision), br#"{"metadata":{}}"#);
        let changes = vec![Change::Put(Arc::new(object(5).unwrap())), Change::Put(Arc::new(object(7).unwrap()))];
        shelf.apply(changes, &Limits::default(), Instant::now());
        // The batch is on the shelf, and revision 7 not yet the newest of the cache.
        let list = |at| shelf.list(&Scope::All, at, Page::ALL, Revision(4)).ok().unwrap();
        assert_eq!(list(At::Latest).revision, Revision(7));
        assert_eq!(list(At::Exact(Revision(7))).objects[0].revision, Revision(7));
        assert_eq!(list(At::Exact(Revision(6))).objects[0].revision, Revision(5));
        assert!(list(At::Exact(Revision(4))).objects.is_empty());
        assert!(matches!(
            shelf.list(&Scope::All, At::Exact(Revision(8)), Page::ALL, Revision(4)),
            Err(Miss::Future(_))
        ));
    }
}
