//! `NodeRestriction`: limits the writes of kubelets, beyond the node authorizer, to their own node, the status of their
//! own pods, and tokens of their own pods. Follows kubernetes' `plugin/pkg/admission/noderestriction`.

mod audience;
mod labels;

use crate::access::authn::common_name;
use crate::access::pod_references::{self, items};
use crate::shared::operation::ResourceAttributes;
use crate::shared::status::Failure;
use crate::write::admission::plugin::{Action, Phase, Plugin, Review, Unfinished, find, forbidden};
use futures::future::BoxFuture;
use steersman_kinds::builtin::access::certificate_signing_request as requests;
use steersman_machinery::value::{at, remove_at, str_at};
use steersman_machinery::{GroupResource, ObjectKey, Value};

/// The namespace in which nodes renew their leases.
const LEASES: &str = "kube-node-lease";
/// The signers of nodes' certificates.
const SIGNERS: [&str; 2] = ["kubernetes.io/kube-apiserver-client-kubelet", "kubernetes.io/kubelet-serving"];
/// The restricted resources.
const RESTRICTED: [(&str, &str); 8] = [
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "pods"),
    ("", "serviceaccounts"),
    (requests::GROUP, requests::PLURAL),
    ("coordination.k8s.io", "leases"),
    ("resource.k8s.io", "resourceslices"),
    ("storage.k8s.io", "csinodes"),
];

#[derive(Debug)]
pub(crate) struct NodeRestriction;

/// Why a write is refused.
enum Refusal {
    Failed(Failure),
    Forbidden(String),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Refusal {
        Refusal::Failed(failure)
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Forbidden(why)
    }
}

impl From<&str> for Refusal {
    fn from(why: &str) -> Refusal {
        Refusal::Forbidden(why.to_owned())
    }
}

impl Plugin for NodeRestriction {
    fn unfinished(&self) -> Unfinished {
        Unfinished::Update
    }

    fn handles(&self, phase: Phase, _action: Action, attributes: &ResourceAttributes<'_>) -> bool {
        phase == Phase::Mutate && RESTRICTED.iter().any(|(group, resource)| attributes.is_about(group, resource))
    }

    fn mutate<'a>(
        &'a self,
        review: &'a mut Review<'_, '_>,
        new: Option<&'a mut Value>,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let Some(node) = review.operation.user.node_name() else { return Box::pin(async { Ok(()) }) };
        Box::pin(async move {
            let new = new.as_deref();
            match check(review, node, new).await {
                Ok(()) => Ok(()),
                Err(Refusal::Failed(failure)) => Err(failure),
                Err(Refusal::Forbidden(why)) => Err(forbidden(review, new, &why)),
            }
        })
    }
}

async fn check(review: &Review<'_, '_>, node: &str, new: Option<&Value>) -> Result<(), Refusal> {
    if node.is_empty() {
        return Err(format!("could not determine node from user {:?}", review.operation.user.name).into());
    }
    let attributes = &review.operation.attributes;
    let subresource = attributes.subresource.unwrap_or_default();
    match (attributes.resource, subresource) {
        ("pods", "") => check_pod(review, node, new).await,
        ("pods", "status") => check_pod_status(review, node, new),
        ("pods", "eviction") => {
            let why = format!("node {node} can only evict pods with spec.nodeName set to itself");
            check_pod_is_own(review, node, new, &why).await
        }
        ("pods", other) => {
            Err(format!("unexpected pod subresource {other:?}, only 'status' and 'eviction' are allowed").into())
        }
        ("nodes", _) => check_node(review, node, new),
        ("persistentvolumeclaims", "status") => check_claim_status(review, node, new),
        ("persistentvolumeclaims", _) => Err("may only update PVC status".into()),
        ("serviceaccounts", "token") if review.action == Action::Create => check_token(review, node, new).await,
        ("leases", _) => {
            if attributes.namespace != Some(LEASES) {
                return Err(format!("can only access leases in the {LEASES:?} system namespace").into());
            }
            check_name(review, node, new, "can only access node lease with the same name as the requesting node")
        }
        ("csinodes", _) => {
            check_name(review, node, new, "can only access CSINode with the same name as the requesting node")
        }
        ("resourceslices", _) => check_slice(review, node, new).await,
        (requests::PLURAL, "") if review.action == Action::Create => check_request(node, new),
        _ => Ok(()),
    }
}

/// The name of the written object; for a creation it is in the body.
fn name<'a>(review: &'a Review<'_, '_>, new: Option<&'a Value>) -> &'a str {
    match review.operation.name() {
        "" => new.and_then(|new| str_at(new, &["metadata", "name"])).unwrap_or_default(),
        name => name,
    }
}

fn check_name(review: &Review<'_, '_>, node: &str, new: Option<&Value>, why: &str) -> Result<(), Refusal> {
    if name(review, new) == node { Ok(()) } else { Err(why.into()) }
}

// === pods ===

