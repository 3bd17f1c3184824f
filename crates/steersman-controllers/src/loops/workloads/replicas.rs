//! Keeps the number of Pods of a ReplicaSet or a ReplicationController at the desired one: the loops `replicaset` and
//! `replicationcontroller`.
//!
//! Follows upstream's `pkg/controller/replicaset`, which is also one implementation for both kinds. [`kind`] has the
//! differences between them, [`plan`] decides, and this file reads, writes and maps events to keys. In place of
//! expectations, a key is held back until the caches have the writes that were made for it.

mod kind;
mod plan;

use crate::loops::workloads::replicas::kind::{Desired, Kind};
use crate::loops::workloads::replicas::plan::{Counts, Failure, Step};
use crate::settings::Parts;
use crate::shared::dependents::{Claim, Dependents};
use crate::shared::pods::control::{self, PodControl};
use crate::shared::pods::{self, ranking};
use crate::shared::refusal::{self, Error, Refused};
use crate::shared::selectors::Selectors;
use crate::shared::stale;
use futures::StreamExt as _;
use futures::stream;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, ReplicationController};
use kube::{Api, Client};
use std::sync::Arc;
use steersman::consistency::ConsistencyStore;
use steersman::{Action, Controller, Lister, LookupError, Manager, ObjectKey, Scope, owners, write};

/// The concurrent reconciles of each loop.
const WORKERS: usize = 16;

/// The most concurrent deletions of one owner's Pods.
const DELETIONS_MAX: usize = 64;

struct Context<K> {
    client: Client,
    clock: fn() -> Timestamp,
    objects: Lister<K>,
    pods: Dependents<Pod>,
    control: PodControl,
    /// Objects of the same kind by their controllers.
    siblings: Dependents<K>,
    written: ConsistencyStore,
}

/// Adds the loop `replicaset` to a manager.
pub(crate) fn add_sets(manager: Manager, parts: Parts<'_>) -> Manager {
    add::<ReplicaSet>(manager, parts)
}

/// Adds the loop `replicationcontroller` to a manager.
pub(crate) fn add_controllers(manager: Manager, parts: Parts<'_>) -> Manager {
    add::<ReplicationController>(manager, parts)
}

fn add<K: Kind>(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let objects = manager.informers().informer::<K>(Scope::All);
    let pods = manager.informers().informer::<Pod>(Scope::All);
    let selectors = Selectors::of(&objects, K::label_selector);
    let context = Context {
        control: PodControl::new(manager.informers(), client.clone(), K::COMPONENT),
        clock: settings.clock,
        client,
        pods: Dependents::of(&pods),
        siblings: Dependents::of(&objects),
        written: ConsistencyStore::new().covers(&objects.lister()).covers(&pods.lister()),
        objects: objects.lister(),
    };
    let controller = Controller::of(&objects, reconcile::<K>, context)
        .name(K::COMPONENT)
        .workers(WORKERS)
        .owns::<Pod>()
        .watches_metadata(&pods, selectors.into_adopters());
    manager.controller(controller)
}

async fn reconcile<K: Kind>(key: ObjectKey, cx: &Context<K>) -> Result<Action, Error> {
    if let Some(later) = stale::action(&cx.written, &key) {
        return Ok(later);
    }
    let Some(object) = cx.objects.find(&key)? else {
        cx.written.clear(&key);
        return Ok(Action::AwaitChange);
    };
    // A spec that validation would reject needs no work.
    let Some(wanted) = object.wanted() else { return Ok(Action::AwaitChange) };
    let claim = Claim { client: &cx.client, owner: &*object, selector: &wanted.selector };
    let active = claim.of_those(&cx.pods, pods::is_active).await?;
    let terminating = if K::COUNTS_TERMINATING { Some(terminating(cx, &*object, &wanted)?) } else { None };

    let (failure, error) = match plan::step(wanted.replicas, active.len()) {
        _ if object.meta().deletion_timestamp.is_some() => (None, None),
        Step::Nothing => (None, None),
        Step::Create(_) if cx.control.namespaces.is_ending(object.meta()) => (None, None),
        Step::Create(n) => failed(Failure::CREATE, create(&key, cx, &*object, &wanted, n).await),
        Step::Delete(n) => failed(Failure::DELETE, delete(&key, cx, &*object, active.clone(), n).await),
    };
    let now = (cx.clock)();
    let counts = Counts::of(&active, terminating, &wanted, now);
    let known = object.status();
    let status = plan::status(&known, &counts, failure, object.meta().generation, now);
    if status != known {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        let api = Api::<K>::namespaced(cx.client.clone(), namespace);
        if let Some(written) = refusal::replace_status(&api, &object.with_status(status)).await? {
            cx.written.wrote_at(&key, &written);
        }
    }
    match (error, counts.next_available) {
        (Some(error), _) => Err(error.into()),
        (None, Some(wait)) => Ok(Action::RequeueAfter(wait)),
        (None, None) => Ok(Action::AwaitChange),
    }
}

