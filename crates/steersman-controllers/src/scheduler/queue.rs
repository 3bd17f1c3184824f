//! The scheduling queue: Pods that are ready, Pods in back-off, and Pods that wait for an event.
//!
//! Follows `pkg/scheduler/backend/queue`: Pods are ordered by priority, then by age. A Pod that found no node is tried
//! again after an event that may help ([`hints`](crate::scheduler::hints)), or after five minutes. While no other Pod
//! waits, its back-off is skipped, unless the last attempt failed because of the server.

use crate::scheduler::cluster::pod::Pending;
use crate::scheduler::configuration::Backoff;
use crate::scheduler::plugins::filters::PluginSet;
use crate::shared::sparse::Sparse;
use hashbrown::{HashMap, HashSet};
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use steersman::ObjectKey;
use tokio::time::Instant;

/// The time after which a Pod is tried again without any event.
const UNSCHEDULABLE_MAX: Duration = Duration::from_secs(5 * 60);

/// Pods without a node, by key.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    entries: HashMap<ObjectKey, Entry>,
    active: BTreeSet<(Reverse<i32>, Instant, u64, ObjectKey)>,
    /// Pods that found no node and may be tried again after their back-off.
    backoff: BTreeSet<(Instant, Reverse<i32>, u64, ObjectKey)>,
    /// Pods whose last attempt failed because of the server.
    errors: BTreeSet<(Instant, u64, ObjectKey)>,
    /// Pods that wait for an event, by the plugins that rejected them.
    unschedulable: HashMap<PluginSet, HashSet<ObjectKey>>,
    /// The time at which each Pod has waited for an event for long enough.
    leftover: BTreeSet<(Instant, u64, ObjectKey)>,
    n_added: u64,
    wait: Backoff,
}

/// A Pod in the queue.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) pending: Arc<Pending>,
    /// The node on which room is being made for it.
    pub(crate) nominated: Option<Arc<str>>,
    /// The plugins that rejected it in the last attempt.
    pub(crate) plugins: PluginSet,
    place: SubQueue,
    /// When it was added, or put back after an attempt.
    added: Instant,
    number: u64,
    n_unschedulable: u32,
    n_errors: u32,
    /// The number of requests in flight about it, which must end before the next attempt.
    n_requests: u32,
    /// Whether it becomes active once these requests have ended.
    wakes: bool,
}

/// The part of the queue that a Pod is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum SubQueue {
    Active,
    Backoff(Instant),
    /// It has a node, and its binding is in flight.
    Binding,
    Error(Instant),
    Gated,
    Unschedulable {
        until: Instant,
    },
}

/// The outcome of a failed attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Attempt {
    Failed,
    Unschedulable(PluginSet),
}

// === impl Queue ===

