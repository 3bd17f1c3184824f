//! Handles a Pod with resource claims: creates those that it defines by template, and reserves them once it has a node.

use crate::loops::storage::resource_claims::{Context, Error, Named, POD_CLAIM, claims_in_spec, named};
use crate::shared::dependents;
use crate::shared::pods;
use crate::shared::refusal::{self, Refused};
use crate::shared::stale;
use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use steersman::events::EventType;
use steersman::{Action, ObjectKey};

const FIELD_MANAGER: &str = "ResourceClaimController";
/// The longest prefix of a name that leaves room for a hyphen and five characters.
const BASE_LEN_MAX: usize = 57;
/// How many Pods may have reserved a claim.
const RESERVED_MAX: usize = 256;

pub(super) async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, Error> {
    if let Some(action) = stale::action(&cx.written, &key) {
        return Ok(action);
    }
    let Some(pod) = cx.pods.find(&key)? else { return Ok(Action::AwaitChange) };
    if pod.metadata.deletion_timestamp.is_some() {
        return Ok(Action::AwaitChange);
    }
    let mut made = BTreeMap::new();
    for entry in claims_in_spec(&pod) {
        match ensure(cx, &key, &pod, entry).await {
            Ok(None) => {}
            Ok(Some(name)) => {
                made.insert(entry.name.clone(), name);
            }
            Err(error) => {
                let note = format!("PodResourceClaim {}: {}", entry.name, reason(&error));
                cx.events.event(&*pod, EventType::Warning, "FailedResourceClaimCreation", &note);
                return Err(error);
            }
        }
    }
    if !made.is_empty() {
        name_in_status(cx, &key, &made).await?;
        // The event of the status update continues the work.
        return Ok(Action::AwaitChange);
    }
    reserve(cx, &key, &pod).await?;
    Ok(Action::AwaitChange)
}

fn reason(error: &Error) -> String {
    match error {
        Error::Refused(refused) => format!("{refused}: {}", refusal::message(refused.error())),
        error => error.to_string(),
    }
}

/// The name of the claim of an entry, if the status should have it.
async fn ensure(
    cx: &Context,
    pod_key: &ObjectKey,
    pod: &Pod,
    entry: &PodResourceClaim,
) -> Result<Option<String>, Error> {
    let namespace = pod_key.namespace().unwrap_or_default();
    match named(pod, entry) {
        Named::ByUser(_) | Named::NotNeeded => return Ok(None),
        Named::Made(name) => {
            let claim = cx.claims.find(&ObjectKey::namespaced(namespace, name))?;
            if claim.is_some_and(|claim| is_for(&claim, pod)) {
                return Ok(None);
            }
            // The claim is deleted, or belongs to another Pod now: a new one is created.
        }
        Named::Unknown => {}
    }
    let Some(template_name) = &entry.resource_claim_template_name else { return Ok(None) };
    // A claim that was created before the status could be written.
    let owned = cx.by_owner.get(pod.metadata.uid.as_deref().unwrap_or_default())?;
    let is_of_entry = |claim: &Arc<ResourceClaim>| {
        claim.metadata.annotations.as_ref().and_then(|all| all.get(POD_CLAIM)) == Some(&entry.name)
    };
    if let Some(claim) = owned.iter().find(|claim| is_of_entry(claim)) {
        return Ok(claim.metadata.name.clone());
    }
    let Some(template) = cx.templates.find(&ObjectKey::namespaced(namespace, template_name))? else {
        let message = format!(
            "resource claim template {template_name:?}: resourceclaimtemplate.resource.k8s.io {template_name:?} not found"
        );
        return Err(Error::Claim { message });
    };
    let spec = template.spec.clone().unwrap_or_default();
    let described = spec.metadata.unwrap_or_default();
    let mut annotations = described.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), entry.name.clone());
    let claim = ResourceClaim {
        metadata: ObjectMeta {
            annotations: Some(annotations),
            generate_name: Some(generate_name(pod_key.name(), &entry.name)),
            labels: described.labels,
            owner_references: pod.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: spec.spec,
        status: None,
    };
    let claims = Api::<ResourceClaim>::namespaced(cx.client.clone(), namespace);
    let claim = claims.create(&PostParams::default(), &claim).await.map_err(Refused::to("create ResourceClaim"));
    Ok(refusal::record_creation(&cx.written, pod_key, claim)?.metadata.name)
}