async fn check_pod(review: &Review<'_, '_>, node: &str, new: Option<&Value>) -> Result<(), Refusal> {
    match (review.action, new) {
        (Action::Create, Some(pod)) => check_new_pod(review, node, pod).await,
        (Action::Delete, _) => {
            let why = format!("node {node:?} can only delete pods with spec.nodeName set to itself");
            check_pod_is_own(review, node, new, &why).await
        }
        _ => {
            Err(format!("unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods").into())
        }
    }
}

/// A node may only create mirror pods of the static pods that it runs, and these must not reference other objects.
async fn check_new_pod(review: &Review<'_, '_>, node: &str, pod: &Value) -> Result<(), Refusal> {
    if !pod_references::is_mirror(pod) {
        let annotation = pod_references::mirror_annotation();
        return Err(
            format!("pod does not have {annotation:?} annotation, node {node:?} can only create mirror pods").into()
        );
    }
    if str_at(pod, &["spec", "nodeName"]) != Some(node) {
        return Err(format!("node {node:?} can only create pods with spec.nodeName set to itself").into());
    }
    let owners: Vec<&Value> = items(pod, &["metadata", "ownerReferences"]).collect();
    let owner = match owners.as_slice() {
        [owner] => *owner,
        [] => return Err(format!("node {node:?} can only create pods with an owner reference set to itself").into()),
        _ => {
            return Err(
                format!("node {node:?} can only create pods with a single owner reference set to itself").into()
            );
        }
    };
    let text = |key| str_at(owner, &[key]).unwrap_or_default();
    let is_set = |key| at(owner, &[key]) == Some(&Value::Bool(true));
    if (text("apiVersion"), text("kind"), text("name")) != ("v1", "Node", node) {
        return Err(format!("node {node:?} can only create pods with an owner reference set to itself").into());
    }
    if !is_set("controller") {
        let why = format!("node {node:?} can only create pods with a controller owner reference set to itself");
        return Err(why.into());
    }
    if is_set("blockOwnerDeletion") {
        return Err(format!("node {node:?} must not set blockOwnerDeletion on an owner reference").into());
    }
    let nodes = GroupResource::new("", "nodes");
    let Some(own) = find(review.state, &nodes, &ObjectKey::cluster(node)).await? else {
        return Err(Failure::not_found(&nodes, node).into());
    };
    let uid = str_at(&own, &["metadata", "uid"]).unwrap_or_default();
    if text("uid") != uid {
        return Err(format!("node {node} UID mismatch: expected {} got {uid}", text("uid")).into());
    }
    match pod_references::first_kind(pod) {
        Some(kind) => Err(format!("node {node:?} can not create pods that reference {kind}").into()),
        None => Ok(()),
    }
}

async fn check_pod_is_own(review: &Review<'_, '_>, node: &str, new: Option<&Value>, why: &str) -> Result<(), Refusal> {
    let pod = pod(review, name(review, new)).await?;
    if str_at(&pod, &["spec", "nodeName"]) == Some(node) { Ok(()) } else { Err(why.into()) }
}

async fn pod(review: &Review<'_, '_>, name: &str) -> Result<Value, Refusal> {
    let (pods, namespace) = (GroupResource::new("", "pods"), review.operation.namespace().unwrap_or_default());
    let found = find(review.state, &pods, &ObjectKey::namespaced(namespace, name)).await?;
    found.ok_or_else(|| Failure::not_found(&pods, name).into())
}

fn check_pod_status(review: &Review<'_, '_>, node: &str, new: Option<&Value>) -> Result<(), Refusal> {
    let (Some(old), Some(new)) = (review.old, new) else {
        return Err("unexpected operation \"DELETE\"".into());
    };
    if str_at(old, &["spec", "nodeName"]) != Some(node) {
        return Err(
            format!("node {node:?} can only update pod status for pods with spec.nodeName set to itself").into()
        );
    }
    if is_other(old, new, &["metadata", "labels"]) {
        return Err(format!("node {node:?} cannot update labels through pod status").into());
    }
    if is_other(old, new, &["status", "resourceClaimStatuses"]) {
        return Err(format!("node {node:?} cannot update resource claim statues").into());
    }
    if is_other(old, new, &["status", "extendedResourceClaimStatus"]) {
        return Err(format!("node {node:?} cannot update extended resource claim status").into());
    }
    Ok(())
}

/// Whether a field of an object has changed. Absent and empty are equal.
fn is_other(old: &Value, new: &Value, path: &[&str]) -> bool {
    let part = |object| {
        at(object, path).filter(|part| match part {
            Value::Null => false,
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty(),
            _ => true,
        })
    };
    part(old) != part(new)
}

// === nodes, claims, slices, requests ===

