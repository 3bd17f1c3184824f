//! The task that plays all simulated nodes: it feeds changes and timers to the state machines, and sends what comes out of them.
//!
//! A bounded number of requests is under way at a time, and one for each Pod, so that the status that is written last is the last. What waits to
//! be written is not kept: a status is made when its turn comes.

use crate::kubelet::addresses::{Hosts, PodAddresses};
use crate::kubelet::images::Images;
use crate::kubelet::pod::references::{self, Found};
use crate::kubelet::pod::{self, Input, Now, PodEvent, PodState, seed, status};
use crate::kubelet::requests::{self, Outcome};
use crate::kubelet::resources::{self, Amounts, Used};
use crate::kubelet::stage::{Observed, Stages};
use crate::kubelet::{Agent, Identity, Simulation, duration, node};
use crate::refusal;
use futures::StreamExt;
use hashbrown::{HashMap, HashSet};
use k8s_openapi::api::core::v1::{Namespace, Node, ObjectReference, Pod, PodStatus};
use kube::{Client, Resource};
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{EventKind, Informer, InformerFactory};
use steersman::events::{EventRecorder, EventType, NewEvent};
use steersman::{ObjectKey, Scope};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Requests at a time.
const REQUESTS_MAX: usize = 64;
/// How long until a write that failed is tried again, and how long at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// So long Nodes and Pods wait for the Stages to be known, which they are at once unless the server has trouble with them.
const STAGES_KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// A node that cannot be registered is tried again after this time.
const REGISTER_RETRY: Duration = Duration::from_secs(1);

/// What is watched.
pub(crate) struct Informers {
    namespaces: Informer<Namespace>,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    stages: watch::Receiver<Option<Arc<Stages>>>,
}

/// What waits for its time.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
enum Timer {
    Lease(Arc<str>),
    NodeStatus(Arc<str>),
    Pod(ObjectKey),
    Register(usize),
    Write(ObjectKey),
}

/// What a request was about, and what came of it.
enum Answer {
    Lease(Arc<str>, Outcome),
    LookedUp(ObjectKey, String, Found),
    NodeStatus(Arc<str>, Outcome),
    Pod(ObjectKey, String, Outcome),
    Registered(usize, Outcome),
    Untainted(Arc<str>, Outcome),
}

/// A node that is played.
struct NodeEntry {
    name: Arc<str>,
    uid: String,
    client: Client,
    events: EventRecorder,
    host: IpAddr,
    addresses: PodAddresses,
    images: Images,
    used: Used,
    pods: HashSet<ObjectKey>,
    /// A hash of its labels, by which Stages may select it.
    labels: u64,
    is_away: bool,
    /// Whether the cluster knows what the node has to give.
    is_able: bool,
    is_posting: bool,
    is_renewing: bool,
    is_untainting: bool,
    has_begun: bool,
    /// When its Lease is renewed, and when its status is posted.
    lease_at: Option<Instant>,
    status_at: Option<Instant>,
}

/// A Pod on a node that is played.
struct PodEntry {
    state: PodState,
    node: Arc<str>,
    /// What the Pod takes of the node, as long as it does.
    requests: Option<Amounts>,
    /// When it is woken.
    wakes: Option<Instant>,
    is_dirty: bool,
    is_to_be_removed: bool,
    is_writing: bool,
    is_queued: bool,
    n_failures: u32,
    /// What was written last, as a hash, and the version that it has.
    written: Option<u64>,
    version: u64,
}

struct Run {
    simulation: Simulation,
    informers: Informers,
    /// What says how Pods behave, and which nodes are away.
    observed: Observed,
    /// Of the loop that looks after nodes.
    controller: Client,
    hosts: Hosts,
    nodes: HashMap<Arc<str>, NodeEntry>,
    pods: HashMap<ObjectKey, PodEntry>,
    /// That Pods had when this began, by node.
    pod_addresses: HashMap<String, Vec<IpAddr>>,
    /// Pods of nodes that are not played, as far as is known.
    unclaimed: HashMap<ObjectKey, Box<str>>,
    timers: BTreeSet<(Instant, Timer)>,
    /// Pods of which something is to be written.
    outbox: VecDeque<ObjectKey>,
    requests: JoinSet<Answer>,
}