/// The failure for the status, and the error for the reconcile to return.
fn failed(reason: &'static str, error: Option<Refused>) -> (Option<Failure>, Option<Refused>) {
    let failure = error.as_ref().map(|error| Failure { reason, message: refusal::message(error.error()) });
    (failure, error)
}

/// The number of the object's Pods that are being deleted.
fn terminating<K: Kind>(cx: &Context<K>, object: &K, wanted: &Desired<'_>) -> Result<usize, LookupError> {
    let controlled = cx.pods.controlled_by(object.meta().uid.as_deref().unwrap_or_default())?;
    let is_counted = |pod: &&Arc<Pod>| {
        pods::is_terminating(pod)
            && !pods::is_terminal(pod)
            && crate::shared::dependents::selects(&wanted.selector, &pod.metadata)
    };
    Ok(controlled.iter().filter(is_counted).count())
}

/// Creates `n` Pods in growing batches, so that what a quota forbids is not tried hundreds of times. Returns the first
/// failure.
async fn create<K: Kind>(
    key: &ObjectKey,
    cx: &Context<K>,
    object: &K,
    wanted: &Desired<'_>,
    n: usize,
) -> Option<Refused> {
    let pod = control::from_template(object, wanted.template);
    let (_, error) = write::slow_start(n, |_| async {
        refusal::record_creation(&cx.written, key, cx.control.create(object, &pod).await).map(drop)
    })
    .await;
    // The cache does not show yet that the namespace is being deleted; nothing more can be created in it.
    error.filter(|error| !refusal::is_namespace_ending(error.error()))
}

/// Deletes the `n` Pods that rank lowest. Returns the first failure.
async fn delete<K: Kind>(
    key: &ObjectKey,
    cx: &Context<K>,
    object: &K,
    mut active: Vec<Arc<Pod>>,
    n: usize,
) -> Option<Refused> {
    if n < active.len() {
        let related = match related(cx, object) {
            Ok(related) => related,
            // Pods are ranked without it: the order is only a preference.
            Err(error) => {
                tracing::debug!(%error, "cannot read the related pods");
                Vec::new()
            }
        };
        let on_nodes = plan::count_by_node(&related);
        ranking::sort(
            &mut active,
            |pod| on_nodes.get(pods::node_name(pod).unwrap_or_default()).copied().unwrap_or(0),
            (cx.clock)(),
        );
        active.truncate(n);
    }
    let delete = |pod: Arc<Pod>| async move {
        let deleted = cx.control.delete(object, &pod).await;
        if deleted.is_ok() {
            cx.written.deleted(key, &*pod);
        }
        deleted.err()
    };
    let failures: Vec<Refused> =
        stream::iter(active).map(delete).buffer_unordered(DELETIONS_MAX).filter_map(std::future::ready).collect().await;
    failures.into_iter().next()
}

/// The Pods of all objects that have the same controller as this one, including this one's.
fn related<K: Kind>(cx: &Context<K>, object: &K) -> Result<Vec<Arc<Pod>>, LookupError> {
    let Some(controller) = owners::controller_of(object) else { return Ok(Vec::new()) };
    let mut pods = Vec::new();
    for sibling in cx.siblings.controlled_by(&controller.uid)? {
        pods.extend(cx.pods.controlled_by(sibling.meta().uid.as_deref().unwrap_or_default())?);
    }
    Ok(pods)
}
