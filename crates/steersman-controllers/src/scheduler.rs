//! The scheduler: finds a node for each Pod that has none, and binds it there.
//!
//! The loop `scheduler` of the table, and started with [`Scheduler::add`]. Behaves as kube-scheduler with the same
//! [`Configuration`]: the same filters and scores, the same order of Pods, preemption, and messages in conditions and
//! Events. Not supported: dynamic resource allocation, Pod groups.
//!
//! `state` is the scheduler without requests, and `cycle` a single decision; both are pure. This file feeds `state`
//! from informers, and sends its requests (`requests`), for many Pods concurrently. Only the questions to extenders
//! (`state/extension`) hold up the decisions about other Pods, as they do in kube-scheduler.

mod cluster;
pub(crate) mod configuration;
mod cycle;
mod hints;
pub(crate) mod plugins;
mod queue;
mod requests;
mod state;

#[cfg(test)]
mod tests;

pub use crate::scheduler::configuration::{Configuration, ConfigurationError};

use crate::scheduler::cluster::pod::Owner;
use crate::scheduler::hints::Event;
use crate::scheduler::requests::{Answer, Extenders, Objects, Requests};
use crate::scheduler::state::{Effect, State};
use crate::settings::Parts;
use crate::shared::labels::Selector;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kube::Client;
use parking_lot::{Mutex, MutexGuard};
use std::sync::{Arc, Weak};
use std::time::Duration;
use steersman::cache::{CachedResource, Change, Deleted, Informer, InformerFactory, handler_fn};
use steersman::{Lister, Manager, ObjectKey, Scope};
use tokio::sync::Notify;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long requests in flight may take at shutdown.
const END_MAX: Duration = Duration::from_secs(5);

/// The scheduler of a cluster.
#[derive(Debug)]
pub struct Scheduler;

/// The state shared by the informers' handlers and the scheduler's task.
struct Shared {
    state: Mutex<State>,
    /// Notified when the state has work.
    wake: Notify,
}

/// The informers and listers of the scheduler.
struct Inputs {
    budgets: Informer<PodDisruptionBudget>,
    capacities: Informer<CSIStorageCapacity>,
    claims: Informer<PersistentVolumeClaim>,
    classes: Informer<StorageClass>,
    csi_nodes: Informer<CSINode>,
    drivers: Informer<CSIDriver>,
    namespaces: Informer<Namespace>,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    services: Informer<Service>,
    volumes: Informer<PersistentVolume>,
    replica_sets: Lister<ReplicaSet>,
    replication_controllers: Lister<ReplicationController>,
    stateful_sets: Lister<StatefulSet>,
}

/// Why the scheduler stopped by itself.
#[derive(Debug, thiserror::Error)]
enum RunError {
    /// The outcome of the request for the Pod is unknown.
    #[error("a request of the scheduler panicked")]
    Request(#[source] JoinError),
}

/// A registered handler.
struct Handler {
    synced: BoxFuture<'static, ()>,
    remove: BoxFuture<'static, ()>,
}

// === impl Scheduler ===

/// Adds the scheduler to a manager.
pub(crate) fn add(manager: Manager, parts: Parts<'_>) -> Manager {
    Scheduler::add(manager, parts.client, parts.settings.scheduler.clone(), parts.settings.clock)
}

impl Scheduler {
    /// The user that the client given to [`Scheduler::add`] must act as.
    pub const USER: &str = "system:kube-scheduler";

    /// The `User-Agent` that the client must have. It becomes the field manager of the scheduler's writes.
    pub const AGENT: &str = "kube-scheduler";

