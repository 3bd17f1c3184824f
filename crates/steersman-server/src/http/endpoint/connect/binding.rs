//! `pods/binding`: assigns a node to a pod, once. Follows kubernetes' `pkg/registry/core/pod/storage`.

use crate::http::endpoint::connect::Reply;
use crate::http::endpoint::context::Context;
use crate::shared::operation::seconds;
use crate::shared::status::Failure;
use crate::write::registry::{self, Change};
use futures::future::BoxFuture;
use serde_json::{Map, json};
use steersman_machinery::field::{Error, Path};
use steersman_machinery::value::{at, object_at, remove_at, set_at, str_at};
use steersman_machinery::{GroupKind, GroupResource, Value};

pub(super) fn bind<'a>(cx: &'a mut Context<'_>, binding: Value) -> BoxFuture<'a, Result<Reply, Failure>> {
    Box::pin(async move {
        let name = cx.operation.name();
        let faults = faults(&binding);
        if !faults.is_empty() {
            // Upstream answers 500 here, although it is the client's error.
            return Err(Failure::invalid(&GroupKind::new("", "Binding"), name, &faults));
        }
        let now = seconds(cx.operation.now);
        let assign = |pod: &mut Value| {
            check_preconditions(&pods(), name, pod, &binding)?;
            assign(pod, &binding, &now)
                .map_err(|why| Failure::conflict(&GroupResource::new("", "pods/binding"), name, &why))
        };
        registry::write(cx.state, &mut cx.operation, &Change::Assign(&assign)).await.map(|_| Reply::Success)
    })
}

fn pods() -> GroupResource {
    GroupResource::new("", "pods")
}

/// Checks that the uid and the version in the binding's preconditions are those of the pod.
fn check_preconditions(resource: &GroupResource, name: &str, pod: &Value, binding: &Value) -> Result<(), Failure> {
    let (uid, found) = (registry::text(binding, "uid"), registry::text(pod, "uid"));
    if !uid.is_empty() && uid != found {
        let why = format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}");
        return Err(Failure::conflict(resource, name, &why));
    }
    let version = registry::text(binding, "resourceVersion");
    if !version.is_empty() && version != registry::text(pod, "resourceVersion") {
        return Err(Failure::modified(resource, name));
    }
    Ok(())
}

/// Sets the pod's node and the other fields of the binding; fails with a message.
fn assign(pod: &mut Value, binding: &Value, now: &str) -> Result<(), String> {
    let name = str_at(pod, &["metadata", "name"]).unwrap_or_default();
    if at(pod, &["metadata", "deletionTimestamp"]).is_some() {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = str_at(pod, &["spec", "nodeName"]).filter(|node| !node.is_empty()) {
        return Err(format!("pod {name} is already assigned to node {node:?}"));
    }
    if at(pod, &["spec", "schedulingGates"]).and_then(Value::as_array).is_some_and(|gates| !gates.is_empty()) {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    let node = str_at(binding, &["target", "name"]).unwrap_or_default();
    set_at(pod, &["spec", "nodeName"], node.into());
    for key in ["annotations", "labels"] {
        let given = at(binding, &["metadata", key]).and_then(Value::as_object).filter(|given| !given.is_empty());
        let Some(given) = given else { continue };
        if let Some(kept) = object_at(pod, &["metadata", key]) {
            kept.extend(given.clone());
        }
    }
    // The nomination was only meant for that node, and has no meaning any more.
    remove_at(pod, &["status", "nominatedNodeName"]);
    set_scheduled(pod, now);
    Ok(())
}

/// Sets the condition `PodScheduled`.
fn set_scheduled(pod: &mut Value, now: &str) {
    let Some(status) = object_at(pod, &["status"]) else { return };
    let conditions = status.entry("conditions").or_insert_with(|| json!([]));
    let Some(conditions) = conditions.as_array_mut() else { return };
    let is_it = |condition: &Value| str_at(condition, &["type"]) == Some("PodScheduled");
    let is_so = |condition: &Value| str_at(condition, &["status"]) == Some("True");
    let before = conditions.iter().position(is_it);
    let since = match before.map(|at| &conditions[at]).filter(|condition| is_so(condition)) {
        Some(condition) => condition["lastTransitionTime"].clone(),
        None => now.into(),
    };
    let condition =
        json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": since});
    match before {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
}

fn faults(binding: &Value) -> Vec<Error> {
    let none = Map::new();
    let target = at(binding, &["target"]).and_then(Value::as_object).unwrap_or(&none);
    let text = |key: &str| target.get(key).and_then(Value::as_str).unwrap_or_default();
    let mut faults = Vec::new();
    if !matches!(text("kind"), "" | "Node") {
        faults.push(Error::not_supported(&Path::new("target.kind"), text("kind"), &["Node", "<empty>"]));
    }
    if text("name").is_empty() {
        faults.push(Error::required(&Path::new("target.name"), ""));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_bound_once_and_keeps_its_own_labels() {
        let binding = json!({"metadata": {"name": "p", "labels": {"x": "y"}}, "target": {"name": "n"}});
        let mut pod = json!({"metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {},
                "status": {"phase": "Pending", "nominatedNodeName": "m"}});
        assign(&mut pod, &binding, "now").unwrap();
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(pod["metadata"]["labels"], json!({"a": "b", "x": "y"}));
        assert_eq!(pod["metadata"].get("annotations"), None);
        assert_eq!(pod["status"].get("nominatedNodeName"), None);
        let condition =
            json!([{"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": "now"}]);
        assert_eq!(pod["status"]["conditions"], condition);
        assert_eq!(assign(&mut pod, &binding, "now").unwrap_err(), "pod p is already assigned to node \"n\"");
    }

    #[test]
    fn a_pod_waits_at_its_gates_and_goes_nowhere_when_it_is_deleted() {
        let binding = json!({"target": {"name": "n"}});
        let mut gated = json!({"metadata": {"name": "p"}, "spec": {"schedulingGates": [{"name": "g"}]}});
        assert!(assign(&mut gated, &binding, "now").unwrap_err().ends_with("has non-empty .spec.schedulingGates"));
        let mut going = json!({"metadata": {"name": "p", "deletionTimestamp": "t"}, "spec": {}});
        assert!(assign(&mut going, &binding, "now").unwrap_err().contains("is being deleted"));
    }
}
