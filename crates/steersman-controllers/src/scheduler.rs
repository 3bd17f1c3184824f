//! The scheduler: finds a node for each Pod that has none, and binds it there.
//!
//! Whoever simulates nodes runs it, with [`Scheduler::add`]. Behaves as kube-scheduler with its default profile: the same rules for
//! which nodes will do and which is best, the same order of Pods, preemption, and sentences in conditions and Events. What is missing:
//! dynamic resource allocation, Pod groups, extenders, profiles of one's own.
//!
//! `state` is the scheduler without requests, and `cycle` a single decision; both are pure. This file feeds the one from informers,
//! and sends what it wants sent (`requests`), many Pods at a time.

mod affinity;
mod cluster;
mod cycle;
mod hints;
mod node;
mod pod;
mod preempt;
mod queue;
mod requests;
mod resources;
mod spread;
mod state;
mod taints;
mod volumes;

#[cfg(test)]
mod tests;

use crate::labels::Selector;
use crate::scheduler::hints::Event;
use crate::scheduler::pod::Owner;
use crate::scheduler::requests::{Answer, Requests};
use crate::scheduler::state::State;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use k8s_openapi::api::apps::v1::{ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, Service,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::{CSIDriver, CSINode, CSIStorageCapacity, StorageClass};
use kube::Client;
use parking_lot::Mutex;
use std::convert::Infallible;
use std::sync::{Arc, Weak};
use std::time::Duration;
use steersman::cache::{CachedResource, Change, Deleted, Informer, InformerFactory, handler_fn};
use steersman::{Lister, Manager, ObjectKey, Scope};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How many Pods' requests are under way at the same time.
const REQUESTS_MAX: usize = 64;

/// How long requests that are under way at the end may take.
const END_MAX: Duration = Duration::from_secs(5);

/// The scheduler of a cluster.
#[derive(Debug)]
pub struct Scheduler;

/// What the handlers of informers and the task of the scheduler share.
struct Shared {
    state: Mutex<State>,
    /// Rung when the state has something to do.
    wake: Notify,
}

/// What the scheduler reads.
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

/// A handler that was added.
struct Handler {
    synced: BoxFuture<'static, ()>,
    remove: BoxFuture<'static, ()>,
}

// === impl Scheduler ===

impl Scheduler {
    /// The user that the client given to [`Scheduler::add`] is to act as.
    pub const USER: &str = "system:kube-scheduler";

    /// Puts the scheduler into a manager, whose informers it reads from. `client` acts as [`Scheduler::USER`].
    pub fn add(manager: Manager, client: Client) -> Manager {
        let inputs = Inputs::of(manager.informers());
        manager.run_leading("scheduler", |stop| run(inputs, client, stop))
    }
}

/// Schedules until `stop` is cancelled.
async fn run(inputs: Inputs, client: Client, stop: CancellationToken) -> Result<(), Infallible> {
    let state = State::new(inputs.owner_selectors(), rand::random());
    let shared = Arc::new(Shared { state: Mutex::new(state), wake: Notify::new() });
    let (synced, removals): (Vec<_>, Vec<_>) =
        inputs.watch(&shared).into_iter().map(|handler| (handler.synced, handler.remove)).unzip();
    // Decisions from half of the cluster would be bad ones.
    tokio::select! {
        () = stop.cancelled() => {}
        _ = join_all(synced) => work(&shared, Requests::new(client), &stop).await,
    }
    join_all(removals).await;
    Ok(())
}

async fn work(shared: &Arc<Shared>, requests: Requests, stop: &CancellationToken) {
    let mut running: JoinSet<Answer> = JoinSet::new();
    loop {
        let next = if running.len() < REQUESTS_MAX { shared.state.lock().next(Instant::now()) } else { None };
        if let Some(effect) = next {
            let requests = requests.clone();
            running.spawn(async move { requests.send(effect).await });
            // Answers that are there are taken before the next decision, and others get their turn.
            while let Some(Ok(answer)) = running.try_join_next() {
                answer.tell(&mut shared.state.lock(), Instant::now());
            }
            tokio::task::consume_budget().await;
            if !stop.is_cancelled() {
                continue;
            }
        }
        let wake_at = shared.state.lock().next_wake().filter(|_| running.len() < REQUESTS_MAX);
        let due = async {
            match wake_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        // All are cancel-safe.
        tokio::select! {
            () = stop.cancelled() => break,
            () = shared.wake.notified() => {}
            Some(Ok(answer)) = running.join_next() => answer.tell(&mut shared.state.lock(), Instant::now()),
            () = due => {}
        }
    }
    // What was decided is carried out, as far as the server answers.
    let ended = async {
        while running.join_next().await.is_some() {}
        requests.flush().await;
    };
    if tokio::time::timeout(END_MAX, ended).await.is_err() {
        tracing::warn!("the server does not answer: requests of the scheduler were given up");
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

    /// Finds the selectors of the owners of Pods.
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

    /// Keeps the state as the informers say.
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

/// Tells the state of every change, and its task if there is something to do.
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
