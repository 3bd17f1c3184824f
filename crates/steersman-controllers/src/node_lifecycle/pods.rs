//! Marks the Pods of a Node that is not ready as not ready either, so that Services leave them out.
//!
//! A Node that falls silent has all its Pods marked ([`mark_all`]); a Pod that comes to a Node that is not ready is marked by itself
//! ([`reconcile`]). A kubelet that says of itself that it is not ready marks its own.

use crate::node_lifecycle::Context;
use crate::node_lifecycle::health::{self, READY};
use crate::refusal::{self, Refused};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use std::sync::Arc;
use steersman::cache::Change;
use steersman::events::EventType;
use steersman::{Action, BoxError, ObjectKey};

/// Whether a change brings a Pod to a Node.
pub(super) fn is_bound(change: &Change<'_, Pod>) -> bool {
    match change {
        Change::Added(pod, _) => node_name(pod).is_some(),
        Change::Updated { old, new } => {
            node_name(new).is_some() && old.object().is_none_or(|old| node_name(old) != node_name(new))
        }
        Change::Deleted(_) | Change::Undecodable(_) => false,
    }
}

pub(super) fn node_name(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Of a Pod that has come to a Node.
pub(super) async fn reconcile(key: ObjectKey, cx: &Arc<Context>) -> Result<Action, BoxError> {
    let pod = cx.pods.get(&key)?;
    let Some(name) = node_name(&pod) else { return Ok(Action::AwaitChange) };
    if !cx.is_known(name) {
        return Ok(Action::AwaitChange);
    }
    let Some(node) = cx.nodes.find(&ObjectKey::cluster(name))? else { return Ok(Action::AwaitChange) };
    if health::condition(&node, READY).is_some_and(|ready| ready.status != "True") {
        mark(cx, &pod).await?;
    }
    Ok(Action::AwaitChange)
}

/// Marks all Pods of a Node, and tries all before the first error counts.
pub(super) async fn mark_all(cx: &Context, node: &str) -> Result<(), BoxError> {
    let mut first = Ok(());
    for pod in cx.pods_by_node.get(node)? {
        let outcome = mark(cx, &pod).await;
        first = first.and(outcome);
    }
    Ok(first?)
}

async fn mark(cx: &Context, pod: &Pod) -> Result<(), Refused> {
    let Some(marked) = marked(pod, (cx.clock)()) else { return Ok(()) };
    let api = Api::<Pod>::namespaced(cx.client.clone(), &pod.namespace().unwrap_or_default());
    match api.replace_status(&pod.name_any(), &PostParams::default(), &marked).await {
        Ok(_) => {
            cx.events.event(pod, EventType::Warning, "NodeNotReady", "Node is not ready");
            Ok(())
        }
        Err(error) if refusal::is_gone(&error) => Ok(()),
        // A conflict too: the Pod has changed, and nothing else would bring it back here.
        Err(error) => Err(Refused::to("mark a pod as not ready")(error)),
    }
}

/// The Pod as not ready. `None` if it is so, or does not say.
fn marked(pod: &Pod, now: Timestamp) -> Option<Pod> {
    let mut pod = pod.clone();
    let conditions = pod.status.as_mut()?.conditions.as_mut()?;
    let ready = conditions.iter_mut().find(|condition| condition.type_ == READY)?;
    if ready.status == "False" {
        return None;
    }
    ready.status = "False".to_owned();
    ready.last_transition_time = Some(Time(now));
    Some(pod)
}
