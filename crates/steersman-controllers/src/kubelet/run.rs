//! The task that simulates all nodes: it feeds changes and timers to the state machines, and sends the resulting
//! requests.
//!
//! Each kind of work has a limit of concurrent requests ([`Outbox`]), and each Pod one, so that the newest status is
//! written last. Statuses are not queued: a status is computed when its request is sent.

mod nodes;
mod pods;
mod state;
mod writes;

use crate::identity::Identity;
use crate::kubelet::agent::Caches;
use crate::kubelet::node::addresses::Addresses;
use crate::kubelet::outbox::Outbox;
use crate::kubelet::pod::Input;
use crate::kubelet::pod::event::Now;
use crate::kubelet::requests::Outcome;
use crate::kubelet::run::pods::{ips, node_of};
pub(crate) use crate::kubelet::run::state::Informers;
use crate::kubelet::run::state::{Answer, NodeWork, Run, Timer};
use crate::kubelet::stage::{Observed, Stages};
use crate::kubelet::unmanaged_pods::UnmanagedPods;
use crate::kubelet::written::Written;
use crate::kubelet::{Agent, Simulation, node};
use crate::shared::refusal;
use futures::StreamExt;
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::Pod;
use std::sync::Arc;
use std::time::Duration;
use steersman::cache::{EventKind, InformerFactory};
use steersman::{ObjectKey, Scope};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long Nodes and Pods wait for the Stages to be listed. They are listed at once unless the server has trouble.
const STAGES_KNOWN_WITHIN: Duration = Duration::from_secs(5);
/// The pause before the registration of a node is tried again.
const REGISTER_RETRY: Duration = Duration::from_secs(1);

/// Why the simulation cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The request has panicked. Its subject would wait for the answer forever.
    #[error("a request of a simulated node ended badly")]
    Request(#[source] JoinError),
}

// === impl Informers ===

impl Informers {
    pub(crate) fn of(factory: &InformerFactory, stages: watch::Receiver<Option<Arc<Stages>>>) -> Informers {
        Informers {
            namespaces: factory.informer(Scope::All),
            nodes: factory.informer(Scope::All),
            pods: factory.informer(Scope::All),
            stages,
            written: Written::default(),
        }
    }

    pub(crate) fn connect(&self, agent: &Agent) {
        let node_name = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        agent.connect(Caches {
            nodes: self.nodes.lister(),
            pods: self.pods.lister(),
            pods_by_node: self.pods.add_index(node_name),
            observed: self.observed(),
            written: self.written.clone(),
        });
    }

    fn observed(&self) -> Observed {
        Observed { stages: self.stages.clone(), nodes: self.nodes.lister(), namespaces: self.namespaces.lister() }
    }
}

/// Runs the simulation until it is stopped. Requests in flight are dropped then.
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
    // Nodes and Pods do not proceed before the Stages are known, as they would otherwise behave as if there were none.
    let mut is_known = stages.borrow_and_update().is_some();
    loop {
        run.retry_resizes();
        run.send();
        let due = run.timers.first().map(|(at, _)| *at);
        // All arms only wait; changes are made after that, without awaiting.
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
        // Existing addresses of nodes and Pods are not given again, whichever event arrives first.
        for node in informers.nodes.lister().list().unwrap_or_default() {
            node::address(&node).into_iter().for_each(|address| addresses.reserve_host(address));
        }
        let mut unmanaged_pods = UnmanagedPods::default();
        for pod in informers.pods.lister().list().unwrap_or_default() {
            if let Some(node) = node_of(&pod) {
                let ips = ips(&pod);
                addresses.reserve(&ips);
                unmanaged_pods.add(ObjectKey::of(&*pod), node, ips);
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
            unmanaged_pods,
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

    /// Handles all timers that are due.
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
            Answer::Pod(key, uid, outcome, stored) => {
                self.writes.end();
                self.wrote(&key, &uid, outcome, stored);
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
                    // Another object has the name or will have it; its event has arrived or will.
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

    fn stages_changed(&mut self) {
        let names: Vec<Arc<str>> = self.nodes.keys().cloned().collect();
        for name in names {
            self.node_changed(&name, EventKind::Updated);
        }
        self.step_all(self.pods.keys().cloned().collect());
    }

    /// The labels of the namespace may have changed.
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
}
