//! Reconciles a claim: removes reservations of Pods that are gone or done, and deallocates it when none is left.

use crate::loops::storage::resource_claims::{Context, Error, FINALIZER, is_done};
use crate::shared::refusal::{self, Refused};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use std::sync::Arc;
use steersman::{Action, LookupError, ObjectKey, finalizers, owners};

pub(super) async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, Error> {
    let Some(claim) = cx.claims.find(&key)? else { return Ok(Action::AwaitChange) };
    let namespace = key.namespace().unwrap_or_default();
    let claims = Api::<ResourceClaim>::namespaced(cx.client.clone(), namespace);
    let reserved = claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default();
    let mut remaining = Vec::with_capacity(reserved.len());
    for consumer in reserved {
        if still_reserves(cx, namespace, consumer).await? {
            remaining.push(consumer.clone());
        }
    }
    let is_protected = finalizers::contains(&*claim, FINALIZER);
    let is_released = remaining.len() < reserved.len();
    let is_unused = remaining.is_empty();
    if is_released || (is_protected && finalizers::is_deleting(&*claim) && is_unused) {
        release(&claims, &claim, remaining).await?;
    }
    if is_unused && is_of_done_pod(cx, namespace, &claim)? {
        let preconditions = Preconditions { uid: claim.metadata.uid.clone(), resource_version: None };
        match claims.delete(key.name(), &DeleteParams::default().preconditions(preconditions)).await {
            Ok(_) => {}
            Err(error) if refusal::is_outdated(&error) => {}
            Err(error) => return Err(Refused::to(format!("delete unused generated claim {key}"))(error).into()),
        }
    }
    Ok(Action::AwaitChange)
}

/// Whether the holder of a reservation may still need the claim. Holders other than Pods are kept.
async fn still_reserves(cx: &Context, namespace: &str, by: &ResourceClaimConsumerReference) -> Result<bool, Error> {
    if by.resource != "pods" || by.api_group.as_deref().is_some_and(|group| !group.is_empty()) {
        return Ok(true);
    }
    let needs = |pod: &Pod| pod.metadata.uid.as_deref() == Some(&*by.uid) && !is_done(pod);
    if let Some(pod) = cx.pods.find(&ObjectKey::namespaced(namespace, &by.name))? {
        return Ok(needs(&pod));
    }
    // The cache may not have the Pod yet.
    let pods = Api::<Pod>::namespaced(cx.client.clone(), namespace);
    let found = pods.get_opt(&by.name).await.map_err(Refused::to(format!("read the pod {:?}", by.name)))?;
    Ok(found.is_some_and(|pod| needs(&pod)))
}

/// Removes reservations from a claim, and with the last one its allocation and its finalizer. If the claim has changed
/// since it was read, an event follows.
async fn release(
    claims: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    remaining: Vec<ResourceClaimConsumerReference>,
) -> Result<(), Refused> {
    let mut claim = claim.clone();
    let is_protected = finalizers::contains(&claim, FINALIZER);
    let status = claim.status.get_or_insert_default();
    if remaining.is_empty() && is_protected {
        status.allocation = None;
    }
    status.reserved_for = Some(remaining).filter(|remaining| !remaining.is_empty());
    let Some(mut claim) = refusal::replace_status(claims, &claim).await? else { return Ok(()) };
    let is_allocated = claim.status.as_ref().is_some_and(|status| status.allocation.is_some());
    if is_allocated || !finalizers::contains(&claim, FINALIZER) {
        return Ok(());
    }
    claim.metadata.finalizers.get_or_insert_default().retain(|one| one != FINALIZER);
    let name = claim.metadata.name.clone().unwrap_or_default();
    match claims.replace(&name, &PostParams::default(), &claim).await {
        Ok(_) => Ok(()),
        Err(error) if refusal::is_outdated(&error) => Ok(()),
        Err(error) => Err(Refused::to(format!("remove the finalizer of the claim {name:?}"))(error)),
    }
}

/// Whether a claim was created for a Pod that is done or was replaced. The claim of a Pod that is gone is left to the
/// garbage collector.
fn is_of_done_pod(cx: &Context, namespace: &str, claim: &ResourceClaim) -> Result<bool, LookupError> {
    let Some(owner) = owners::controller_of(claim) else { return Ok(false) };
    if owner.kind != "Pod" || owner.api_version != "v1" {
        return Ok(false);
    }
    let pod = cx.pods.find(&ObjectKey::namespaced(namespace, &owner.name))?;
    Ok(pod.is_some_and(|pod| pod.metadata.uid.as_deref() != Some(&*owner.uid) || is_done(&pod)))
}
