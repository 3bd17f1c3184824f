//! The scheduler without its requests: events go in, and what is to be done comes out.
//!
//! Called by the task of the scheduler and by the handlers of its informers, one at a time. Time is passed in, so that tests decide
//! what time it is.

use crate::labels::{Labels, Selector};
use crate::scheduler::cluster::{Budget, Cluster, OwnerSelectors};
use crate::scheduler::cycle::{Around, Choice, Cycle, Decision, Diagnosis, Nominations, Plugin, PluginSet};
use crate::scheduler::hints::{self, Event};
use crate::scheduler::node::NodeFacts;
use crate::scheduler::pod::{NAME, Pending, Placed, Scheduled};
use crate::scheduler::preempt::{self, NoPreemption, Nomination, Preemption};
use crate::scheduler::queue::{Attempt, Queue};
use crate::scheduler::volumes::VolumePlan;
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use steersman::ObjectKey;
use tokio::time::Instant;

/// How long a claim may take to be bound.
const VOLUMES_MAX: Duration = Duration::from_secs(600);

const NO_NODES: &str = "no nodes available to schedule pods";

/// Why the condition `PodScheduled` is false.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Reason {
    SchedulerError,
    Unschedulable,
}

/// One Pod, and no later one of the same name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct PodRef {
    pub(super) key: ObjectKey,
    pub(super) uid: Arc<str>,
    pub(super) generation: i64,
}

/// What the task of the scheduler has to request. About one Pod, they come one after the other.
#[derive(Debug, PartialEq)]
pub(super) enum Effect {
    /// Answered with [`State::bound`].
    Bind { pod: PodRef, node: Arc<str> },
    /// Answered with [`State::volumes_written`].
    BindVolumes { pod: PodRef, node: Arc<str>, plan: VolumePlan },
    /// Answered with [`State::finished`].
    Preempt { pod: PodRef, node: Arc<str>, victims: Vec<PodRef>, denominated: Vec<PodRef> },
    /// Answered with [`State::finished`].
    Report(Report),
    /// The Pod is being deleted: an Event says that it gets no node.
    Skip { pod: PodRef },
}

/// That a Pod has no node, and why.
#[derive(Debug, PartialEq)]
pub(super) struct Report {
    pub(super) pod: PodRef,
    pub(super) reason: Reason,
    pub(super) message: String,
    /// `None`: the condition says so already. Otherwise whether it was false before.
    pub(super) condition: Option<WasFalse>,
    /// The node to write as nominated; empty for none.
    pub(super) nominated: Option<Arc<str>>,
}

/// Whether a condition was false before, so that the time of its last transition stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WasFalse {
    No,
    Yes,
}

pub(super) struct State {
    cluster: Cluster,
    queue: Queue,
    nominations: Nominations,
    effects: VecDeque<Effect>,
    /// Pods that have a node and wait for their claims to be bound.
    volumes: HashMap<ObjectKey, WaitingForVolumes>,
    /// Where in the order of nodes the next search begins.
    start: usize,
    random: StdRng,
}

#[derive(Debug)]
struct WaitingForVolumes {
    pod: PodRef,
    node: Arc<str>,
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
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Reason::SchedulerError => "SchedulerError",
            Reason::Unschedulable => "Unschedulable",
        }
    }
}

// === impl State: events ===

impl State {
    /// `seed` decides among nodes that are equally good.
    pub(super) fn new(owner_selectors: OwnerSelectors, seed: u64) -> State {
        State {
            cluster: Cluster::new(owner_selectors),
            queue: Queue::default(),
            nominations: Nominations::new(),
            effects: VecDeque::new(),
            volumes: HashMap::new(),
            start: 0,
            random: StdRng::seed_from_u64(seed),
        }
    }