    /// Adds the scheduler to a manager, whose informers it uses. `client` acts as [`Scheduler::USER`], and `clock`
    /// gives the times of conditions.
    pub fn add(manager: Manager, client: Client, configuration: Configuration, clock: fn() -> Timestamp) -> Manager {
        let inputs = Inputs::of(manager.informers());
        let metrics = manager.metrics().clone();
        manager.run_leading("scheduler", move |stop| {
            let objects = Objects::of(inputs.nodes.lister(), inputs.pods.lister());
            let extenders = Extenders::new(&configuration, objects).observe(&metrics);
            let requests = Requests::new(client, &configuration, extenders, clock);
            run(inputs, configuration, requests, stop)
        })
    }
}

/// Schedules until `stop` is cancelled.
async fn run(
    inputs: Inputs,
    configuration: Configuration,
    requests: Requests,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let state = State::new(configuration, inputs.owner_selectors(), rand::random());
    let shared = Arc::new(Shared { state: Mutex::new(state), wake: Notify::new() });
    let (synced, removals): (Vec<_>, Vec<_>) =
        inputs.watch(&shared).into_iter().map(|handler| (handler.synced, handler.remove)).unzip();
    // Decisions on a partial view of the cluster would be bad ones.
    let ended = tokio::select! {
        () = stop.cancelled() => Ok(()),
        _ = join_all(synced) => work(&shared, requests, &stop).await,
    };
    join_all(removals).await;
    ended
}

async fn work(shared: &Shared, requests: Requests, stop: &CancellationToken) -> Result<(), RunError> {
    let mut running: JoinSet<Answer> = JoinSet::new();
    let in_flight_max = requests.in_flight_max();
    loop {
        let effect = if running.len() < in_flight_max { shared.next() } else { None };
        if let Some(effect) = effect {
            let requests = requests.clone();
            running.spawn(async move { requests.send(effect).await });
            // Finished requests are handled before the next decision.
            while let Some(answer) = running.try_join_next() {
                shared.tell(answer)?;
            }
            // A decision among many nodes takes long, so other tasks get a turn after each.
            tokio::task::yield_now().await;
            if !stop.is_cancelled() {
                continue;
            }
        }
        let wake_at = shared.state.lock().next_wake().filter(|_| running.len() < in_flight_max);
        let due = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        // All arms are cancel-safe.
        tokio::select! {
            () = stop.cancelled() => break,
            () = shared.wake.notified() => {}
            Some(answer) = running.join_next() => shared.tell(answer)?,
            () = due => {}
        }
    }
    // Requests in flight are completed, as far as the server answers.
    let ended = async {
        while let Some(answer) = running.join_next().await {
            answer.map_err(RunError::Request)?;
        }
        requests.flush().await;
        Ok(())
    };
    tokio::time::timeout(END_MAX, ended).await.unwrap_or_else(|_| {
        tracing::warn!("requests of the scheduler were given up: the server or an extender does not answer");
        Ok(())
    })
}

// === impl Shared ===

impl Shared {
    /// Decides on the next Pod, if one is queued.
    fn next(&self) -> Option<Effect> {
        let mut state = self.state.lock();
        let effect = state.next(Instant::now());
        // Waiting informer handlers get the lock before the next decision.
        MutexGuard::unlock_fair(state);
        effect
    }

    /// Passes the outcome of a request to the state.
    fn tell(&self, answer: Result<Answer, JoinError>) -> Result<(), RunError> {
        answer.map_err(RunError::Request)?.tell(&mut self.state.lock(), Instant::now());
        Ok(())
    }
}

// === impl Inputs ===

impl Inputs {
    fn of(informers: &InformerFactory) -> Inputs {
        Inputs {
            budgets: informers.informer(Scope::All),
            capacities: informers.informer(Scope::All),
            claims: informers.informer(Scope::All),
            classes: informers.informer(Scope::All),
            csi_nodes: informers.informer(Scope::All),
            drivers: informers.informer(Scope::All),
            namespaces: informers.informer(Scope::All),
            nodes: informers.informer(Scope::All),
            pods: informers.informer(Scope::All),
            services: informers.informer(Scope::All),
            volumes: informers.informer(Scope::All),
            replica_sets: informers.informer::<ReplicaSet>(Scope::All).lister(),
            replication_controllers: informers.informer::<ReplicationController>(Scope::All).lister(),
            stateful_sets: informers.informer::<StatefulSet>(Scope::All).lister(),
        }
    }

