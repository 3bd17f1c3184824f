//! Finds the watchers that an event wakes: the watchers of a resource are grouped by what they watch.
//!
//! An event is added to the groups that it concerns. They are found by the namespace, name, fields and labels in the
//! headers of the object and of its previous state. Watchers of other groups cost nothing. A group records the
//! positions of its events in the ring, so that its watchers read only those, and do not lag when the ring drops events
//! of others.

use crate::cache::event::Event;
use crate::cache::resource::Scope;
use crate::cache::ring::Ring;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steersman_machinery::Object;
use tokio::sync::Notify;

/// The events that wake a watcher. It may be woken for other events too, so its owner still applies the selectors.
///
/// If several are set, only the first one counts, in the order name, field, label.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Interest {
    /// One object's name.
    pub name: Option<Box<str>>,
    /// A selectable field of the kind, and its value. An object whose header does not have the field wakes all watchers
    /// of that field.
    pub field: Option<(Box<str>, Box<str>)>,
    /// A label's key, and its required value.
    pub label: Option<(Box<str>, Box<str>)>,
}

/// The common subject of a group's watchers.
#[derive(Clone, Debug, Eq, PartialEq)]
struct WatchTarget {
    scope: Scope,
    selector: Selector,
}

#[derive(Clone, Debug, Eq, PartialEq)]
enum Selector {
    All,
    Field(Box<str>, Box<str>),
    Label(Box<str>, Box<str>),
    Name(Box<str>),
}

/// The watchers with the same scope and selector.
#[derive(Debug)]
pub(crate) struct Group {
    /// Changed only under the lock of the groups. Not the number of references: the feeder holds some while it wakes
    /// watchers.
    n_watchers: AtomicUsize,
    /// Notified after events of the group were published, and when the cache closes.
    pub(crate) published: Notify,
    /// `None` for the group of all objects, which every event concerns.
    events: Option<Mutex<GroupEvents>>,
    subject: WatchTarget,
}

/// The events that concern a group.
#[derive(Debug, Default)]
struct GroupEvents {
    /// Every event of the group from this position on is in `positions`, unless the ring has dropped it.
    complete_from: u64,
    /// The ring has dropped an event of the group before this position, and none from it on.
    lost_before: u64,
    /// Positions in the ring, ascending.
    positions: VecDeque<u64>,
}

/// All groups of a resource that have watchers.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The groups of watchers of all namespaces.
    everywhere: Selected,
    /// No entry is empty.
    namespaces: HashMap<Box<str>, Selected>,
}

/// The groups of one scope.
#[derive(Debug, Default)]
struct Selected {
    all: Option<Arc<Group>>,
    /// By field, then by its value. No inner map is empty.
    fields: HashMap<Box<str>, HashMap<Box<str>, Arc<Group>>>,
    /// By key, then by value. No inner map is empty.
    labels: HashMap<Box<str>, HashMap<Box<str>, Arc<Group>>>,
    names: HashMap<Box<str>, Arc<Group>>,
}

/// The events that a group's watcher has yet to read.
pub(crate) enum Pending {
    /// All events from its position on.
    All,
    /// The ring has dropped events of the group that the watcher has not read.
    Lost,
    /// These positions, ascending; more may follow if there are as many as requested.
    Positions(Vec<u64>),
}

// === impl Interest ===

impl Interest {
    /// All events.
    pub const ALL: Interest = Interest { name: None, field: None, label: None };
}

impl WatchTarget {
    fn new(scope: &Scope, interest: &Interest) -> WatchTarget {
        let Interest { name, field, label } = interest.clone();
        let selector = match (name, field, label) {
            (Some(name), ..) => Selector::Name(name),
            (None, Some((field, text)), _) => Selector::Field(field, text),
            (None, None, Some((label, value))) => Selector::Label(label, value),
            (None, None, None) => Selector::All,
        };
        WatchTarget { scope: scope.clone(), selector }
    }