/// The prefix of a claim's name: the names of the Pod and of the entry, cut in proportion if they are too long.
fn generate_name(pod: &str, entry: &str) -> String {
    let whole = format!("{pod}-{entry}-");
    if whole.len() <= BASE_LEN_MAX {
        return whole;
    }
    let cut = |text: &str| text.chars().take(text.len() * BASE_LEN_MAX / whole.len()).collect::<String>();
    format!("{}-{}", cut(pod), cut(entry))
}

fn is_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    dependents::is_controlled_by(claim, pod.metadata.uid.as_deref())
}

/// Writes the names of new claims into the status of a Pod.
async fn name_in_status(cx: &Context, key: &ObjectKey, made: &BTreeMap<String, String>) -> Result<(), Refused> {
    let statuses: Vec<_> = made.iter().map(|(name, claim)| json!({"name": name, "resourceClaimName": claim})).collect();
    let patch = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": key.name(), "namespace": key.namespace()},
        "status": {"resourceClaimStatuses": statuses},
    });
    let pods = Api::<Pod>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    match pods.patch_status(key.name(), &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(patch)).await {
        Ok(pod) => {
            cx.written.wrote_at(key, &pod);
            Ok(())
        }
        Err(error) if refusal::is_outdated(&error) => Ok(()),
        Err(error) => Err(Refused::to("write the names of the pod's claims")(error)),
    }
}

/// Reserves the allocated claims of a Pod that got its node without the scheduler.
async fn reserve(cx: &Context, key: &ObjectKey, pod: &Pod) -> Result<(), Error> {
    if pods::node_name(pod).is_none() {
        return Ok(());
    }
    let namespace = key.namespace().unwrap_or_default();
    for entry in claims_in_spec(pod) {
        let (name, is_made) = match named(pod, entry) {
            Named::ByUser(name) => (name, false),
            Named::Made(name) => (name, true),
            Named::NotNeeded | Named::Unknown => continue,
        };
        let Some(claim) = cx.claims.find(&ObjectKey::namespaced(namespace, name))? else { return Ok(()) };
        if is_made && !is_for(&claim, pod) {
            let message = format!("ResourceClaim {namespace}/{name} was not created for pod {key} (pod is not owner)");
            return Err(Error::Claim { message });
        }
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let Some(status) = claim.status.clone().filter(|status| status.allocation.is_some()) else { continue };
        let mut reserved = status.reserved_for.clone().unwrap_or_default();
        if reserved.len() >= RESERVED_MAX || reserved.iter().any(|one| one.uid == uid) {
            continue;
        }
        let pod = ResourceClaimConsumerReference {
            api_group: None,
            name: key.name().to_owned(),
            resource: "pods".to_owned(),
            uid,
        };
        reserved.push(pod);
        let mut claim = (*claim).clone();
        claim.status =
            Some(k8s_openapi::api::resource::v1::ResourceClaimStatus { reserved_for: Some(reserved), ..status });
        let claims = Api::<ResourceClaim>::namespaced(cx.client.clone(), namespace);
        if let Some(claim) = refusal::replace_status(&claims, &claim).await? {
            cx.written.wrote_at(key, &claim);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_claims_keep_something_of_both_names() {
        assert_eq!(generate_name("dev", "gpu"), "dev-gpu-");
        let (pod, entry) = ("p".repeat(200), "e".repeat(60));
        let name = generate_name(&pod, &entry);
        assert!(name.len() <= BASE_LEN_MAX && name.contains("p-e"), "{name}");
    }
}
