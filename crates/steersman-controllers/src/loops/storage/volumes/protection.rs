//! Keeps claims while Pods use them, and volumes while claims are bound to them.
//!
//! Follows upstream's pvc- and pv-protection controllers. The finalizers are usually set by the admission plugin
//! StorageObjectInUseProtection; an object without one gets it here. Before a claim is released, the Pods of its
//! namespace are listed again, since the cache may lack a Pod that has just started to use it. One list serves all
//! claims that were being deleted before it began: no Pod starts to use one of those.

use crate::loops::storage::volumes::{claims_of_pod, ephemeral};
use crate::settings::Parts;
use crate::shared::dependents;
use crate::shared::pods;
use crate::shared::refusal::{self, Error, Refused};
use futures::future;
use hashbrown::HashMap;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::sync::Arc;
use steersman::cache::{Change, Index};
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope, finalizers};

const OF_CLAIMS: &str = "kubernetes.io/pvc-protection";
const OF_VOLUMES: &str = "kubernetes.io/pv-protection";
/// The page size of that list.
const PAGE: u32 = 500;

struct Claims {
    client: Client,
    claims: Lister<PersistentVolumeClaim>,
    by_claim: Index<Pod, ObjectKey>,
    /// Claims that are being deleted, by namespace.
    deleting: Index<PersistentVolumeClaim, String>,
    /// The uids of claims that no Pod used in a list that began after their deletion. Bounded by the claims that are
    /// being deleted.
    unused: Mutex<HashMap<ObjectKey, String>>,
}

struct Volumes {
    client: Client,
    volumes: Lister<PersistentVolume>,
}

/// Adds the loop that protects claims to a manager.
pub(crate) fn add_for_claims(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let (pods, claims) =
        (informers.informer::<Pod>(Scope::All), informers.informer::<PersistentVolumeClaim>(Scope::All));
    let deleting = claims
        .add_metadata_index(|metadata| metadata.deletion_timestamp.as_ref().and_then(|_| metadata.namespace.clone()));
    let context = Claims {
        client,
        claims: claims.lister(),
        by_claim: pods.add_index(claims_of_pod),
        deleting: deleting.clone(),
        unused: Mutex::default(),
    };
    let known = claims.lister();
    let controller = Controller::of(&claims, protect_claim, context)
        .name("pvc-protection-controller")
        .when(needs_work(OF_CLAIMS))
        .watches_changes(&pods, move |change: &Change<'_, Pod>| {
            let Some(pod) = change.object() else { return Vec::new() };
            // Most namespaces have no claim that is being deleted, and then nothing else is checked.
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            if deleting.count(namespace).is_ok_and(|n| n == 0) {
                return Vec::new();
            }
            let may_release = matches!(change, Change::Deleted(_)) || pods::is_terminal(pod) || is_shut_down(pod);
            let mut claims = if may_release { claims_of_pod(pod) } else { Vec::new() };
            // The Pod replaced another of the same name, whose deletion was missed.
            if let Change::Updated { old, .. } = change
                && let Some(old) = old.object().filter(|old| old.metadata.uid != pod.metadata.uid)
            {
                claims.extend(claims_of_pod(old));
            }
            let waits = |key: &ObjectKey| known.get(key).is_ok_and(|claim| finalizers::is_deleting(&*claim));
            claims.into_iter().filter(waits).collect()
        });
    manager.controller(controller)
}

/// Adds the loop that protects volumes to a manager.
pub(crate) fn add_for_volumes(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let volumes = manager.informers().informer::<PersistentVolume>(Scope::All);
    let context = Volumes { client, volumes: volumes.lister() };
    let controller =
        Controller::of(&volumes, protect_volume, context).name("pv-protection-controller").when(needs_work(OF_VOLUMES));
    manager.controller(controller)
}

/// Whether an object lacks the finalizer and is not being deleted, or has it and is being deleted.
pub(super) fn needs_work<K: Resource>(finalizer: &'static str) -> impl Fn(&Change<'_, K>) -> bool {
    move |change| {
        let Some(object) = change.object() else { return false };
        finalizers::is_deleting(object) == finalizers::contains(object, finalizer)
    }
}

async fn protect_claim(key: ObjectKey, cx: &Claims) -> Result<Action, Error> {
    let Some(claim) = cx.claims.find(&key)? else {
        cx.unused.lock().remove(&key);
        return Ok(Action::AwaitChange);
    };
    let api = Api::<PersistentVolumeClaim>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    keep(&api, &*claim, OF_CLAIMS, is_used(cx, &key, &claim)).await
}