// === impl Informers ===

impl Informers {
    pub(crate) fn of(factory: &InformerFactory, stages: watch::Receiver<Option<Arc<Stages>>>) -> Informers {
        Informers {
            namespaces: factory.informer(Scope::All),
            nodes: factory.informer(Scope::All),
            pods: factory.informer(Scope::All),
            stages,
        }
    }

    pub(crate) fn connect(&self, agent: &Agent) {
        agent.connect(self.nodes.lister(), self.pods.lister(), self.observed());
    }

    fn observed(&self) -> Observed {
        Observed {
            stages: self.stages.clone(),
            nodes: self.nodes.lister(),
            namespaces: self.namespaces.lister(),
        }
    }
}

/// Plays until it is told to stop. Requests under way are given up then.
pub(crate) async fn run(simulation: Simulation, informers: Informers, stop: CancellationToken) {
    let mut namespace_changes = informers.namespaces.changes();
    let mut node_changes = informers.nodes.changes();
    let mut pod_changes = informers.pods.changes();
    let mut stages = informers.stages.clone();
    let mut run = Run::new(simulation, informers);
    let known_by = Instant::now() + STAGES_KNOWN_WITHIN;
    // Nothing happens to Nodes and Pods as if there were no Stages before it is known which there are.
    let mut is_known = stages.borrow_and_update().is_some();
    loop {
        run.send();
        let due = run.timers.first().map(|(at, _)| *at);
        // All arms wait first and then change something at once.
        tokio::select! {
            () = stop.cancelled() => return,
            Ok(()) = stages.changed() => {
                stages.borrow_and_update();
                is_known = true;
                run.stages_changed();
            }
            () = tokio::time::sleep_until(known_by), if !is_known => is_known = true,
            Some(event) = namespace_changes.next() => {
                if let Some(key) = event.key() {
                    run.namespace_changed(key.name());
                }
            }
            Some(event) = node_changes.next(), if is_known => {
                if let Some(key) = event.key() {
                    run.node_changed(key.name(), event.kind());
                }
            }
            Some(event) = pod_changes.next(), if is_known => {
                if let Some(key) = event.key() {
                    run.pod_changed(&key.clone(), event.kind());
                }
            }
            Some(answer) = run.requests.join_next() => {
                if let Ok(answer) = answer {
                    run.answered(answer);
                }
            }
            () = sleep_until(due) => run.wake(),
        }
    }
}

async fn sleep_until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

// === impl Run ===

