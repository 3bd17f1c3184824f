//! Marks the Pods of a Node that is not ready as not ready, so that Services leave them out.
//!
//! When a Node stops sending heartbeats, all its Pods are marked ([`mark_all`]); a Pod that is bound to a Node that is
//! not ready is marked on its own ([`reconcile`]). A kubelet that reports itself as not ready marks its own Pods.

use crate::loops::nodes::node_lifecycle::Context;
use crate::loops::nodes::node_lifecycle::health::{self, READY};
use crate::shared::pods::node_name;
use crate::shared::refusal::{self, Refused};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use std::sync::Arc;
use steersman::cache::Change;
use steersman::events::EventType;
use steersman::{Action, BoxError, ObjectKey};

/// Whether a change binds a Pod to a Node.
pub(super) fn is_bound(change: &Change<'_, Pod>) -> bool {
    match change {
        Change::Added(pod, _) => node_name(pod).is_some(),
        Change::Updated { old, new } => {
            node_name(new).is_some() && old.object().is_none_or(|old| node_name(old) != node_name(new))
        }
        Change::Deleted(_) | Change::Undecodable(_) => false,
    }
}

/// Marks a Pod that was bound to a Node that is not ready.
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

/// Marks all Pods of a Node, trying all before it returns the first error.
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
        // A conflict is an error too: the Pod has changed, and no event would bring it back here.
        Err(error) => Err(Refused::to("mark a pod as not ready")(error)),
    }
}

/// The Pod as not ready. `None` if it is not ready already, or has no such condition.
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