    pub(super) fn node_changed(&mut self, node: &Node, now: Instant) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let facts = Arc::new(NodeFacts::read(node));
        match self.cluster.set_node(name, Arc::clone(&facts)) {
            None => self.notify(&Event::NodeAdded { name, facts: &facts }, now),
            Some(old) if old != facts => self.notify(&Event::NodeChanged { name, old: &old, facts: &facts }, now),
            Some(_) => {}
        }
    }

    pub(super) fn node_gone(&mut self, name: &str, now: Instant) {
        let facts = self.cluster.node(name).and_then(|node| node.facts.clone());
        self.cluster.remove_node(name);
        if let Some(facts) = facts {
            self.notify(&Event::NodeDeleted { facts: &facts }, now);
        }
    }

    pub(super) fn pod_changed(&mut self, pod: &Pod, now: Instant) {
        let key = ObjectKey::of(pod);
        let spec = pod.spec.as_ref();
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if matches!(phase, Some("Failed" | "Succeeded")) {
            self.pod_gone(&key, now);
            return;
        }
        match spec.and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty()) {
            Some(node) => self.placed_changed(&key, pod, node, now),
            None if spec.and_then(|spec| spec.scheduler_name.as_deref()).unwrap_or(NAME) == NAME => {
                self.pending_changed(&key, pod, now);
            }
            None => {}
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
        let placed = self.read(pod);
        let old = self.cluster.set_pod(&placed, node);
        match old {
            Some(old) if old.uid != placed.uid => {
                // The deletion of an earlier Pod of this name was not seen.
                self.notify(&Event::PodDeleted(&old), now);
                self.notify(&Event::PodAdded(&placed), now);
            }
            Some(old) if !is_assumed => self.notify(&Event::PodChanged { old: &old, new: &placed }, now),
            None | Some(_) => self.notify(&Event::PodAdded(&placed), now),
        }
    }

    fn pending_changed(&mut self, key: &ObjectKey, pod: &Pod, now: Instant) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if self.cluster.pod(key).is_some_and(|known| *known.uid != *uid) {
            // The deletion of an earlier Pod of this name was not seen.
            self.pod_gone(key, now);
        }
        let placed = self.read(pod);
        let pending = Arc::new(Pending::read(pod, placed));
        if self.cluster.is_assumed(key, uid) {
            if pending.pod.is_deleting {
                // Its room is free for others, whatever becomes of the binding.
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
                if (old.is_gated && !pending.is_gated) || hints::helps_itself(&old, &pending, plugins) {
                    self.queue.activate(key, now);
                }
                if old_node.is_some() && old_node != node {
                    self.notify(&Event::PodDeleted(&old.pod), now);
                }
            }
        }
    }

    /// A Pod is gone, or has ended.
    pub(super) fn pod_gone(&mut self, key: &ObjectKey, now: Instant) {
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

    /// Takes a Pod off the node that it was assumed to be on.
    fn release(&mut self, key: &ObjectKey, now: Instant) {
        if let Some((pod, _)) = self.cluster.remove_pod(key) {
            self.notify(&Event::PodDeleted(&pod), now);
        }
    }

    pub(super) fn namespace_changed(&mut self, name: &str, labels: Option<Labels>) {
        self.cluster.set_namespace(name, labels);
    }

    pub(super) fn service_changed(&mut self, key: &ObjectKey, selector: Option<Labels>) {
        self.cluster.set_service(key, selector);
    }

    pub(super) fn budget_changed(&mut self, key: &ObjectKey, budget: Option<&PodDisruptionBudget>) {
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

    pub(super) fn claim_changed(&mut self, key: &ObjectKey, claim: Option<&PersistentVolumeClaim>, now: Instant) {
        self.cluster.volumes.set_claim(key, claim);
        if claim.is_some() {
            self.notify(&Event::Claim(key), now);
        }
        self.check_volumes(now);
    }

    pub(super) fn volume_changed(&mut self, name: &str, volume: Option<&PersistentVolume>, now: Instant) {
        self.cluster.volumes.set_volume(name, volume);
        if volume.is_some() {
            self.notify(&Event::Volume, now);
        }
        self.check_volumes(now);
    }

    /// Changes what is known about classes and drivers, which may help those that `event` helps.
    pub(super) fn storage_changed(
        &mut self,
        event: &Event<'_>,
        now: Instant,
        change: impl FnOnce(&mut crate::scheduler::volumes::Volumes),
    ) {
        change(&mut self.cluster.volumes);
        self.notify(event, now);
    }

    /// Lets those Pods try again that an event may help.
    fn notify(&mut self, event: &Event<'_>, now: Instant) {
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

/// Whether a Pod on a node has not changed in what matters here.
fn is_same(known: &Placed, pod: &Pod) -> bool {
    static NONE: Labels = Labels::new();
    let metadata = &pod.metadata;
    let status = pod.status.as_ref();
    let resizes = || {
        status
            .into_iter()
            .flat_map(|status| status.conditions.iter().flatten())
            .any(|one| one.type_.starts_with("PodResize"))
    };
    let has_started = || status.is_some_and(|status| status.start_time.is_some());
    Some(&*known.uid) == metadata.uid.as_deref()
        && metadata.generation == Some(known.generation)
        && known.is_deleting == metadata.deletion_timestamp.is_some()
        && !known.is_deleting
        && known.identity.labels == *metadata.labels.as_ref().unwrap_or(&NONE)
        && (known.started == i128::MAX) != has_started()
        && !resizes()
}

// === impl State: decisions ===

impl State {
    /// What to do next; `None` if there is nothing before [`State::next_wake`] or the next event.
    pub(super) fn next(&mut self, now: Instant) -> Option<Effect> {
        self.expire_volumes(now);
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            let pending = self.queue.pop(now)?;
            let pod = PodRef::of(&pending.pod);
            if pending.pod.is_deleting {
                return Some(Effect::Skip { pod });
            }
            self.attempt(&pending, now);
        }
    }

    /// Whether [`State::next`] has something to do now.
    pub(super) fn is_ready(&self, now: Instant) -> bool {
        !self.effects.is_empty() || self.queue.is_ready(now)
    }

    /// When there is something to do without any event.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let volumes = self.volumes.values().map(|waiting| waiting.deadline).min();
        volumes.into_iter().chain(self.queue.next_wake()).min()
    }

    /// Tries to find a node for a Pod.
    fn attempt(&mut self, pending: &Arc<Pending>, now: Instant) {
        let nominated = self.queue.get(&pending.pod.key).and_then(|entry| entry.nominated.clone());
        let with_nomination;
        let pending = if pending.nominated == nominated {
            pending
        } else {
            // The informer does not know yet what was nominated here.
            with_nomination = Arc::new(pending.with_nominated(nominated));
            &with_nomination
        };
        let selector = if pending.spread.is_empty() {
            self.cluster.default_selector(pending)
        } else {
            Arc::new(Selector::Nothing)
        };
        if self.cluster.n_nodes() == 0 {
            self.reject(pending, NO_NODES.to_owned(), Plugin::NoNodes.into(), Some(Nomination::Clear), now);
            return;
        }
        let outcome = match Cycle::new(&self.cluster, &self.nominations, pending) {
            Err(diagnosis) => {
                let refused = preempt::not_helpful(&self.cluster, pending, &diagnosis);
                Outcome::Unschedulable(diagnosis, Err(refused))
            }
            Ok((cycle, around)) => {
                let random = &mut self.random;
                let choose = |n: usize| if 1 < n { random.random_range(0..n) } else { 0 };
                match cycle.decide(&around, &mut self.start, &selector, choose) {
                    Decision::Failed(why) => Outcome::Failed(why),
                    Decision::Found(choice) => Outcome::Found(choice),
                    Decision::Unschedulable(diagnosis) => {
                        let room = make_room(&cycle, &around, &diagnosis, &mut self.random);
                        Outcome::Unschedulable(diagnosis, room)
                    }
                }
            }
        };
        match outcome {
            Outcome::Failed(why) => self.fail(&PodRef::of(&pending.pod), why, now),
            Outcome::Found(choice) => self.place(pending, choice, now),
            Outcome::Unschedulable(diagnosis, Ok(preemption)) => {
                self.make_way(pending, &diagnosis, preemption, now);
            }
            Outcome::Unschedulable(diagnosis, Err(NoPreemption { message, nomination })) => {
                let message = format!("{} {message}", diagnosis.message());
                self.reject(pending, message, diagnosis.plugins, Some(nomination), now);
            }
        }
    }

    /// Takes a Pod as being on the node that was found.
    fn place(&mut self, pending: &Arc<Pending>, Choice { node, volumes }: Choice, now: Instant) {
        let pod = PodRef::of(&pending.pod);
        self.cluster.assume(&pending.pod, &node);
        self.set_nominated(&pending.pod, None);
        if volumes.is_empty() {
            self.effects.push_back(Effect::Bind { pod, node });
            return;
        }
        self.cluster.volumes.assume(&volumes, &node);
        let waiting = WaitingForVolumes {
            pod: pod.clone(),
            node: Arc::clone(&node),
            plan: volumes.clone(),
            deadline: now + VOLUMES_MAX,
            is_written: false,
        };
        self.volumes.insert(pod.key.clone(), waiting);
        self.effects.push_back(Effect::BindVolumes { pod, node, plan: volumes });
    }

    /// Lets others go, so that a Pod fits on their node.
    fn make_way(&mut self, pending: &Arc<Pending>, diagnosis: &Diagnosis, preemption: Preemption, now: Instant) {
        let Preemption { node, victims } = preemption;
        let pod = PodRef::of(&pending.pod);
        let lower = self.nominations.get(&node).into_iter().flatten();
        let lower = lower.filter(|other| other.priority < pending.pod.priority);
        let denominated: Vec<PodRef> = lower.map(|other| PodRef::of(other)).collect();
        for other in &denominated {
            self.queue.nominate(&other.key, None);
            self.clear_nomination(&other.uid);
            self.queue.activate(&other.key, now);
        }
        self.queue.nominate(&pod.key, Some(&node));
        self.set_nominated(&pending.pod, Some(&node));
        self.reject(pending, diagnosis.message(), diagnosis.plugins, None, now);
        let victims: Vec<PodRef> = victims.iter().filter(|pod| !pod.is_deleting).map(|pod| PodRef::of(pod)).collect();
        if !victims.is_empty() || !denominated.is_empty() {
            self.queue.set_busy(&pod.key);
            self.effects.push_back(Effect::Preempt { pod, node, victims, denominated });
        }
    }

    /// Lets a Pod wait for an event, and says why. Without `nomination`, what the queue has as nominated is written.
    fn reject(
        &mut self,
        pending: &Pending,
        message: String,
        plugins: PluginSet,
        nomination: Option<Nomination>,
        now: Instant,
    ) {
        let key = &pending.pod.key;
        if nomination == Some(Nomination::Clear) {
            self.give_up_room(key, now);
        }
        self.queue.put_back(key, Attempt::Unschedulable(plugins), now);
        self.report(key, Reason::Unschedulable, message);
    }

    /// Lets a Pod wait for its back-off, and says what went wrong.
    fn fail(&mut self, pod: &PodRef, why: String, now: Instant) {
        self.give_up_room(&pod.key, now);
        self.queue.put_back(&pod.key, Attempt::Failed, now);
        self.report(&pod.key, Reason::SchedulerError, why);
    }

    /// No room is kept for a Pod any more, which may help others.
    fn give_up_room(&mut self, key: &ObjectKey, now: Instant) {
        let Some(entry) = self.queue.get(key).filter(|entry| entry.nominated.is_some()) else { return };
        let pod = Arc::clone(&entry.pending.pod);
        self.queue.nominate(key, None);
        self.clear_nomination(&pod.uid);
        self.notify(&Event::PodDeleted(&pod), now);
    }

    fn report(&mut self, key: &ObjectKey, reason: Reason, message: String) {
        let Some(entry) = self.queue.get(key) else { return };
        let pending = &entry.pending;
        let said = Scheduled {
            status: "False".to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            generation: Some(pending.pod.generation),
        };
        let known = pending.scheduled.as_ref();
        let was_false = known.is_some_and(|known| known.status == "False");
        let was_false = if was_false { WasFalse::Yes } else { WasFalse::No };
        let nominated =
            (entry.nominated != pending.nominated).then(|| entry.nominated.clone().unwrap_or_else(|| Arc::from("")));
        let report = Report {
            pod: PodRef::of(&pending.pod),
            reason,
            message,
            condition: (known != Some(&said)).then_some(was_false),
            nominated,
        };
        self.queue.set_busy(key);
        self.effects.push_back(Effect::Report(report));
    }

    fn check_volumes(&mut self, now: Instant) {
        if self.volumes.is_empty() {
            return;
        }
        let mut decided: Vec<(PodRef, Arc<str>, Result<(), String>)> = Vec::new();
        for waiting in self.volumes.values().filter(|waiting| waiting.is_written) {
            let outcome = match self.cluster.node(&waiting.node) {
                None => Err(format!("failed to get node \"{0}\": node \"{0}\" not found", waiting.node)),
                Some(node) => match self.cluster.volumes.is_carried_out(&waiting.plan, node) {
                    Ok(false) => continue,
                    Ok(true) => Ok(()),
                    Err(why) => Err(why),
                },
            };
            decided.push((waiting.pod.clone(), Arc::clone(&waiting.node), outcome));
        }
        for (pod, node, outcome) in decided {
            match outcome {
                Ok(()) => {
                    self.volumes.remove(&pod.key);
                    self.effects.push_back(Effect::Bind { pod, node });
                }
                Err(why) => self.volumes_failed(&pod, &format!("binding volumes: {why}"), now),
            }
        }
    }

    fn expire_volumes(&mut self, now: Instant) {
        let expired = self.volumes.values().filter(|waiting| waiting.deadline <= now);
        let expired: Vec<PodRef> = expired.map(|waiting| waiting.pod.clone()).collect();
        for pod in expired {
            self.volumes_failed(&pod, "binding volumes: context deadline exceeded", now);
        }
    }

    fn volumes_failed(&mut self, pod: &PodRef, why: &str, now: Instant) {
        if let Some(waiting) = self.volumes.remove(&pod.key) {
            self.cluster.volumes.forget(&waiting.plan);
        }
        self.unplace(pod, format!("running PreBind plugin \"VolumeBinding\": {why}"), now);
    }

    /// A Pod was not bound to its node after all.
    fn unplace(&mut self, pod: &PodRef, why: String, now: Instant) {
        if self.cluster.is_assumed(&pod.key, &pod.uid) {
            self.release(&pod.key, now);
        }
        let is_waiting =
            |entry: &crate::scheduler::queue::Entry| entry.pending.pod.uid == pod.uid && entry.is_binding();
        if self.queue.get(&pod.key).is_some_and(is_waiting) {
            self.fail(pod, why, now);
        }
    }
}

enum Outcome {
    Failed(String),
    Found(Choice),
    Unschedulable(Diagnosis, Result<Preemption, NoPreemption>),
}

fn make_room(
    cycle: &Cycle<'_>,
    around: &Around,
    diagnosis: &Diagnosis,
    random: &mut StdRng,
) -> Result<Preemption, NoPreemption> {
    preempt::preempt(cycle, around, diagnosis, |n_nodes| random.random_range(0..n_nodes))
}

// === impl State: answers ===

impl State {
    /// The binding of a Pod was answered. Once it is bound, the informer says so too.
    pub(super) fn bound(&mut self, pod: &PodRef, answer: Result<(), String>, now: Instant) {
        if let Err(why) = answer {
            self.unplace(pod, format!("running Bind plugin \"DefaultBinder\": {why}"), now);
        }
    }

    /// What a Pod's claims need was written, or was not.
    pub(super) fn volumes_written(&mut self, pod: &PodRef, answer: Result<(), String>, now: Instant) {
        match answer {
            Err(why) => self.volumes_failed(pod, &why, now),
            Ok(()) => {
                if let Some(waiting) = self.volumes.get_mut(&pod.key).filter(|waiting| waiting.pod.uid == pod.uid) {
                    waiting.is_written = true;
                }
                self.check_volumes(now);
            }
        }
    }

    /// Requests about a Pod have ended. It may be tried again.
    pub(super) fn finished(&mut self, pod: &PodRef, now: Instant) {
        self.queue.set_idle(&pod.key, &pod.uid, now);
    }

    /// Room could not be made for a Pod: it tries again.
    pub(super) fn preemption_failed(&mut self, pod: &PodRef, now: Instant) {
        self.queue.activate(&pod.key, now);
    }
}