impl Queue {
    /// An empty queue in which Pods wait for `wait` after an attempt.
    pub(crate) fn new(wait: Backoff) -> Queue {
        Queue { wait, ..Queue::default() }
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// Adds a new Pod.
    pub(crate) fn add(&mut self, pending: Arc<Pending>, now: Instant) {
        let key = pending.pod.key.clone();
        self.remove(&key);
        self.n_added += 1;
        let entry = Entry {
            nominated: pending.nominated.clone(),
            plugins: PluginSet::default(),
            place: SubQueue::Gated,
            added: now,
            number: self.n_added,
            n_unschedulable: 0,
            n_errors: 0,
            n_requests: 0,
            wakes: false,
            pending,
        };
        let is_gated = entry.pending.is_gated;
        self.entries.insert(key.clone(), entry);
        if !is_gated {
            self.put(&key, SubQueue::Active);
        }
    }

    /// Updates a Pod. It stays in its part of the queue.
    pub(crate) fn update(&mut self, pending: Arc<Pending>) {
        let key = pending.pod.key.clone();
        let Some(place) = self.entries.get(&key).map(|entry| entry.place) else { return };
        self.take_out(&key);
        if let Some(entry) = self.entries.get_mut(&key) {
            // A nomination by this scheduler is not in the object yet.
            let is_ours = entry.pending.nominated.is_none() && pending.nominated.is_none();
            if !is_ours {
                entry.nominated.clone_from(&pending.nominated);
            }
            entry.pending = pending;
        }
        self.put(&key, place);
    }

    /// Sets or clears the nominated node of a Pod.
    pub(crate) fn nominate(&mut self, key: &ObjectKey, node: Option<&Arc<str>>) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.nominated = node.cloned();
        }
    }

    pub(crate) fn remove(&mut self, key: &ObjectKey) -> Option<Entry> {
        self.take_out(key);
        let removed = self.entries.remove(key);
        self.entries.shrink_if_sparse();
        removed
    }

    /// Takes the next Pod to find a node for. It is not returned again until it is put back.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<Arc<Pending>> {
        self.wake(now);
        let key = match self.active.first() {
            Some((.., key)) => key.clone(),
            None => self.backoff.first()?.3.clone(),
        };
        self.take_out(&key);
        let entry = self.entries.get_mut(&key)?;
        entry.place = SubQueue::Binding;
        Some(Arc::clone(&entry.pending))
    }

    /// Puts a Pod back after a failed attempt.
    pub(crate) fn put_back(&mut self, key: &ObjectKey, attempt: Attempt, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.added = now;
        let place = match attempt {
            Attempt::Failed => {
                entry.n_errors = entry.n_errors.saturating_add(1);
                entry.plugins = PluginSet::default();
                SubQueue::Error(now + self.wait.after(entry.n_errors))
            }
            Attempt::Unschedulable(plugins) => {
                entry.n_unschedulable = entry.n_unschedulable.saturating_add(1);
                entry.n_errors = 0;
                entry.plugins = plugins;
                SubQueue::Unschedulable { until: now + UNSCHEDULABLE_MAX }
            }
        };
        self.put(key, place);
    }

    /// Records that a request about a Pod is in flight: the Pod is not tried before it has ended.
    pub(crate) fn set_busy(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.n_requests += 1;
        }
    }

    /// Records that a request about a Pod has ended.
    pub(crate) fn set_idle(&mut self, key: &ObjectKey, uid: &str, now: Instant) {
        let Some(entry) = self.entries.get_mut(key).filter(|entry| *entry.pending.pod.uid == *uid) else { return };
        entry.n_requests = entry.n_requests.saturating_sub(1);
        if entry.n_requests == 0 && std::mem::take(&mut entry.wakes) {
            self.activate(key, now);
        }
    }

    /// Lets a Pod be tried again after an event that may help it.
    pub(crate) fn activate(&mut self, key: &ObjectKey, now: Instant) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        if 0 < entry.n_requests {
            entry.wakes = true;
            return;
        }
        if entry.pending.is_gated || !matches!(entry.place, SubQueue::Gated | SubQueue::Unschedulable { .. }) {
            return;
        }
        let until = entry.added + self.wait.after(entry.n_unschedulable);
        let place = if now < until { SubQueue::Backoff(until) } else { SubQueue::Active };
        self.put(key, place);
    }

    /// Pods that wait for an event, by the plugins that rejected them.
    pub(crate) fn unschedulable(&self) -> impl Iterator<Item = (PluginSet, &HashSet<ObjectKey>)> {
        self.unschedulable.iter().map(|(plugins, keys)| (*plugins, keys))
    }

    /// Whether a Pod waits for an event.
    pub(crate) fn has_unschedulable(&self) -> bool {
        !self.unschedulable.is_empty()
    }

    /// Whether [`Queue::pop`] would return a Pod now.
    pub(crate) fn is_ready(&self, now: Instant) -> bool {
        !self.active.is_empty() || !self.backoff.is_empty() || self.next_wake().is_some_and(|at| at <= now)
    }

    /// When the next Pod is due without an event.
    pub(crate) fn next_wake(&self) -> Option<Instant> {
        let error = self.errors.first().map(|(at, ..)| *at);
        let leftover = self.leftover.first().map(|(at, ..)| *at);
        error.into_iter().chain(leftover).min()
    }

    /// Activates the Pods whose waiting time is over.
    fn wake(&mut self, now: Instant) {
        while let Some((at, _, key)) = self.errors.first()
            && *at <= now
        {
            let key = key.clone();
            self.put(&key, SubQueue::Active);
        }
        while let Some((at, _, key)) = self.backoff.first().map(|(at, _, number, key)| (at, number, key))
            && *at <= now
        {
            let key = key.clone();
            self.put(&key, SubQueue::Active);
        }
        while let Some((at, _, key)) = self.leftover.first()
            && *at <= now
        {
            let key = key.clone();
            self.put(&key, SubQueue::Unschedulable { until: now + UNSCHEDULABLE_MAX });
            self.activate(&key, now);
        }
    }

    fn put(&mut self, key: &ObjectKey, place: SubQueue) {
        self.take_out(key);
        let Some(entry) = self.entries.get_mut(key) else { return };
        // A Pod that may be tried first waits until the requests about it have ended.
        if 0 < entry.n_requests && matches!(place, SubQueue::Active | SubQueue::Backoff(_)) {
            entry.wakes = true;
            return;
        }
        entry.place = place;
        let (priority, number) = (Reverse(entry.pending.pod.priority), entry.number);
        match place {
            SubQueue::Active => {
                self.active.insert((priority, entry.added, number, key.clone()));
            }
            SubQueue::Backoff(until) => {
                self.backoff.insert((until, priority, number, key.clone()));
            }
            SubQueue::Error(until) => {
                self.errors.insert((until, number, key.clone()));
            }
            SubQueue::Unschedulable { until } => {
                self.unschedulable.entry(entry.plugins).or_default().insert(key.clone());
                self.leftover.insert((until, number, key.clone()));
            }
            SubQueue::Binding | SubQueue::Gated => {}
        }
    }

    fn take_out(&mut self, key: &ObjectKey) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let (priority, number) = (Reverse(entry.pending.pod.priority), entry.number);
        match entry.place {
            SubQueue::Active => {
                self.active.remove(&(priority, entry.added, number, key.clone()));
            }
            SubQueue::Backoff(until) => {
                self.backoff.remove(&(until, priority, number, key.clone()));
            }
            SubQueue::Error(until) => {
                self.errors.remove(&(until, number, key.clone()));
            }
            SubQueue::Unschedulable { until } => {
                if let Some(keys) = self.unschedulable.get_mut(&entry.plugins) {
                    keys.remove(key);
                    if keys.is_empty() {
                        self.unschedulable.remove(&entry.plugins);
                    }
                }
                self.leftover.remove(&(until, number, key.clone()));
            }
            SubQueue::Binding | SubQueue::Gated => {}
        }
        entry.place = SubQueue::Gated;
    }
}

// === impl Entry ===

impl Entry {
    /// Whether an attempt or a binding is in progress.
    pub(crate) fn is_binding(&self) -> bool {
        self.place == SubQueue::Binding
    }
}