async fn protect_volume(key: ObjectKey, cx: &Volumes) -> Result<Action, Error> {
    let Some(volume) = cx.volumes.find(&key)? else { return Ok(Action::AwaitChange) };
    let api = Api::<PersistentVolume>::all(cx.client.clone());
    let is_bound = volume.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
    keep(&api, &*volume, OF_VOLUMES, future::ok(is_bound)).await
}

/// Adds the finalizer to an object, or removes it if the object is being deleted and not in use. `is_used` is awaited
/// only in the latter case.
pub(super) async fn keep<K>(
    api: &Api<K>,
    object: &K,
    finalizer: &str,
    is_used: impl Future<Output = Result<bool, Error>>,
) -> Result<Action, Error>
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()> + Serialize,
{
    match (finalizers::is_deleting(object), finalizers::contains(object, finalizer)) {
        (true, true) if !is_used.await? => with_finalizer(api, object, finalizer, false).await?,
        (false, false) => with_finalizer(api, object, finalizer, true).await?,
        _ => {}
    }
    Ok(Action::AwaitChange)
}

/// Whether a Pod with a node uses a claim: by the cache, and if none is found there, by the server.
async fn is_used(cx: &Claims, key: &ObjectKey, claim: &PersistentVolumeClaim) -> Result<bool, Error> {
    if cx.by_claim.get(key)?.iter().any(|pod| uses(pod, claim)) {
        return Ok(true);
    }
    let uid = claim.metadata.uid.as_deref().unwrap_or_default();
    let is_unused = || cx.unused.lock().get(key).is_some_and(|unused| unused == uid);
    if !is_unused() {
        let unused = list_unused(cx, key.namespace().unwrap_or_default()).await?;
        cx.unused.lock().extend(unused);
    }
    Ok(!is_unused())
}

/// The claims of a namespace that are being deleted and that no Pod on the server uses, with their uids.
async fn list_unused(cx: &Claims, namespace: &str) -> Result<HashMap<ObjectKey, String>, Error> {
    let deleting = cx.deleting.get(namespace)?;
    let mut unused: HashMap<ObjectKey, Arc<PersistentVolumeClaim>> =
        deleting.into_iter().map(|claim| (ObjectKey::of(&*claim), claim)).collect();
    let pods = Api::<Pod>::namespaced(cx.client.clone(), namespace);
    let mut page = ListParams::default().limit(PAGE);
    while !unused.is_empty() {
        let list = pods.list(&page).await.map_err(Refused::to("list the pods that may use claims"))?;
        for pod in &list.items {
            for claim in claims_of_pod(pod) {
                if unused.get(&claim).is_some_and(|claim| uses(pod, claim)) {
                    unused.remove(&claim);
                }
            }
        }
        match list.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => break,
        }
    }
    Ok(unused.into_iter().map(|(key, claim)| (key, claim.metadata.uid.clone().unwrap_or_default())).collect())
}

fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let Some(name) = claim.metadata.name.as_deref() else { return false };
    if pods::node_name(pod).is_none() {
        return false;
    }
    spec.volumes.iter().flatten().any(|volume| {
        let is_named = volume.persistent_volume_claim.as_ref().is_some_and(|named| named.claim_name == name);
        let is_own = volume.ephemeral.is_some()
            && !is_shut_down(pod)
            && ephemeral::claim_name(pod, &volume.name) == name
            && dependents::is_controlled_by(claim, pod.metadata.uid.as_deref());
        is_named || is_own
    })
}

/// Whether the node is done with a Pod, so that only finalizers hold it.
fn is_shut_down(pod: &Pod) -> bool {
    pods::is_terminating(pod) && pod.metadata.deletion_grace_period_seconds == Some(0)
}

/// Replaces an object with or without a finalizer: the loops' accounts may update it and not patch it. If it has
/// changed since it was read, an event follows.
async fn with_finalizer<K>(api: &Api<K>, object: &K, finalizer: &str, is_wanted: bool) -> Result<(), Refused>
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = ()> + Serialize,
{
    let mut object = object.clone();
    let all = object.meta_mut().finalizers.get_or_insert_default();
    all.retain(|one| one != finalizer);
    if is_wanted {
        all.push(finalizer.to_owned());
    }
    let name = object.meta().name.clone().unwrap_or_default();
    match api.replace(&name, &PostParams::default(), &object).await {
        Ok(_) => Ok(()),
        Err(error) if refusal::is_outdated(&error) => Ok(()),
        Err(error) => Err(Refused::to(format!("change the finalizers of {name:?}"))(error)),
    }
}