fn check_node(review: &Review<'_, '_>, node: &str, new: Option<&Value>) -> Result<(), Refusal> {
    let name = name(review, new);
    if name != node {
        return Err(format!("node {node:?} is not allowed to modify node {name:?}").into());
    }
    let Some(new) = new else { return Ok(()) };
    const CONFIG: [&str; 2] = ["spec", "configSource"];
    let has_config = at(new, &CONFIG).is_some_and(|source| !source.is_null());
    let Some(old) = review.old else {
        if has_config {
            return Err(format!("node {node:?} is not allowed to create pods with a non-nil configSource").into());
        }
        let refused = labels::refused(new, None);
        if !refused.is_empty() {
            let refused = refused.join(", ");
            return Err(format!("node {node:?} is not allowed to set the following labels: {refused}").into());
        }
        return Ok(());
    };
    if has_config && is_other(old, new, &CONFIG) {
        return Err(format!("node {node:?} is not allowed to update configSource to a new non-nil configSource").into());
    }
    // By removing a taint a node would attract pods that are meant for others.
    if is_other(old, new, &["spec", "taints"]) {
        return Err(format!("node {node:?} is not allowed to modify taints").into());
    }
    if is_other(old, new, &["metadata", "ownerReferences"]) {
        return Err(format!("node {node:?} is not allowed to modify ownerReferences").into());
    }
    let refused = labels::refused(new, Some(old));
    if !refused.is_empty() {
        return Err(format!("is not allowed to modify labels: {}", refused.join(", ")).into());
    }
    Ok(())
}

fn check_claim_status(review: &Review<'_, '_>, node: &str, new: Option<&Value>) -> Result<(), Refusal> {
    let (Some(old), Some(new)) = (review.old, new) else {
        return Err("unexpected operation \"DELETE\"".into());
    };
    const FREE: [&[&str]; 6] = [
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
        &["status", "allocatedResources"],
        &["status", "allocatedResourceStatuses"],
        &["status", "capacity"],
        &["status", "conditions"],
    ];
    let kept = |object: &Value| {
        let mut object = object.clone();
        for path in FREE {
            remove_at(&mut object, path);
        }
        object
    };
    let (old, new) = (kept(old), kept(new));
    if ["metadata", "spec", "status"].iter().any(|part| is_other(&old, &new, &[part])) {
        let why = "is not allowed to update fields other than status.quantity and status.conditions";
        return Err(format!("node {node:?} {why}").into());
    }
    Ok(())
}

async fn check_slice(review: &Review<'_, '_>, node: &str, new: Option<&Value>) -> Result<(), Refusal> {
    let is_of_node = |slice: &Value| str_at(slice, &["spec", "nodeName"]) == Some(node);
    match (review.action, new) {
        (Action::Create, Some(slice)) if !is_of_node(slice) => {
            Err("can only create ResourceSlice with the same NodeName as the requesting node".into())
        }
        (Action::Delete, _) => {
            let (slices, name) = (GroupResource::new("resource.k8s.io", "resourceslices"), review.operation.name());
            let found = find(review.state, &slices, &ObjectKey::cluster(name)).await?;
            match found {
                Some(slice) if !is_of_node(&slice) => {
                    Err("can only delete ResourceSlice with the same NodeName as the requesting node".into())
                }
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn check_request(node: &str, new: Option<&Value>) -> Result<(), Refusal> {
    let is_for_nodes =
        |request: &&Value| str_at(request, &["spec", "signerName"]).is_some_and(|signer| SIGNERS.contains(&signer));
    let Some(request) = new.filter(is_for_nodes) else { return Ok(()) };
    let name = requests::with_request(request, |request| {
        common_name(&request.certification_request_info.subject).map(str::to_owned)
    });
    let name = name.map_err(|error| format!("unable to parse csr: {error}"))?;
    let want = format!("system:node:{node}");
    if name.as_deref() == Some(&want) {
        Ok(())
    } else {
        Err(format!("can only create a node CSR with CN={want}").into())
    }
}

// === tokens ===

/// A node only gets tokens for its own pods.
async fn check_token(review: &Review<'_, '_>, node: &str, new: Option<&Value>) -> Result<(), Refusal> {
    let bound = new.and_then(|request| at(request, &["spec", "boundObjectRef"])).filter(|bound| !bound.is_null());
    let text = |key| bound.and_then(|bound| str_at(bound, &[key])).unwrap_or_default();
    if (text("apiVersion"), text("kind")) != ("v1", "Pod") || text("name").is_empty() {
        return Err("node requested token not bound to a pod".into());
    }
    if text("uid").is_empty() {
        return Err("node requested token with a pod binding without a uid".into());
    }
    let pod = pod(review, text("name")).await?;
    if str_at(&pod, &["metadata", "uid"]) != Some(text("uid")) {
        return Err(format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been deleted and then recreated",
            text("uid")
        )
        .into());
    }
    if str_at(&pod, &["spec", "nodeName"]) != Some(node) {
        return Err("node requested token bound to a pod scheduled on a different node".into());
    }
    let asked = new.into_iter().flat_map(|request| items(request, &["spec", "audiences"]));
    let asked: Vec<&str> = asked.filter_map(Value::as_str).collect();
    audience::check(review, &pod, &asked).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn absent_and_empty_are_the_same() {
        let (none, empty) = (json!({"spec": {}}), json!({"spec": {"taints": []}}));
        let one = json!({"spec": {"taints": [{"key": "a"}]}});
        assert!(!is_other(&none, &empty, &["spec", "taints"]));
        assert!(is_other(&one, &empty, &["spec", "taints"]));
    }
}
