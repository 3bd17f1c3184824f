//! The scheduler's state machine: it takes events, and returns the requests to send.
//!
//! Called by the scheduler's task and by the handlers of its informers, one at a time. The time is passed in, so that
//! tests control it.

mod answers;
mod decisions;
mod extension;

pub(crate) use crate::scheduler::state::extension::{About, Agreed, Allowed, OnNode, Question};

use crate::scheduler::cluster::node::NodeFacts;
use crate::scheduler::cluster::pod::{Pending, Placed};
use crate::scheduler::cluster::{Budget, Cluster, OwnerSelectors};
use crate::scheduler::configuration::NAME;
use crate::scheduler::configuration::{Configuration, Extender, Profile};
use crate::scheduler::cycle::Nominations;
use crate::scheduler::hints::{self, Event};
use crate::scheduler::plugins::filters::Plugin;
use crate::scheduler::plugins::resources::Requests;
use crate::scheduler::plugins::volumes::VolumePlan;
use crate::scheduler::queue::Queue;
use crate::scheduler::state::extension::Extending;
use crate::shared::labels::{Labels, Selector};
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use std::collections::VecDeque;
use std::sync::Arc;
use steersman::ObjectKey;
use tokio::time::Instant;

/// Why the condition `PodScheduled` is false.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Reason {
    SchedulerError,
    Unschedulable,
}

/// A Pod, as distinct from a later one of the same name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct PodRef {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Arc<str>,
    pub(crate) generation: i64,
}

/// A request for the scheduler's task to send. `scheduler` is the name of the Pod's profile, which Events are reported by.
///
/// Two requests about one Pod may be in flight at the same time: the reason why it has no node is reported during a
/// preemption. A Pod is not tried again before all requests about it have been answered.
#[derive(Debug)]
pub(crate) enum Effect {
    /// The outcome goes to [`State::bound`]. `binder` binds the Pod in place of the scheduler.
    Bind { pod: PodRef, node: Arc<str>, scheduler: Arc<str>, binder: Option<Arc<Extender>> },
    /// The outcome goes to [`State::volumes_written`].
    BindVolumes { pod: PodRef, node: Arc<str>, plan: VolumePlan },
    /// The outcome goes to [`State::extended`].
    Extend(Question),
    /// The outcome goes to [`State::preempted`].
    Preempt { pod: PodRef, node: Arc<str>, victims: Vec<PodRef>, denominated: Vec<PodRef>, scheduler: Arc<str> },
    /// The outcome goes to [`State::finished`].
    Report(Report),
    /// The Pod is being deleted: an Event reports that it is not scheduled.
    Skip { pod: PodRef, scheduler: Arc<str> },
}

/// The reason why a Pod has no node, to report.
#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) pod: PodRef,
    pub(crate) reason: Reason,
    pub(crate) message: String,
    /// Whether the condition was false before; `None` if the condition is up to date.
    pub(crate) condition: Option<WasFalse>,
    /// The node to write as nominated; empty for none.
    pub(crate) nominated: Option<Arc<str>>,
    pub(crate) scheduler: Arc<str>,
}

/// Whether a condition was false before, so that its transition time is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum WasFalse {
    No,
    Yes,
}

pub(crate) struct State {
    configuration: Configuration,
    cluster: Cluster,
    queue: Queue,
    nominations: Nominations,
    effects: VecDeque<Effect>,
    /// Assumed Pods that wait for their claims to be bound.
    volumes: HashMap<ObjectKey, WaitingForVolumes>,
    /// The decision that waits for the answer of extenders. No other begins meanwhile.
    extending: Option<Extending>,
    /// The index of the node where the next search begins.
    start: usize,
    random: StdRng,
}

#[derive(Debug)]
struct WaitingForVolumes {
    pod: PodRef,
    node: Arc<str>,
    scheduler: Arc<str>,
    binder: Option<Arc<Extender>>,
    plan: VolumePlan,
    deadline: Instant,
    is_written: bool,
}

impl PodRef {
    fn of(pod: &Placed) -> PodRef {
        PodRef { key: pod.key.clone(), uid: Arc::clone(&pod.uid), generation: pod.generation }
    }
}

impl Reason {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Reason::SchedulerError => "SchedulerError",
            Reason::Unschedulable => "Unschedulable",
        }
    }
}

// === impl State: events ===

impl State {
    /// `seed` determines the choice among equally good nodes.
    pub(crate) fn new(configuration: Configuration, owner_selectors: OwnerSelectors, seed: u64) -> State {
        State {
            cluster: Cluster::new(owner_selectors),
            queue: Queue::new(configuration.backoff()),
            configuration,
            nominations: Nominations::new(),
            effects: VecDeque::new(),
            volumes: HashMap::new(),
            extending: None,
            start: 0,
            random: StdRng::seed_from_u64(seed),
        }
    }

