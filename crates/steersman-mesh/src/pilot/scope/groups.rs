//! Streams with the same scope: they share a view, and a change looks only at the groups that it concerns.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use steersman_xds::{StreamId, View};

use crate::pilot::scope::{Callee, Calls, Scope, Snapshot, Touched};
use crate::pilot::world::ServiceName;

/// The common side of the streams of a group: a scope, or that nothing special is said of them.
pub(crate) type GroupKey = Option<Scope>;

/// All groups that have a stream.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: BTreeMap<GroupKey, Group>,
    /// The groups that call a Service, or all of a namespace.
    by_callee: BTreeMap<Callee, BTreeSet<Scope>>,
    /// The groups that call everything.
    everywhere: BTreeSet<GroupKey>,
    n_made: u64,
}

#[derive(Debug)]
struct Group {
    view: Arc<View>,
    streams: HashSet<StreamId>,
}

impl Groups {
    /// Adds a stream to its group, and returns the view.
    pub(crate) fn add(&mut self, stream: StreamId, scope: &Scope, snapshot: &Snapshot) -> Arc<View> {
        let common = self.groups.get(&None).map(|group| Arc::clone(&group.view)).unwrap_or_default();
        // Scopes for which the same comes out share one view.
        self.add_after(stream, scope, snapshot, |_| common)
    }

    /// Adds a stream. A view that has to be made is made after another one, of which it keeps what is the same.
    fn add_after(
        &mut self,
        stream: StreamId,
        scope: &Scope,
        snapshot: &Snapshot,
        previous: impl FnOnce(&GroupKey) -> Arc<View>,
    ) -> Arc<View> {
        let key = (!snapshot.is_common(scope)).then(|| scope.clone());
        if let Some(group) = self.groups.get_mut(&key) {
            group.streams.insert(stream);
            return Arc::clone(&group.view);
        }
        let view = snapshot.view(key.as_ref(), &previous(&key));
        self.n_made += 1;
        match &key {
            Some(scope @ Scope { calls: Calls::Only(callees), .. }) => {
                for callee in callees.iter() {
                    self.by_callee.entry(callee.clone()).or_default().insert(scope.clone());
                }
            }
            Some(Scope { calls: Calls::All, .. }) | None => drop(self.everywhere.insert(key.clone())),
        }
        self.groups.insert(key, Group { view: Arc::clone(&view), streams: [stream].into() });
        view
    }

    /// Takes a stream out of its group. A group without streams is forgotten.
    pub(crate) fn remove(&mut self, stream: StreamId, scope: &Scope) {
        // It is in one of them, which one depends on the snapshot under which it was added.
        for key in [None, Some(scope.clone())] {
            let Some(group) = self.groups.get_mut(&key) else { continue };
            if !group.streams.remove(&stream) || !group.streams.is_empty() {
                continue;
            }
            self.groups.remove(&key);
            self.everywhere.remove(&key);
            let Some(Scope { calls: Calls::Only(callees), .. }) = &key else { continue };
            for callee in callees.iter() {
                let Some(scopes) = self.by_callee.get_mut(callee) else { continue };
                scopes.remove(scope);
                if scopes.is_empty() {
                    self.by_callee.remove(callee);
                }
            }
        }
    }

    /// The groups that a change concerns.
    fn concerned(&self, touched: &Touched) -> BTreeSet<GroupKey> {
        let Touched::Services { names, .. } = touched else { return self.groups.keys().cloned().collect() };
        if names.is_empty() {
            return BTreeSet::new();
        }
        let mut found = self.everywhere.clone();
        let callees = |name: &ServiceName| [Callee::Service(name.clone()), Callee::Namespace(name.namespace.clone())];
        let scopes = names.iter().flat_map(callees).filter_map(|callee| self.by_callee.get(&callee)).flatten();
        found.extend(scopes.cloned().map(Some));
        found
    }

    /// The groups that a change concerns, with their views.
    pub(crate) fn affected(&self, touched: &Touched) -> Vec<(GroupKey, Arc<View>)> {
        let concerned = self.concerned(touched).into_iter();
        concerned.filter_map(|key| self.groups.get(&key).map(|group| (key, Arc::clone(&group.view)))).collect()
    }

    /// Gives the groups that a change concerns their views in a new snapshot: those of `made`, where they were made of the same view
    /// before. Calls `changed` with each stream whose view is another now.
    pub(crate) fn publish(
        &mut self,
        snapshot: &Snapshot,
        made: &BTreeMap<GroupKey, (Arc<View>, Arc<View>)>,
        mut changed: impl FnMut(StreamId, &Arc<View>),
    ) {
        for key in self.concerned(snapshot.touched()) {
            let Some(group) = self.groups.get_mut(&key) else { continue };
            self.n_made += 1;
            let known = made.get(&key).filter(|(before, _)| Arc::ptr_eq(before, &group.view));
            let view = match known {
                Some((_, view)) => Arc::clone(view),
                None => snapshot.view(key.as_ref(), &group.view),
            };
            if Arc::ptr_eq(&view, &group.view) {
                continue;
            }
            group.view = view;
            group.streams.iter().for_each(|stream| changed(*stream, &group.view));
        }
    }

    /// How many groups there are.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// How many views were made so far.
    pub(crate) fn n_made(&self) -> u64 {
        self.n_made
    }

