//! The task that plays all simulated nodes: it feeds changes and timers to the state machines, and sends what comes out of them.
//!
//! Of each kind of work so many requests are under way at a time ([`Outbox`]), and one for each Pod, so that the status that is written last is
//! the last. What waits to be written is not kept: a status is made when its turn comes.

use crate::kubelet::addresses::{Addresses, PodAddresses};
use crate::kubelet::agent::Caches;
use crate::kubelet::images::Images;
use crate::kubelet::outbox::Outbox;
use crate::kubelet::pod::references::{self, Found};
use crate::kubelet::pod::{self, Input, Now, PodEvent, PodState, seed, status};
use crate::kubelet::requests::{self, Outcome};
use crate::kubelet::resources::{self, Amounts, Used};
use crate::kubelet::stage::{Observed, Stages};
use crate::kubelet::unplayed::Unplayed;
use crate::kubelet::{Agent, Identity, Simulation, duration, node};
use crate::refusal;
use futures::StreamExt;
use hashbrown::{HashMap, HashSet};
use k8s_openapi::api::core::v1::{Namespace, Node, ObjectReference, Pod, PodStatus};
use kube::{Client, Resource};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{EventKind, Informer, InformerFactory};
use steersman::events::{EventRecorder, EventType, NewEvent};
use steersman::{ObjectKey, Scope};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

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
    LookUp(ObjectKey),
    NodeStatus(Arc<str>),
    Pod(ObjectKey),
    Register(usize),
    Untaint(Arc<str>),
    Write(ObjectKey),
}

/// What is written about nodes, besides Leases.
#[derive(Debug)]
enum NodeWork {
    Post(Arc<str>),
    Register(usize),
    Untaint(Arc<str>),
}

/// What a request was about, and what came of it.
enum Answer {
    Lease(Arc<str>, Outcome),
    LookedUp(ObjectKey, String, Result<Found, kube::Error>),
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
    /// Those of them that ask for more than there is room for.
    deferred: HashSet<ObjectKey>,
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
    /// Whether the status is to be written, and whether the Pod is to be removed after that.
    is_dirty: bool,
    is_to_be_removed: bool,
    write: Write,
    /// Of writes, and of looks at what it refers to, one after the other.
    n_failures: u32,
    n_look_up_failures: u32,
    /// What was written last, as a hash, and the version that it has.
    written: Option<u64>,
    version: u64,
}

/// Where the request is that writes the status of a Pod or removes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Write {
    Idle,
    Queued,
    UnderWay,
}

/// Why the nodes cannot be played any longer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// It has panicked. What it was about would wait for its answer for ever.
    #[error("a request of a simulated node ended badly")]
    Request(#[source] JoinError),
}

struct Run {
    simulation: Simulation,
    informers: Informers,
    /// What says how Pods behave, and which nodes are away.
    observed: Observed,
    /// Of the loop that looks after nodes.
    controller: Client,
    /// Of Pods that are played, and of those that are not, as often as they have them.
    addresses: Addresses,
    nodes: HashMap<Arc<str>, NodeEntry>,
    pods: HashMap<ObjectKey, PodEntry>,
    unplayed: Unplayed,
    timers: BTreeSet<(Instant, Timer)>,
    /// Nodes on which there is room again for Pods that ask for more.
    with_room: Vec<Arc<str>>,
    leases: Outbox<Arc<str>>,
    look_ups: Outbox<ObjectKey>,
    node_work: Outbox<NodeWork>,
    writes: Outbox<ObjectKey>,
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
        let node_name = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        agent.connect(Caches {
            nodes: self.nodes.lister(),
            pods: self.pods.lister(),
            pods_by_node: self.pods.add_index(node_name),
            observed: self.observed(),
        });
    }

    fn observed(&self) -> Observed {
        Observed { stages: self.stages.clone(), nodes: self.nodes.lister(), namespaces: self.namespaces.lister() }
    }
}