impl Run {
    fn new(simulation: Simulation, informers: Informers) -> Run {
        let mut hosts = Hosts::default();
        // Addresses that nodes have from before are not given again.
        let known = informers.nodes.lister().list().unwrap_or_default();
        for _ in known.iter().filter(|node| node::address(node).is_some()) {
            hosts.host();
        }
        // Nor those that Pods have, whichever Pod of a node is seen first.
        let mut pod_addresses: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for pod in informers.pods.lister().list().unwrap_or_default() {
            let addresses = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
            let addresses: Vec<IpAddr> = addresses.filter_map(|one| one.ip.parse().ok()).collect();
            if let Some(node) =
                pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).filter(|_| !addresses.is_empty())
            {
                pod_addresses.entry(node).or_default().extend(addresses);
            }
        }
        let now = Instant::now();
        Run {
            pod_addresses,
            observed: informers.observed(),
            controller: (simulation.client_of)(Identity::node_controller()),
            timers: (0..simulation.n_nodes).map(|index| (now, Timer::Register(index))).collect(),
            simulation,
            informers,
            hosts,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            unclaimed: HashMap::new(),
            outbox: VecDeque::new(),
            requests: JoinSet::new(),
        }
    }

    fn now(&self) -> Now {
        Now { instant: Instant::now(), time: (self.simulation.clock)() }
    }

    /// Calls on everything whose time has come.
    fn wake(&mut self) {
        let now = Instant::now();
        while let Some((at, timer)) = self.timers.pop_first() {
            if at > now {
                self.timers.insert((at, timer));
                return;
            }
            match timer {
                Timer::Lease(name) => self.renew(&name),
                Timer::NodeStatus(name) => self.post(&name),
                Timer::Register(index) => self.register(index),
                Timer::Pod(key) => {
                    if let Some(entry) = self.pods.get_mut(&key) {
                        entry.wakes = None;
                    }
                    self.step(&key, Input::Wake);
                }
                Timer::Write(key) => self.enqueue(&key),
            }
        }
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Lease(name, outcome) => {
                let Some(node) = self.nodes.get_mut(&name) else { return };
                node.is_renewing = false;
                if let Outcome::Failed(error) = outcome {
                    tracing::warn!(
                        node = &*name,
                        error = refusal::message(&error),
                        "a simulated node cannot renew its lease"
                    );
                }
            }
            Answer::LookedUp(key, uid, found) => {
                if self.pods.get(&key).is_some_and(|entry| entry.state.uid == uid) {
                    self.step(&key, Input::References(found));
                }
            }
            Answer::NodeStatus(name, outcome) => {
                let Some(node) = self.nodes.get_mut(&name) else { return };
                node.is_posting = false;
                match outcome {
                    Outcome::Done(_) if !std::mem::replace(&mut node.has_begun, true) => node.say_first(),
                    Outcome::Done(_) | Outcome::Gone => {}
                    Outcome::Failed(error) => {
                        tracing::warn!(
                            node = &*name,
                            error = refusal::message(&error),
                            "a simulated node cannot post its status"
                        );
                        self.timers.insert((Instant::now() + REGISTER_RETRY, Timer::NodeStatus(name)));
                    }
                }
            }
            Answer::Pod(key, uid, outcome) => self.wrote(&key, &uid, outcome),
            Answer::Registered(index, outcome) => {
                if let Outcome::Failed(error) = outcome {
                    tracing::warn!(error = refusal::message(&error), "a simulated node cannot register");
                    self.timers.insert((Instant::now() + REGISTER_RETRY, Timer::Register(index)));
                }
            }
            Answer::Untainted(name, outcome) => {
                let Some(node) = self.nodes.get_mut(&name) else { return };
                node.is_untainting = false;
                match outcome {
                    Outcome::Done(_) => {}
                    // Another version is there already or will be; its event has come or comes.
                    Outcome::Gone => self.node_changed(&name, EventKind::Updated),
                    Outcome::Failed(error) => {
                        tracing::warn!(
                            node = &*name,
                            error = refusal::message(&error),
                            "the taint of a new node stays"
                        );
                    }
                }
            }
        }
    }

    // --- what others say of nodes and Pods ---

    fn stages_changed(&mut self) {
        let names: Vec<Arc<str>> = self.nodes.keys().cloned().collect();
        for name in names {
            self.node_changed(&name, EventKind::Updated);
        }
        self.step_all(self.pods.keys().cloned().collect());
    }

    /// Its labels may be others now.
    fn namespace_changed(&mut self, name: &str) {
        if self.observed.stages().read_namespaces() {
            self.step_all(self.pods.keys().filter(|key| key.namespace() == Some(name)).cloned().collect());
        }
    }

    fn step_all(&mut self, keys: Vec<ObjectKey>) {
        for key in keys {
            self.step(&key, Input::Wake);
        }
    }

    // --- nodes ---

    fn register(&mut self, index: usize) {
        let Some(name) = Simulation::names(self.simulation.n_nodes).nth(index) else { return };
        let client = (self.simulation.client_of)(Identity::node(&name));
        let object = node::registered(&name, index);
        self.requests.spawn(async move { Answer::Registered(index, requests::register(client, object).await) });
    }

    fn node_changed(&mut self, name: &str, kind: EventKind) {
        let found = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        let found = found.filter(|node| kind != EventKind::Deleted && node::is_simulated(node));
        let Some(object) = found else {
            self.forget_node(name);
            return;
        };
        let uid = object.metadata.uid.as_deref().unwrap_or_default();
        if self.nodes.get(name).is_some_and(|known| known.uid != uid) {
            self.forget_node(name);
        }
        if !self.nodes.contains_key(name) {
            self.claim(name, &object);
        }
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let is_away = self.observed.is_away(&object);
        let labels = labels_of(&object);
        let is_relabeled = std::mem::replace(&mut entry.labels, labels) != labels;
        let is_back = std::mem::replace(&mut entry.is_away, is_away) && !is_away;
        let is_able = object.status.as_ref().is_some_and(|status| status.allocatable.is_some());
        let is_newly_able = !std::mem::replace(&mut entry.is_able, is_able) && is_able;
        if is_away {
            return;
        }
        let (name, is_ready) = (Arc::clone(&entry.name), node::is_known_as_ready(&object));
        if is_back {
            self.renew(&name);
        }
        if is_back || !is_ready {
            self.post(&name);
        } else if let Some(patch) = node::without_taint(&object)
            && let Some(entry) = self.nodes.get_mut(&name)
            && !std::mem::replace(&mut entry.is_untainting, true)
        {
            let (client, name) = (self.controller.clone(), Arc::clone(&name));
            self.requests.spawn(async move {
                let outcome = requests::write_taints(client, name.to_string(), patch).await;
                Answer::Untainted(name, outcome)
            });
        }
        if is_back || is_newly_able || (is_relabeled && self.observed.stages().read_nodes()) {
            let keys: Vec<ObjectKey> =
                self.nodes.get(&name).into_iter().flat_map(|node| node.pods.iter().cloned()).collect();
            for key in keys {
                self.pod_changed(&key, EventKind::Updated);
            }
        }
    }

    /// Begins to play a node, with the Pods that are on it.
    fn claim(&mut self, name: &str, object: &Node) {
        let name: Arc<str> = Arc::from(name);
        let client = (self.simulation.client_of)(Identity::node(&name));
        let ranges = object.spec.as_ref().map(|spec| {
            let all = spec.pod_cidrs.as_deref().unwrap_or_default().iter().chain(&spec.pod_cidr);
            let mut ranges: Vec<ipnet::IpNet> = all.filter_map(|range| range.parse().ok()).collect();
            ranges.dedup();
            ranges
        });
        let mut entry = NodeEntry {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            events: EventRecorder::on_host(client.clone(), "kubelet", &name),
            client,
            host: node::address(object).unwrap_or_else(|| self.hosts.host()),
            addresses: PodAddresses::new(ranges.unwrap_or_default()),
            images: Images::default(),
            used: Used::default(),
            pods: HashSet::new(),
            labels: labels_of(object),
            is_away: self.observed.is_away(object),
            is_posting: false,
            is_renewing: false,
            is_untainting: false,
            has_begun: false,
            is_able: false,
            lease_at: None,
            status_at: None,
            name: Arc::clone(&name),
        };
        entry.addresses.reserve(&self.pod_addresses.remove(&*name).unwrap_or_default());
        let is_away = entry.is_away;
        self.nodes.insert(Arc::clone(&name), entry);
        if !is_away {
            self.post(&name);
            self.renew(&name);
        }
        let claimed: Vec<ObjectKey> =
            self.unclaimed.extract_if(|_, node| **node == *name).map(|(key, _)| key).collect();
        for key in claimed {
            self.pod_changed(&key, EventKind::Updated);
        }
    }

    /// The node is no more, or is somebody else's to play: so are its Pods.
    fn forget_node(&mut self, name: &str) {
        let Some(entry) = self.nodes.remove(name) else { return };
        if let Some(at) = entry.lease_at {
            self.timers.remove(&(at, Timer::Lease(Arc::clone(&entry.name))));
        }
        if let Some(at) = entry.status_at {
            self.timers.remove(&(at, Timer::NodeStatus(Arc::clone(&entry.name))));
        }
        for key in entry.pods {
            if let Some(at) = self.pods.remove(&key).and_then(|pod| pod.wakes) {
                self.timers.remove(&(at, Timer::Pod(key.clone())));
            }
            self.unclaimed.insert(key, name.into());
        }
    }

    /// Posts the status of a node, now and every so often.
    fn post(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if entry.is_away || std::mem::replace(&mut entry.is_posting, true) {
            return;
        }
        let Ok(object) = self.informers.nodes.lister().get(&ObjectKey::cluster(name)) else {
            entry.is_posting = false;
            return;
        };
        let patch = node::status(&object, entry.host, &entry.images, now.time);
        let (client, name) = (entry.client.clone(), Arc::clone(name));
        let at = now.instant + node::STATUS_PERIOD;
        if let Some(before) = entry.status_at.replace(at) {
            self.timers.remove(&(before, Timer::NodeStatus(Arc::clone(&name))));
        }
        self.timers.insert((at, Timer::NodeStatus(Arc::clone(&name))));
        self.requests.spawn(async move {
            let outcome = requests::write_node_status(client, name.to_string(), patch).await;
            Answer::NodeStatus(name, outcome)
        });
    }

    /// Renews the Lease of a node, now and every so often.
    fn renew(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if entry.is_away {
            return;
        }
        // Up to a twentieth sooner, so that nodes that began together do not stay so.
        let jitter = Duration::from_millis(seed((&**name, now.time.as_second())) % 500);
        let at = now.instant + node::LEASE_PERIOD.saturating_sub(jitter);
        if let Some(before) = entry.lease_at.replace(at) {
            self.timers.remove(&(before, Timer::Lease(Arc::clone(name))));
        }
        self.timers.insert((at, Timer::Lease(Arc::clone(name))));
        if std::mem::replace(&mut entry.is_renewing, true) {
            return;
        }
        let Ok(object) = self.informers.nodes.lister().get(&ObjectKey::cluster(name)) else {
            entry.is_renewing = false;
            return;
        };
        let (client, name, lease) = (entry.client.clone(), Arc::clone(name), node::lease(&object, now.time));
        self.requests.spawn(async move {
            let outcome = requests::renew(client, lease, name.to_string(), now.time).await;
            Answer::Lease(name, outcome)
        });
    }

    // --- pods ---

    fn pod_changed(&mut self, key: &ObjectKey, kind: EventKind) {
        let found = self.informers.pods.lister().get(key).ok();
        let Some(pod) = found else {
            self.forget_pod(key);
            return;
        };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        if kind == EventKind::Deleted || self.pods.get(key).is_some_and(|entry| entry.state.uid != uid) {
            self.forget_pod(key);
        }
        let Some(name) = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).filter(|name| !name.is_empty())
        else {
            return;
        };
        let Some(node) = self.nodes.get(name) else {
            self.unclaimed.insert(key.clone(), name.into());
            return;
        };
        if !self.pods.contains_key(key) {
            if node.is_away || !node.is_able {
                // It is taken when the node is there.
                if let Some(node) = self.nodes.get_mut(name) {
                    node.pods.insert(key.clone());
                }
                return;
            }
            self.admit(key, &pod, &Arc::clone(&node.name));
        }
        self.notice_overwritten(key, &pod);
        self.step(key, Input::Wake);
    }

    /// Takes a Pod on a node, or does not.
    fn admit(&mut self, key: &ObjectKey, pod: &Pod, name: &Arc<str>) {
        let now = self.now();
        let mut state = PodState::new(pod, self.observed.behaviors(pod), now);
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.pods.insert(key.clone());
        let requests = resources::requests(pod);
        let is_new = state.is_new() && pod.metadata.deletion_timestamp.is_none();
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok().filter(|_| is_new);
        let rejection = object.and_then(|object| resources::rejection(&object, &node.used, pod, &requests));
        if let Some(rejection) = rejection {
            let event = state.reject(&rejection.reason, &rejection.message);
            node.record(pod, event);
        }
        if state.ips.is_empty() && state.is_active() {
            state.ips = match pod.spec.as_ref().and_then(|spec| spec.host_network) {
                Some(true) => vec![node.host],
                _ => node.addresses.take(&mut self.hosts),
            };
        } else {
            node.addresses.reserve(&state.ips);
        }
        let requests = state.is_active().then_some(requests);
        if let Some(requests) = &requests {
            node.used.add(requests);
        }
        let entry = PodEntry {
            state,
            node: Arc::clone(name),
            requests,
            wakes: None,
            is_dirty: false,
            is_to_be_removed: false,
            is_writing: false,
            is_queued: false,
            n_failures: 0,
            written: None,
            version: 0,
        };
        self.pods.insert(key.clone(), entry);
    }

    fn forget_pod(&mut self, key: &ObjectKey) {
        let Some(mut entry) = self.pods.remove(key) else {
            self.unclaimed.remove(key);
            // It may have waited for a node that is not there.
            for node in self.nodes.values_mut().filter(|node| node.is_away || !node.is_able) {
                node.pods.remove(key);
            }
            return;
        };
        if let Some(at) = entry.wakes {
            self.timers.remove(&(at, Timer::Pod(key.clone())));
        }
        if let Some(node) = self.nodes.get_mut(&entry.node) {
            node.pods.remove(key);
            node.addresses.release(&entry.state.ips);
            node.release(&mut entry);
        }
    }

    /// If somebody has written another status than the node's since the node wrote it, the node writes its own again.
    fn notice_overwritten(&mut self, key: &ObjectKey, pod: &Pod) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let version = pod.metadata.resource_version.as_deref().and_then(|version| version.parse::<u64>().ok());
        let is_newer = version.is_some_and(|version| version > entry.version);
        if is_newer && !entry.is_writing && entry.version > 0 {
            let is_ready = |type_: &str| {
                let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.into_iter().find(|one| one.type_ == type_).map(|one| one.status == "True")
            };
            if !entry.state.agrees(is_ready("Ready"), pod.status.as_ref().and_then(|status| status.phase.as_deref())) {
                entry.written = None;
            }
        }
    }

    fn step(&mut self, key: &ObjectKey, input: Input) {
        let now = self.now();
        let Ok(pod) = self.informers.pods.lister().get(key) else { return };
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Some(node) = self.nodes.get_mut(&entry.node) else { return };
        if node.is_away || pod.metadata.uid.as_deref() != Some(&*entry.state.uid) {
            return;
        }
        entry.state.behave(self.observed.behaviors(&pod));
        let effects = entry.state.step(&pod, &mut node.images, now, input);
        for event in effects.events {
            node.record(&pod, event);
        }
        if !entry.state.is_active() {
            node.release(entry);
        }
        if effects.asks {
            let (client, wanted) = (node.client.clone(), references::wanted(&pod));
            let (key, namespace, uid) = (key.clone(), pod::namespace(&pod).to_owned(), entry.state.uid.clone());
            self.requests.spawn(async move {
                let found = requests::look_up(client, namespace, wanted).await;
                Answer::LookedUp(key, uid, found)
            });
        }
        if effects.wakes != entry.wakes {
            if let Some(at) = entry.wakes.take() {
                self.timers.remove(&(at, Timer::Pod(key.clone())));
            }
            if let Some(at) = effects.wakes {
                self.timers.insert((at, Timer::Pod(key.clone())));
            }
            entry.wakes = effects.wakes;
        }
        let status = status::of(&mut entry.state, &pod, node.host, now);
        entry.is_to_be_removed |= effects.removes;
        if entry.written != Some(hash(&status)) || entry.is_to_be_removed {
            entry.is_dirty |= entry.written != Some(hash(&status));
            self.enqueue(key);
        }
    }

    // --- writes ---

    fn enqueue(&mut self, key: &ObjectKey) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let is_wanted = entry.is_dirty || entry.is_to_be_removed;
        if is_wanted && !entry.is_writing && !std::mem::replace(&mut entry.is_queued, true) {
            self.outbox.push_back(key.clone());
        }
    }

    /// Sends what waits, as far as there is room.
    fn send(&mut self) {
        while self.requests.len() < REQUESTS_MAX {
            let Some(key) = self.outbox.pop_front() else { return };
            self.write(key);
        }
    }

    fn write(&mut self, key: ObjectKey) {
        let now = self.now();
        let Some(entry) = self.pods.get_mut(&key) else { return };
        entry.is_queued = false;
        let Some(node) = self.nodes.get(&entry.node).filter(|node| !node.is_away) else { return };
        let Ok(pod) = self.informers.pods.lister().get(&key) else { return };
        let uid = entry.state.uid.clone();
        if pod.metadata.uid.as_deref() != Some(&*uid) {
            return;
        }
        let (client, namespace, name) =
            (node.client.clone(), pod::namespace(&pod).to_owned(), pod::name(&pod).to_owned());
        if std::mem::take(&mut entry.is_dirty) {
            let mut status = status::of(&mut entry.state, &pod, node.host, now);
            entry.written = Some(hash(&status));
            keep_scheduled(&mut status, &pod);
            entry.is_writing = true;
            self.requests.spawn(async move {
                let outcome = requests::write_pod_status(client, namespace, name, uid.clone(), status).await;
                Answer::Pod(key, uid, outcome)
            });
        } else if entry.is_to_be_removed {
            entry.is_to_be_removed = false;
            entry.is_writing = true;
            self.requests.spawn(async move {
                let outcome = requests::remove_pod(client, namespace, name, uid.clone()).await;
                Answer::Pod(key, uid, outcome)
            });
        }
    }

    fn wrote(&mut self, key: &ObjectKey, uid: &str, outcome: Outcome) {
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.state.uid == uid) else { return };
        entry.is_writing = false;
        match outcome {
            Outcome::Done(version) => {
                entry.n_failures = 0;
                entry.version = version.unwrap_or(entry.version).max(entry.version);
                self.enqueue(key);
            }
            // The event that says so comes, or the server was asked at a bad moment; then there is something to write still.
            Outcome::Gone => {
                entry.is_dirty = true;
                entry.is_to_be_removed |= entry.state.is_removed();
                self.timers.insert((Instant::now() + RETRY.0, Timer::Write(key.clone())));
            }
            Outcome::Failed(error) => {
                let wait = RETRY.0.saturating_mul(2_u32.saturating_pow(entry.n_failures)).min(RETRY.1);
                entry.n_failures = entry.n_failures.saturating_add(1).min(16);
                entry.is_dirty = true;
                entry.is_to_be_removed |= entry.state.is_removed();
                entry.written = None;
                let error = refusal::message(&error);
                tracing::warn!(pod = %key, error, wait = duration::format(wait), "the status of a simulated pod cannot be written");
                self.timers.insert((Instant::now() + wait, Timer::Write(key.clone())));
            }
        }
    }
}