    /// Makes all groups anew, because a stream may belong to another one.
    pub(crate) fn rebuild<'s>(
        &mut self,
        snapshot: &Snapshot,
        streams: impl Iterator<Item = (StreamId, &'s Scope)>,
        mut changed: impl FnMut(StreamId, &Arc<View>),
    ) {
        let old = std::mem::take(self);
        self.n_made = old.n_made;
        let common = old.groups.get(&None).map(|group| Arc::clone(&group.view)).unwrap_or_default();
        for (stream, scope) in streams {
            let previous = |key: &GroupKey| {
                old.groups.get(key).map_or_else(|| Arc::clone(&common), |group| Arc::clone(&group.view))
            };
            let view = self.add_after(stream, scope, snapshot, previous);
            changed(stream, &view);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{ProptestConfig, any, prop, proptest};

    use super::*;
    use crate::pilot::resources::Options;
    use crate::pilot::world::World;
    use crate::pilot::world::tests::{http_route, objects, service};

    const SCOPES: [(&str, &str); 6] =
        [("a", "*"), ("b", "*"), ("a", "s0, s1"), ("a", "*.b"), ("b", "s0.a"), ("b", "s2, *.a")];

    fn scope((namespace, calls): (&str, &str)) -> Scope {
        Scope { namespace: namespace.to_owned(), calls: Calls::parse(calls, namespace).unwrap() }
    }

    /// A world of some of eight Services, with a route of either namespace, or of both.
    fn snapshot(present: u8, routes: u8, previous: &Snapshot) -> Snapshot {
        let mut yaml = String::new();
        for bit in (0..8_u8).filter(|bit| present & 1 << bit != 0) {
            let namespace = if bit < 4 { "a" } else { "b" };
            yaml += &service(namespace, &format!("s{}", bit % 4), bit + 1, &["http:80"]);
        }
        if routes & 1 != 0 {
            yaml += &http_route("a", "own", "name: s0", "[{backendRefs: [{name: s1, port: 80}]}]");
        }
        if routes & 2 != 0 {
            yaml += &http_route("b", "theirs", "name: s0, namespace: a", "[{backendRefs: [{name: s2, port: 80}]}]");
        }
        Snapshot::of(World::of(&objects(&yaml)), &Options::default(), previous)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever changes, every stream has the view that would be made from scratch, and only changed views are told.
        #[test]
        fn streams_have_the_views_of_their_scopes(steps in prop::collection::vec((any::<u8>(), 0..4_u8, 0..6_usize), 1..12)) {
            let (mut current, mut groups) = (Arc::new(snapshot(0xff, 0, &Snapshot::default())), Groups::default());
            let mut streams: BTreeMap<StreamId, (Scope, Arc<View>)> = BTreeMap::new();
            for (number, (present, routes, place)) in steps.into_iter().enumerate() {
                let next = Arc::new(snapshot(present, routes, &current));
                let affected = groups.affected(next.touched());
                let made = affected.into_iter().map(|(key, view)| {
                    let new = next.view(key.as_ref(), &view);
                    (key, (view, new))
                });
                let made = made.collect();
                let scopes: Vec<_> = streams.iter().map(|(id, (scope, _))| (*id, scope.clone())).collect();
                let mut told = |stream: StreamId, view: &Arc<View>| {
                    if let Some(entry) = streams.get_mut(&stream) {
                        entry.1 = Arc::clone(view);
                    }
                };
                match next.touched() {
                    Touched::All => groups.rebuild(&next, scopes.iter().map(|(id, scope)| (*id, scope)), &mut told),
                    Touched::Services { .. } => groups.publish(&next, &made, &mut told),
                }
                current = next;
                let (id, scope) = (StreamId(u64::try_from(number).unwrap()), scope(SCOPES[place]));
                let view = groups.add(id, &scope, &current);
                streams.insert(id, (scope, view));
                if number % 3 == 2 {
                    let (id, (scope, _)) = streams.pop_first().unwrap();
                    groups.remove(id, &scope);
                }
                for (scope, view) in streams.values() {
                    let scratch = current.view((!current.is_common(scope)).then_some(scope), &Arc::default());
                    for kind in steersman_xds::Kind::ALL {
                        assert!(view.set(kind).iter().eq_by_pointer(scratch.set(kind).iter()), "{scope:?}: {kind}");
                    }
                }
            }
            for (id, (scope, _)) in streams {
                groups.remove(id, &scope);
            }
            assert!(groups.groups.is_empty() && groups.by_callee.is_empty() && groups.everywhere.is_empty());
        }
    }

    trait ByPointer<'v>: Iterator<Item = &'v Arc<steersman_xds::Resource>> + Sized {
        fn eq_by_pointer(self, other: impl Iterator<Item = &'v Arc<steersman_xds::Resource>>) -> bool {
            self.map(Arc::as_ptr).eq(other.map(Arc::as_ptr))
        }
    }

    impl<'v, I: Iterator<Item = &'v Arc<steersman_xds::Resource>>> ByPointer<'v> for I {}

    #[test]
    fn a_change_that_a_scope_does_not_see_makes_no_view() {
        let yaml = |ports: &str| {
            service("a", "s0", 1, &["http:80"])
                + &service("a", "s1", 2, &["http:80"])
                + &service("a", "s2", 3, &[ports])
        };
        let of =
            |yaml: &str, previous: &Snapshot| Snapshot::of(World::of(&objects(yaml)), &Options::default(), previous);
        let first = of(&yaml("http:80"), &Snapshot::default());
        let mut groups = Groups::default();
        groups.add(StreamId(1), &scope(("a", "s0")), &first);
        groups.add(StreamId(2), &scope(("a", "s2")), &first);
        let (second, made) = (of(&yaml("http:81"), &first), groups.n_made());
        let mut told = Vec::new();
        groups.publish(&second, &BTreeMap::new(), |stream, _| told.push(stream));
        assert_eq!((told, groups.n_made() - made), (vec![StreamId(2)], 1));
        // Nothing at all has changed.
        let third = of(&yaml("http:81"), &second);
        groups.publish(&third, &BTreeMap::new(), |stream, _| panic!("{stream:?} is told"));
        assert_eq!(groups.n_made() - made, 1);
    }
}