    /// Whether an event may match, by the headers of its objects.
    fn concerns(&self, event: &Event) -> bool {
        let key = &event.object.key;
        let any =
            |holds: &dyn Fn(&Object) -> bool| holds(&event.object) || event.previous.as_deref().is_some_and(holds);
        let is_selected = match &self.selector {
            Selector::All => true,
            Selector::Field(field, text) => {
                any(&|object| object.meta().field(field).is_none_or(|held| held == &**text))
            }
            Selector::Label(label, value) => any(&|object| object.label(label) == Some(value)),
            Selector::Name(name) => key.name == *name,
        };
        is_selected && self.scope.contains(key)
    }
}

impl Scope {
    /// Whether a watcher with this scope and interest receives an event.
    pub(crate) fn sees(&self, interest: &Interest, event: &Event) -> bool {
        WatchTarget::new(self, interest).concerns(event)
    }
}

// === impl Group ===

impl Group {
    /// A group of which no event of the ring is recorded yet.
    fn new(subject: WatchTarget, ring: &Ring) -> Arc<Group> {
        let is_everything = subject.scope == Scope::All && subject.selector == Selector::All;
        let events =
            (!is_everything).then(|| Mutex::new(GroupEvents { complete_from: ring.end(), ..GroupEvents::default() }));
        Arc::new(Group { n_watchers: AtomicUsize::new(0), published: Notify::new(), events, subject })
    }

    /// At most `n_max` positions from one on. The caller holds the lock of the ring.
    pub(crate) fn pending(&self, from: u64, n_max: usize, ring: &Ring) -> Pending {
        let Some(events) = &self.events else {
            return if from < ring.start() { Pending::Lost } else { Pending::All };
        };
        let mut events = events.lock();
        events.forget_before(ring.start());
        if from < events.lost_before {
            return Pending::Lost;
        }
        let start = events.positions.partition_point(|position| *position < from);
        Pending::Positions(events.positions.range(start..).take(n_max).copied().collect())
    }

    /// Records an event of the group. False if it is already recorded.
    fn push(&self, position: u64) -> bool {
        let Some(events) = &self.events else { return true };
        let mut events = events.lock();
        if events.positions.back() == Some(&position) {
            return false;
        }
        events.positions.push_back(position);
        true
    }

    /// Adds the events of the group from a position on that are in the ring and not yet recorded.
    fn complete(&self, from: u64, ring: &Ring) {
        let Some(events) = &self.events else { return };
        let mut events = events.lock();
        let until = events.complete_from;
        let mut missing: Vec<u64> = Vec::new();
        for (position, event) in (from..until).zip(ring.from(from)) {
            if self.subject.concerns(event) {
                missing.push(position);
            }
        }
        missing.into_iter().rev().for_each(|position| events.positions.push_front(position));
        events.complete_from = until.min(from);
    }

    fn forget_before(&self, start: u64) {
        if let Some(events) = &self.events {
            events.lock().forget_before(start);
        }
    }
}

impl GroupEvents {
    fn forget_before(&mut self, start: u64) {
        while let Some(position) = self.positions.pop_front_if(|position| *position < start) {
            self.lost_before = position + 1;
        }
        if self.positions.is_empty() && 64 < self.positions.capacity() {
            self.positions.shrink_to_fit();
        }
    }
}

// === impl Groups ===

impl Groups {
    /// The group of a watcher that begins at a position of the ring.
    pub(crate) fn join(&mut self, scope: &Scope, interest: &Interest, from: u64, ring: &Ring) -> Arc<Group> {
        let subject = WatchTarget::new(scope, interest);
        let selected = match scope {
            Scope::All => &mut self.everywhere,
            Scope::Namespace(namespace) => self.namespaces.entry(namespace.clone()).or_default(),
        };
        let selector = subject.selector.clone();
        let new = || Group::new(subject, ring);
        let group = match selector {
            Selector::All => selected.all.get_or_insert_with(new),
            Selector::Field(field, text) => selected.fields.entry(field).or_default().entry(text).or_insert_with(new),
            Selector::Label(label, value) => selected.labels.entry(label).or_default().entry(value).or_insert_with(new),
            Selector::Name(name) => selected.names.entry(name).or_insert_with(new),
        };
        let group = group.clone();
        group.n_watchers.fetch_add(1, Ordering::Relaxed);
        group.complete(from, ring);
        group
    }