/// Plays until it is told to stop. Requests under way are given up then.
///
/// # Errors
/// When a request has panicked.
pub(crate) async fn run(simulation: Simulation, informers: Informers, stop: CancellationToken) -> Result<(), Error> {
    let mut namespace_changes = informers.namespaces.changes();
    let mut node_changes = informers.nodes.changes();
    let mut pod_changes = informers.pods.changes();
    let mut stages = informers.stages.clone();
    let mut run = Run::new(simulation, informers);
    let known_by = Instant::now() + STAGES_KNOWN_WITHIN;
    // Nothing happens to Nodes and Pods as if there were no Stages before it is known which there are.
    let mut is_known = stages.borrow_and_update().is_some();
    loop {
        run.retry_resizes();
        run.send();
        let due = run.timers.first().map(|(at, _)| *at);
        // All arms wait first and then change something at once.
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
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
            Some(answer) = run.requests.join_next() => run.answered(answer.map_err(Error::Request)?),
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
        let mut addresses = Addresses::default();
        // Addresses that nodes and Pods have from before are not given again, whichever of them is seen first.
        for node in informers.nodes.lister().list().unwrap_or_default() {
            node::address(&node).into_iter().for_each(|address| addresses.reserve_host(address));
        }
        let mut unplayed = Unplayed::default();
        for pod in informers.pods.lister().list().unwrap_or_default() {
            if let Some(node) = node_of(&pod) {
                let ips = ips(&pod);
                addresses.reserve(&ips);
                unplayed.add(ObjectKey::of(&*pod), node, ips);
            }
        }
        let now = Instant::now();
        Run {
            observed: informers.observed(),
            controller: (simulation.client_of)(Identity::node_controller()),
            timers: (0..simulation.n_nodes).map(|index| (now, Timer::Register(index))).collect(),
            simulation,
            informers,
            addresses,
            nodes: HashMap::new(),
            pods: HashMap::new(),
            unplayed,
            with_room: Vec::new(),
            leases: Outbox::default(),
            look_ups: Outbox::default(),
            node_work: Outbox::default(),
            writes: Outbox::default(),
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
                Timer::LookUp(key) => self.look_ups.push(key),
                Timer::Register(index) => self.node_work.push(NodeWork::Register(index)),
                Timer::Untaint(name) => self.node_changed(&name, EventKind::Updated),
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
                self.leases.end();
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
                self.look_ups.end();
                self.looked_up(&key, &uid, found);
            }
            Answer::NodeStatus(name, outcome) => {
                self.node_work.end();
                let Some(node) = self.nodes.get_mut(&name) else { return };
                node.is_posting = false;
                match outcome {
                    Outcome::Done(written) => {
                        if !std::mem::replace(&mut node.has_begun, true) {
                            node.say_first();
                        }
                        self.look_again(&name, written);
                    }
                    Outcome::Gone => {}
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
            Answer::Pod(key, uid, outcome) => {
                self.writes.end();
                self.wrote(&key, &uid, outcome);
            }
            Answer::Registered(index, outcome) => {
                self.node_work.end();
                if let Outcome::Failed(error) = outcome {
                    tracing::warn!(error = refusal::message(&error), "a simulated node cannot register");
                    self.timers.insert((Instant::now() + REGISTER_RETRY, Timer::Register(index)));
                }
            }
            Answer::Untainted(name, outcome) => {
                self.node_work.end();
                let Some(node) = self.nodes.get_mut(&name) else { return };
                node.is_untainting = false;
                match outcome {
                    Outcome::Done(written) => self.look_again(&name, written),
                    // Another version is there already or will be; its event has come or comes.
                    Outcome::Gone => self.node_changed(&name, EventKind::Updated),
                    Outcome::Failed(error) => {
                        tracing::warn!(
                            node = &*name,
                            error = refusal::message(&error),
                            "the taint of a new node stays"
                        );
                        self.timers.insert((Instant::now() + REGISTER_RETRY, Timer::Untaint(name)));
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

    /// Heeds what somebody wrote of a node while a request of its own was under way, which has now written this version.
    fn look_again(&mut self, name: &str, written: Option<u64>) {
        let known = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        if known.and_then(|node| version(node.metadata.resource_version.as_deref())) > written {
            self.node_changed(name, EventKind::Updated);
        }
    }

    fn register(&mut self, index: usize) {
        let name = Simulation::name(index);
        let client = (self.simulation.client_of)(Identity::node(&name));
        let object = node::registered(&name, index);
        self.node_work.begin();
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
        } else if node::without_taint(&object).is_some()
            && let Some(entry) = self.nodes.get_mut(&name)
            && !std::mem::replace(&mut entry.is_untainting, true)
        {
            self.node_work.push(NodeWork::Untaint(Arc::clone(&name)));
        }
        if is_back || is_newly_able || (is_relabeled && self.observed.stages().read_nodes()) {
            let mut keys = self.unplayed.on(&name);
            keys.extend(self.nodes.get(&name).into_iter().flat_map(|node| node.pods.iter().cloned()));
            for key in keys {
                self.pod_changed(&key, EventKind::Updated);
            }
        }
    }

    /// Takes the taint of a new node away, if it is still there.
    fn untaint(&mut self, name: &Arc<str>) {
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        let Some(patch) = object.and_then(|object| node::without_taint(&object)) else {
            entry.is_untainting = false;
            return;
        };
        let (client, name) = (self.controller.clone(), Arc::clone(name));
        self.node_work.begin();
        self.requests.spawn(async move {
            let outcome = requests::write_taints(client, name.to_string(), patch).await;
            Answer::Untainted(name, outcome)
        });
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
        let host = match node::address(object) {
            Some(host) => host,
            None => self.addresses.take_host(),
        };
        self.addresses.reserve_host(host);
        let known = self.unplayed.ips_on(&name);
        let entry = NodeEntry {
            uid: object.metadata.uid.clone().unwrap_or_default(),
            events: EventRecorder::on_host(client.clone(), "kubelet", &name),
            client,
            host,
            addresses: PodAddresses::new(ranges.unwrap_or_default(), known, &mut self.addresses),
            images: Images::default(),
            used: Used::default(),
            pods: HashSet::new(),
            deferred: HashSet::new(),
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
        let is_away = entry.is_away;
        self.nodes.insert(Arc::clone(&name), entry);
        if !is_away {
            self.post(&name);
            self.renew(&name);
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
            let Some(pod) = self.pods.remove(&key) else { continue };
            if let Some(at) = pod.wakes {
                self.timers.remove(&(at, Timer::Pod(key.clone())));
            }
            // Its addresses stay its own.
            self.unplayed.add(key, name, pod.state.ips);
        }
        entry.addresses.give_back(&mut self.addresses);
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        if object.and_then(|object| node::address(&object)) != Some(entry.host) {
            self.addresses.release_host(entry.host);
        }
    }

    /// Posts the status of a node, now and every so often.
    fn post(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        if entry.is_away {
            entry.status_at = None;
            return;
        }
        let at = now.instant + spread(name, node::STATUS_PERIOD, entry.status_at);
        if let Some(before) = entry.status_at.replace(at) {
            self.timers.remove(&(before, Timer::NodeStatus(Arc::clone(name))));
        }
        self.timers.insert((at, Timer::NodeStatus(Arc::clone(name))));
        if !std::mem::replace(&mut entry.is_posting, true) {
            self.node_work.push(NodeWork::Post(Arc::clone(name)));
        }
    }

    fn write_node_status(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        let Some(object) = object.filter(|_| !entry.is_away) else {
            entry.is_posting = false;
            return;
        };
        let patch = node::status(&object, entry.host, &entry.images, now.time);
        let (client, name) = (entry.client.clone(), Arc::clone(name));
        self.node_work.begin();
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
            entry.lease_at = None;
            return;
        }
        let at = now.instant + spread(name, node::LEASE_PERIOD, entry.lease_at);
        if let Some(before) = entry.lease_at.replace(at) {
            self.timers.remove(&(before, Timer::Lease(Arc::clone(name))));
        }
        self.timers.insert((at, Timer::Lease(Arc::clone(name))));
        if !std::mem::replace(&mut entry.is_renewing, true) {
            self.leases.push(Arc::clone(name));
        }
    }

    fn write_lease(&mut self, name: &Arc<str>) {
        let now = self.now();
        let Some(entry) = self.nodes.get_mut(name) else { return };
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok();
        let Some(object) = object.filter(|_| !entry.is_away) else {
            entry.is_renewing = false;
            return;
        };
        self.leases.begin();
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
        let Some(name) = node_of(&pod) else {
            self.forget_pod(key);
            return;
        };
        if !self.pods.contains_key(key) {
            let before = self.unplayed.remove(key);
            match self.nodes.get(name).filter(|node| !node.is_away && node.is_able) {
                Some(node) => self.admit(key, &pod, &Arc::clone(&node.name)),
                // It is taken when the node is there.
                None => {
                    let ips = ips(&pod);
                    self.addresses.reserve(&ips);
                    self.unplayed.add(key.clone(), name, ips);
                }
            }
            self.addresses.release(&before);
        }
        self.notice_overwritten(key, &pod);
        self.step(key, Input::Wake);
    }

    /// Begins to play a Pod, which the node rejects if it has no room for it.
    fn admit(&mut self, key: &ObjectKey, pod: &Pod, name: &Arc<str>) {
        let now = self.now();
        let mut state = PodState::new(pod, self.observed.behaviors(pod), now);
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.pods.insert(key.clone());
        let requests = resources::requests(&state.allocation.applied(pod));
        let is_new = state.is_new() && pod.metadata.deletion_timestamp.is_none();
        let object = self.informers.nodes.lister().get(&ObjectKey::cluster(name)).ok().filter(|_| is_new);
        let rejection = object.and_then(|object| resources::rejection(&object, &node.used, pod, &requests));
        if let Some(rejection) = rejection {
            let event = state.reject(&rejection.reason, &rejection.message);
            node.record(pod, event);
        }
        let is_on_host = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
        if state.ips.is_empty() && state.is_active() && !is_on_host {
            state.ips = node.addresses.take(&mut self.addresses);
        } else {
            if state.ips.is_empty() && state.is_active() {
                state.ips = vec![node.host];
            }
            self.addresses.reserve(&state.ips);
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
            write: Write::Idle,
            n_failures: 0,
            n_look_up_failures: 0,
            written: None,
            version: 0,
        };
        self.pods.insert(key.clone(), entry);
    }

    fn forget_pod(&mut self, key: &ObjectKey) {
        let Some(mut entry) = self.pods.remove(key) else {
            let ips = self.unplayed.remove(key);
            self.addresses.release(&ips);
            return;
        };
        if let Some(at) = entry.wakes {
            self.timers.remove(&(at, Timer::Pod(key.clone())));
        }
        self.addresses.release(&entry.state.ips);
        if let Some(node) = self.nodes.get_mut(&entry.node) {
            node.pods.remove(key);
            node.deferred.remove(key);
            if node.release(&mut entry) {
                self.with_room.push(Arc::clone(&node.name));
            }
        }
    }

    /// If somebody has written another status than the node's since the node wrote it, the node writes its own again.
    fn notice_overwritten(&mut self, key: &ObjectKey, pod: &Pod) {
        let Some(entry) = self.pods.get_mut(key) else { return };
        let version = version(pod.metadata.resource_version.as_deref());
        let is_newer = version.is_some_and(|version| version > entry.version);
        if is_newer && entry.write != Write::UnderWay && entry.version > 0 {
            let is_ready = |type_: &str| {
                let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                conditions.into_iter().find(|one| one.type_ == type_).map(|one| one.status == "True")
            };
            if !entry.state.agrees(is_ready("Ready"), pod.status.as_ref().and_then(|status| status.phase.as_deref())) {
                entry.written = None;
            }
        }
    }

    /// Asks again for Pods that want more of a node on which something has become free: first for those of the highest priority, then for those
    /// that have waited longest.
    fn retry_resizes(&mut self) {
        while let Some(name) = self.with_room.pop() {
            let Some(node) = self.nodes.get(&name) else { continue };
            let pods = self.informers.pods.lister();
            let rank = |key: &ObjectKey| {
                let priority = pods.get(key).ok().and_then(|pod| pod.spec.as_ref()?.priority).unwrap_or_default();
                let since = self.pods.get(key).and_then(|entry| entry.state.allocation.deferred_since());
                (std::cmp::Reverse(priority), since)
            };
            let mut keys: Vec<ObjectKey> = node.deferred.iter().cloned().collect();
            keys.sort_by_cached_key(rank);
            for key in keys {
                self.step(&key, Input::Wake);
            }
        }
    }

    fn step(&mut self, key: &ObjectKey, input: Input) {
        let now = self.now();
        let Ok(pod) = self.informers.pods.lister().get(key) else { return };
        let Some(entry) = self.pods.get_mut(key) else { return };
        let Some(node) = self.nodes.get_mut(&entry.node) else { return };
        if node.is_away || pod.metadata.uid.as_deref() != Some(&*entry.state.uid) {
            // Nobody asks again when the node is back.
            if let Input::References(found) = input {
                entry.state.learn(found);
            }
            return;
        }
        if let Some(object) = self.informers.nodes.lister().get(&ObjectKey::cluster(&entry.node)).ok()
            && node.resize(key, entry, &pod, &object, now)
        {
            self.with_room.push(Arc::clone(&entry.node));
        }
        entry.state.behave(self.observed.behaviors(&pod));
        let effects = entry.state.step(&pod, &mut node.images, now, input);
        for event in effects.events {
            node.record(&pod, event);
        }
        if !entry.state.is_active() {
            node.deferred.remove(key);
            if node.release(entry) {
                self.with_room.push(Arc::clone(&entry.node));
            }
        }
        if effects.asks {
            self.look_ups.push(key.clone());
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
        if is_wanted && entry.write == Write::Idle {
            entry.write = Write::Queued;
            self.writes.push(key.clone());
        }
    }

    /// Sends what waits, as far as there is room.
    fn send(&mut self) {
        while let Some(name) = self.leases.next() {
            self.write_lease(&name);
        }
        while let Some(key) = self.look_ups.next() {
            self.look_up(key);
        }
        while let Some(work) = self.node_work.next() {
            match work {
                NodeWork::Post(name) => self.write_node_status(&name),
                NodeWork::Register(index) => self.register(index),
                NodeWork::Untaint(name) => self.untaint(&name),
            }
        }
        while let Some(key) = self.writes.next() {
            self.write(key);
        }
    }

    fn look_up(&mut self, key: ObjectKey) {
        let Some(entry) = self.pods.get(&key) else { return };
        let Some(node) = self.nodes.get(&entry.node) else { return };
        let Ok(pod) = self.informers.pods.lister().get(&key) else { return };
        let (client, wanted) = (node.client.clone(), references::wanted(&pod));
        let (namespace, uid) = (pod::namespace(&pod).to_owned(), entry.state.uid.clone());
        self.look_ups.begin();
        self.requests.spawn(async move {
            let found = requests::look_up(client, namespace, wanted).await;
            Answer::LookedUp(key, uid, found)
        });
    }

    fn looked_up(&mut self, key: &ObjectKey, uid: &str, found: Result<Found, kube::Error>) {
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.state.uid == uid) else { return };
        match found {
            Ok(found) => {
                entry.n_look_up_failures = 0;
                self.step(key, Input::References(found));
            }
            Err(error) => {
                let wait = back_off(&mut entry.n_look_up_failures);
                let error = refusal::message(&error);
                tracing::warn!(pod = %key, error, wait = duration::format(wait), "what a simulated pod refers to cannot be read");
                self.timers.insert((Instant::now() + wait, Timer::LookUp(key.clone())));
            }
        }
    }

    fn write(&mut self, key: ObjectKey) {
        let now = self.now();
        let Some(entry) = self.pods.get_mut(&key) else { return };
        entry.write = Write::Idle;
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
            let dropped = status::dropped_conditions(&entry.state, &status);
            entry.write = Write::UnderWay;
            self.writes.begin();
            self.requests.spawn(async move {
                let outcome = requests::write_pod_status(client, namespace, name, uid.clone(), status, dropped).await;
                Answer::Pod(key, uid, outcome)
            });
        } else if entry.is_to_be_removed {
            entry.is_to_be_removed = false;
            entry.write = Write::UnderWay;
            self.writes.begin();
            self.requests.spawn(async move {
                let outcome = requests::remove_pod(client, namespace, name, uid.clone()).await;
                Answer::Pod(key, uid, outcome)
            });
        }
    }

    fn wrote(&mut self, key: &ObjectKey, uid: &str, outcome: Outcome) {
        let Some(entry) = self.pods.get_mut(key).filter(|entry| entry.state.uid == uid) else { return };
        entry.write = Write::Idle;
        match outcome {
            Outcome::Done(version) => {
                entry.n_failures = 0;
                entry.version = version.unwrap_or(entry.version).max(entry.version);
                self.enqueue(key);
                // What somebody wrote while the request was under way was passed over.
                self.pod_changed(key, EventKind::Updated);
            }
            // The event that says so comes, or the server was asked at a bad moment; then there is something to write still.
            Outcome::Gone => {
                entry.is_dirty = true;
                entry.is_to_be_removed |= entry.state.is_removed();
                self.timers.insert((Instant::now() + RETRY.0, Timer::Write(key.clone())));
            }
            Outcome::Failed(error) => {
                let wait = back_off(&mut entry.n_failures);
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

    /// A Pod has come to its end: what it took of the node is free. Whether others wait for that.
    fn release(&mut self, entry: &mut PodEntry) -> bool {
        let Some(requests) = entry.requests.take() else { return false };
        self.used.subtract(&requests);
        !self.deferred.is_empty()
    }

    /// Gives a Pod what it asks for now, if there is room, and defers that otherwise. Whether there is room for others that wait.
    fn resize(&mut self, key: &ObjectKey, entry: &mut PodEntry, pod: &Pod, object: &Node, now: Now) -> bool {
        let Some(given) = &mut entry.requests else { return false };
        let allocation = &mut entry.state.allocation;
        if !allocation.differs(pod) {
            allocation.withdraw();
            self.deferred.remove(key);
            return false;
        }
        let asked = resources::requests(pod);
        self.used.subtract(given);
        let event = match resources::rejection(object, &self.used, pod, &asked) {
            None => {
                self.deferred.remove(key);
                *given = asked;
                Some(allocation.allocate(pod, now))
            }
            Some(rejection) => {
                self.deferred.insert(key.clone());
                allocation.defer(pod, &rejection.message, now)
            }
        };
        self.used.add(given);
        event.into_iter().for_each(|event| self.record(pod, event));
        !allocation.is_deferred() && !self.deferred.is_empty()
    }
}

/// The node that a Pod is bound to.
fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// The addresses that a Pod says to have.
fn ips(pod: &Pod) -> Vec<IpAddr> {
    let known = pod.status.iter().flat_map(|status| status.pod_ips.iter().flatten());
    known.filter_map(|one| one.ip.parse().ok()).collect()
}

fn version(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// How long until something that has failed is tried again, longer each time.
fn back_off(n_failures: &mut u32) -> Duration {
    let wait = RETRY.0.saturating_mul(2_u32.saturating_pow(*n_failures)).min(RETRY.1);
    *n_failures = n_failures.saturating_add(1).min(16);
    wait
}

/// How long until something periodic is done again: the first time at a time of the node's own within the period, so that nodes that began
/// together do not do it together for ever.
fn spread(name: &str, period: Duration, before: Option<Instant>) -> Duration {
    match before {
        Some(_) => period,
        None => (period / 1024).saturating_mul(u32::try_from(seed(name) % 1024).unwrap_or_default().saturating_add(1)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_begin_together_are_spread_over_the_period() {
        let mut tenths = [0; 11];
        for name in Simulation::names(1_000) {
            let wait = spread(&name, node::LEASE_PERIOD, None);
            assert!(Duration::ZERO < wait && wait <= node::LEASE_PERIOD);
            tenths[usize::try_from(wait.as_secs()).unwrap()] += 1;
            assert_eq!(spread(&name, node::LEASE_PERIOD, Some(Instant::now())), node::LEASE_PERIOD);
        }
        assert!(tenths.iter().take(10).all(|n| (50..200).contains(n)), "{tenths:?}");
    }
}