// === impl NodeEntry ===

impl NodeEntry {
    fn record(&self, pod: &Pod, event: PodEvent) {
        let PodEvent { event_type, reason, message, field_path } = event;
        let mut reference = pod.object_ref(&());
        reference.resource_version.clone_from(&pod.metadata.resource_version);
        reference.field_path = field_path;
        self.events.record(NewEvent::new(reference, event_type, &reason, &message));
    }

    fn say_first(&self) {
        // As kubelets do, which know the name of their node and not yet its uid.
        let name = Some(self.name.to_string());
        let reference = ObjectReference {
            kind: Some("Node".to_owned()),
            name: name.clone(),
            uid: name,
            ..ObjectReference::default()
        };
        for (reason, message) in node::first_events(&self.name) {
            self.events.record(NewEvent::new(reference.clone(), EventType::Normal, reason, &message));
        }
    }

    /// A Pod has come to its end: what it took of the node is free.
    fn release(&mut self, entry: &mut PodEntry) {
        if let Some(requests) = entry.requests.take() {
            self.used.subtract(&requests);
        }
    }
}

/// If the cluster knows already that the Pod is on a node, that condition stays as it is.
fn keep_scheduled(status: &mut PodStatus, pod: &Pod) {
    let known = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    if known.into_iter().any(|one| one.type_ == "PodScheduled" && one.status == "True")
        && let Some(conditions) = &mut status.conditions
    {
        conditions.retain(|one| one.type_ != "PodScheduled");
    }
}

fn labels_of(node: &Node) -> u64 {
    seed(&node.metadata.labels)
}

fn hash(status: &PodStatus) -> u64 {
    seed(serde_json::to_string(status).unwrap_or_default())
}