    /// Removes a watcher from its group, and the group with its last watcher.
    pub(crate) fn leave(&mut self, group: &Group) {
        if 1 < group.n_watchers.fetch_sub(1, Ordering::Relaxed) {
            return;
        }
        match &group.subject.scope {
            Scope::All => self.everywhere.remove(&group.subject.selector),
            Scope::Namespace(namespace) => {
                if let Some(selected) = self.namespaces.get_mut(namespace) {
                    selected.remove(&group.subject.selector);
                    if selected.is_empty() {
                        self.namespaces.remove(namespace);
                    }
                }
            }
        }
    }

    /// Adds an event to the groups that it concerns, and these groups to `woken`, some more than once.
    pub(crate) fn push(&self, event: &Event, position: u64, woken: &mut Vec<Arc<Group>>) {
        let in_namespace = event.object.key.namespace.as_ref().and_then(|namespace| self.namespaces.get(namespace));
        for selected in [Some(&self.everywhere), in_namespace].into_iter().flatten() {
            selected.each_concerned(event, |group| {
                if group.push(position) {
                    woken.push(group.clone());
                }
            });
        }
    }

    /// Drops the positions of events that the ring has dropped.
    pub(crate) fn forget_before(&self, start: u64) {
        self.each(|group| group.forget_before(start));
    }

    /// Wakes all watchers.
    pub(crate) fn wake_all(&self) {
        self.each(|group| group.published.notify_waiters());
    }

    fn each(&self, mut visit: impl FnMut(&Arc<Group>)) {
        self.everywhere.each(&mut visit);
        self.namespaces.values().for_each(|selected| selected.each(&mut visit));
    }
}

// === impl Selected ===

impl Selected {
    fn is_empty(&self) -> bool {
        self.all.is_none() && self.fields.is_empty() && self.labels.is_empty() && self.names.is_empty()
    }

    fn remove(&mut self, selector: &Selector) {
        match selector {
            Selector::All => self.all = None,
            Selector::Field(field, text) => remove(&mut self.fields, field, text),
            Selector::Label(label, value) => remove(&mut self.labels, label, value),
            Selector::Name(name) => drop(self.names.remove(name)),
        }
    }

    /// Visits the groups that an event in the scope concerns, some more than once.
    fn each_concerned(&self, event: &Event, mut visit: impl FnMut(&Arc<Group>)) {
        self.all.iter().for_each(&mut visit);
        self.names.get(&event.object.key.name).into_iter().for_each(&mut visit);
        for object in [Some(&event.object), event.previous.as_ref()].into_iter().flatten() {
            let meta = object.meta();
            for (field, groups) in &self.fields {
                match meta.field(field) {
                    Some(text) => groups.get(text).into_iter().for_each(&mut visit),
                    None => groups.values().for_each(&mut visit),
                }
            }
            if !self.labels.is_empty() {
                let group = |(label, value)| self.labels.get(label).and_then(|groups| groups.get(value));
                meta.labels().filter_map(group).for_each(&mut visit);
            }
        }
    }

    fn each(&self, visit: &mut impl FnMut(&Arc<Group>)) {
        let nested = self.fields.values().chain(self.labels.values()).flat_map(HashMap::values);
        nested.chain(self.names.values()).chain(&self.all).for_each(visit);
    }
}

fn remove(groups: &mut HashMap<Box<str>, HashMap<Box<str>, Arc<Group>>>, name: &str, text: &str) {
    if let Some(inner) = groups.get_mut(name) {
        inner.remove(text);
        if inner.is_empty() {
            groups.remove(name);
        }
    }
}