    pub(crate) fn node_changed(&mut self, node: &Node, now: Instant) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let facts = Arc::new(NodeFacts::read(node));
        match self.cluster.set_node(name, Arc::clone(&facts)) {
            None => self.notify(&Event::NodeAdded { name, facts: &facts }, now),
            Some(old) if old != facts => self.notify(&Event::NodeChanged { name, old: &old, facts: &facts }, now),
            Some(_) => {}
        }
    }

    pub(crate) fn node_gone(&mut self, name: &str, now: Instant) {
        let facts = self.cluster.node(name).and_then(|node| node.facts.clone());
        self.cluster.remove_node(name);
        if let Some(facts) = facts {
            self.notify(&Event::NodeDeleted { facts: &facts }, now);
        }
    }

    pub(crate) fn pod_changed(&mut self, pod: &Pod, now: Instant) {
        let key = ObjectKey::of(pod);
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Failed" | "Succeeded")) {
            self.pod_gone(&key, now);
            return;
        }
        match spec.and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty()) {
            Some(node) => self.placed_changed(&key, pod, node, now),
            None => {
                let scheduler = spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(NAME);
                if let Some(profile) = self.configuration.profile(scheduler).cloned() {
                    self.pending_changed(&key, pod, &profile, now);
                }
            }
        }
    }

    fn read(&mut self, pod: &Pod) -> Arc<Placed> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let identity = self.cluster.identity(namespace, pod.metadata.labels.as_ref());
        Arc::new(Placed::read(pod, identity))
    }

    fn placed_changed(&mut self, key: &ObjectKey, pod: &Pod, node: &str, now: Instant) {
        self.forget_pending(key);
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let is_assumed = self.cluster.is_assumed(key, uid);
        if !is_assumed && self.cluster.pod(key).is_some_and(|known| is_same(known, pod)) {
            return;
        }
        let mut placed = self.read(pod);
        if let Some(known) = self.cluster.pod(key).filter(|known| known.uid == placed.uid && known.is_deleting) {
            placed = Arc::new(Arc::unwrap_or_clone(placed).with_deletion_of(known));
        }
        let old = self.cluster.set_pod(&placed, node);
        match old {
            Some(old) if old.uid != placed.uid => {
                // The deletion of an earlier Pod of this name was missed.
                self.notify(&Event::PodDeleted(&old), now);
                self.notify(&Event::PodAdded(&placed), now);
            }
            Some(old) if !is_assumed => self.notify(&Event::PodChanged { old: &old, new: &placed }, now),
            None | Some(_) => self.notify(&Event::PodAdded(&placed), now),
        }
    }

    fn pending_changed(&mut self, key: &ObjectKey, pod: &Pod, profile: &Arc<Profile>, now: Instant) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if self.cluster.pod(key).is_some_and(|known| *known.uid != *uid) {
            // The deletion of an earlier Pod of this name was missed.
            self.pod_gone(key, now);
        }
        let placed = self.read(pod);
        let pending = Arc::new(Pending::read(pod, placed, profile));
        if self.cluster.is_assumed(key, uid) {
            if pending.pod.is_deleting {
                // Its resources are free for others, whatever the outcome of the binding.
                self.release(key, now);
            }
            self.queue.update(pending);
            return;
        }
        let old = self.queue.get(key).filter(|entry| *entry.pending.pod.uid == *uid);
        match old.map(|entry| (Arc::clone(&entry.pending), entry.plugins)) {
            None => {
                self.forget_pending(key);
                let nominated = pending.nominated.clone();
                self.queue.add(Arc::clone(&pending), now);
                self.set_nominated(&pending.pod, nominated.as_ref());
            }
            Some((old, plugins)) => {
                let old_node = self.queue.get(key).and_then(|entry| entry.nominated.clone());
                self.queue.update(Arc::clone(&pending));
                let node = self.queue.get(key).and_then(|entry| entry.nominated.clone());
                self.set_nominated(&pending.pod, node.as_ref());
                if let Some(extending) = self.extending.as_mut().filter(|extending| *extending.pod.uid == *uid) {
                    extending.has_missed_event |= hints::helps_itself(&old, &pending, Plugin::Extender.into());
                }
                if (old.is_gated && !pending.is_gated) || hints::helps_itself(&old, &pending, plugins) {
                    self.queue.activate(key, now);
                }
                if old_node.is_some() && old_node != node {
                    self.notify(&Event::PodDeleted(&old.pod), now);
                }
            }
        }
    }

    /// Handles a Pod that is gone, or has terminated.
    pub(crate) fn pod_gone(&mut self, key: &ObjectKey, now: Instant) {
        let was_nominated = self.queue.get(key).is_some_and(|entry| entry.nominated.is_some());
        let pending = self.forget_pending(key);
        match self.cluster.remove_pod(key) {
            Some((pod, _)) => self.notify(&Event::PodDeleted(&pod), now),
            None => {
                if let Some(pending) = pending.filter(|_| was_nominated) {
                    self.notify(&Event::PodDeleted(&pending.pod), now);
                }
            }
        }
    }

    fn forget_pending(&mut self, key: &ObjectKey) -> Option<Arc<Pending>> {
        let entry = self.queue.remove(key)?;
        self.clear_nomination(&entry.pending.pod.uid);
        if let Some(waiting) = self.volumes.remove(key) {
            self.cluster.volumes.forget(&waiting.plan);
        }
        Some(entry.pending)
    }

    /// Removes a Pod from the node on which it was assumed.
    fn release(&mut self, key: &ObjectKey, now: Instant) {
        if let Some((pod, _)) = self.cluster.remove_pod(key) {
            self.notify(&Event::PodDeleted(&pod), now);
        }
    }

    pub(crate) fn namespace_changed(&mut self, name: &str, labels: Option<Labels>) {
        self.cluster.set_namespace(name, labels);
    }

    pub(crate) fn service_changed(&mut self, key: &ObjectKey, selector: Option<Labels>) {
        self.cluster.set_service(key, selector);
    }

    pub(crate) fn budget_changed(&mut self, key: &ObjectKey, budget: Option<&PodDisruptionBudget>) {
        let read = |budget: &PodDisruptionBudget| {
            let status = budget.status.as_ref();
            let disrupted = status.and_then(|status| status.disrupted_pods.as_ref());
            Budget {
                namespace: key.namespace().unwrap_or_default().to_owned(),
                selector: Selector::read(budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())),
                allowed: status.and_then(|status| status.disruptions_allowed).map_or(0, i64::from),
                disrupted: disrupted.into_iter().flat_map(|pods| pods.keys().cloned()).collect(),
            }
        };
        match budget.map(read) {
            Some(budget) => self.cluster.budgets.insert(key.clone(), budget),
            None => self.cluster.budgets.remove(key),
        };
    }

    pub(crate) fn claim_changed(&mut self, key: &ObjectKey, claim: Option<&PersistentVolumeClaim>, now: Instant) {
        self.cluster.volumes.set_claim(key, claim);
        if claim.is_some() {
            self.notify(&Event::Claim(key), now);
        }
        self.check_volumes(now);
    }

    pub(crate) fn volume_changed(&mut self, name: &str, volume: Option<&PersistentVolume>, now: Instant) {
        self.cluster.volumes.set_volume(name, volume);
        if volume.is_some() {
            self.notify(&Event::Volume, now);
        }
        self.check_volumes(now);
    }

    /// Applies a change of storage classes, drivers or the like, and wakes the Pods that `event` may help.
    pub(crate) fn storage_changed(
        &mut self,
        event: &Event<'_>,
        now: Instant,
        change: impl FnOnce(&mut crate::scheduler::plugins::volumes::Volumes),
    ) {
        change(&mut self.cluster.volumes);
        self.notify(event, now);
    }

    /// Wakes the Pods that an event may help.
    fn notify(&mut self, event: &Event<'_>, now: Instant) {
        if let Some(extending) = &mut self.extending {
            extending.has_missed_event = true;
        }
        if !self.queue.has_unschedulable() {
            return;
        }
        let mut helped: Vec<ObjectKey> = Vec::new();
        for (plugins, keys) in self.queue.unschedulable().filter(|(plugins, _)| event.concerns(*plugins)) {
            let entries = keys.iter().filter_map(|key| self.queue.get(key));
            let helps = entries.filter(|entry| event.helps(&self.cluster, &entry.pending, plugins));
            helped.extend(helps.map(|entry| entry.pending.pod.key.clone()));
        }
        for key in helped {
            self.queue.activate(&key, now);
        }
    }

    fn set_nominated(&mut self, pod: &Arc<Placed>, node: Option<&Arc<str>>) {
        self.clear_nomination(&pod.uid);
        if let Some(node) = node {
            self.nominations.entry(Arc::clone(node)).or_default().push(Arc::clone(pod));
        }
    }

    fn clear_nomination(&mut self, uid: &str) {
        if self.nominations.is_empty() {
            return;
        }
        self.nominations.retain(|_, pods| {
            pods.retain(|pod| *pod.uid != *uid);
            !pods.is_empty()
        });
    }
}

/// Whether the relevant fields of a Pod on a node are unchanged.
fn is_same(known: &Placed, pod: &Pod) -> bool {
    static NONE: Labels = Labels::new();
    let metadata = &pod.metadata;
    let status = pod.status.as_ref();
    let has_started = || status.is_some_and(|status| status.start_time.is_some());
    Some(&*known.uid) == metadata.uid.as_deref()
        && metadata.generation == Some(known.generation)
        && known.is_deleting == metadata.deletion_timestamp.is_some()
        && !known.is_deleting
        && known.identity.labels == *metadata.labels.as_ref().unwrap_or(&NONE)
        && (known.started == i128::MAX) != has_started()
        // The end of a resize shows in the status only, which does not change the generation.
        && known.requests == Requests::read(pod)
}