    /// A function that finds the selectors of Pods' owners.
    fn owner_selectors(&self) -> cluster::OwnerSelectors {
        let replica_sets = self.replica_sets.clone();
        let replication_controllers = self.replication_controllers.clone();
        let stateful_sets = self.stateful_sets.clone();
        Box::new(move |namespace: &str, owner: &Owner| {
            let key = ObjectKey::namespaced(namespace, &owner.name);
            match owner.kind.as_str() {
                "ReplicaSet" => {
                    let replica_set = replica_sets.get(&key).ok()?;
                    Some(Selector::read(Some(&replica_set.spec.selector)))
                }
                "ReplicationController" => {
                    let spec = replication_controllers.get(&key).ok()?.spec.clone()?;
                    Some(Selector::of_labels(&spec.selector.unwrap_or_default()))
                }
                _ => {
                    let stateful_set = stateful_sets.get(&key).ok()?;
                    Some(Selector::read(Some(&stateful_set.spec.selector)))
                }
            }
        })
    }

    /// Keeps the state in step with the informers.
    fn watch(&self, shared: &Arc<Shared>) -> Vec<Handler> {
        vec![
            watch(&self.namespaces, shared, |state, key, namespace, _| {
                let labels = |namespace: &Namespace| namespace.metadata.labels.clone().unwrap_or_default();
                state.namespace_changed(key.name(), namespace.map(labels));
            }),
            watch(&self.nodes, shared, |state, key, node, now| match node {
                Some(node) => state.node_changed(node, now),
                None => state.node_gone(key.name(), now),
            }),
            watch(&self.pods, shared, |state, key, pod, now| match pod {
                Some(pod) => state.pod_changed(pod, now),
                None => state.pod_gone(key, now),
            }),
            watch(&self.services, shared, |state, key, service, _| {
                let selector = service.and_then(|service| service.spec.as_ref()?.selector.clone());
                state.service_changed(key, selector);
            }),
            watch(&self.budgets, shared, |state, key, budget, _| state.budget_changed(key, budget)),
            watch(&self.claims, shared, |state, key, claim, now| state.claim_changed(key, claim, now)),
            watch(&self.volumes, shared, |state, key, volume, now| state.volume_changed(key.name(), volume, now)),
            watch(&self.classes, shared, |state, key, class, now| {
                state.storage_changed(&Event::Class, now, |volumes| volumes.set_class(key.name(), class));
            }),
            watch(&self.csi_nodes, shared, |state, key, node, now| {
                state.storage_changed(&Event::CsiNode, now, |volumes| volumes.set_csi_node(key.name(), node));
            }),
            watch(&self.drivers, shared, |state, key, driver, now| {
                state.storage_changed(&Event::Driver, now, |volumes| volumes.set_driver(key.name(), driver));
            }),
            watch(&self.capacities, shared, |state, key, capacity, now| {
                state.storage_changed(&Event::Capacity, now, |volumes| volumes.set_capacity(key, capacity));
            }),
        ]
    }
}

/// Applies every change to the state, and wakes the task if it has work.
fn watch<K: CachedResource>(
    informer: &Informer<K>,
    shared: &Arc<Shared>,
    apply: impl Fn(&mut State, &ObjectKey, Option<&K>, Instant) + Send + 'static,
) -> Handler {
    let shared: Weak<Shared> = Arc::downgrade(shared);
    let registration = Arc::new(informer.add_handler(handler_fn(move |change: Change<'_, K>| {
        let Some(shared) = shared.upgrade() else { return };
        let now = Instant::now();
        let mut state = shared.state.lock();
        match change {
            Change::Added(object, _) | Change::Updated { new: object, .. } => {
                apply(&mut state, &ObjectKey::of(&**object), Some(object), now);
            }
            Change::Deleted(Deleted::Final(object)) => apply(&mut state, &ObjectKey::of(&**object), None, now),
            Change::Deleted(Deleted::Tombstone { key, .. }) => apply(&mut state, key, None, now),
            Change::Undecodable(_) => return,
        }
        let is_ready = state.is_ready(now);
        drop(state);
        if is_ready {
            shared.wake.notify_one();
        }
    })));
    let to_sync = Arc::clone(&registration);
    Handler {
        synced: async move { to_sync.synced().await }.boxed(),
        remove: async move {
            if let Some(registration) = Arc::into_inner(registration) {
                registration.remove().await;
            }
        }
        .boxed(),
    }
}
