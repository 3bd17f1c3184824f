//! Evicts Pods from Nodes with a NoExecute taint that they do not tolerate, or not any longer.
//!
//! Follows kube-controller-manager's taint eviction controller. A Pod that tolerates all such taints of its Node for a
//! limited time has a timer. The timer is stopped when the taints are removed, and is not changed by other taints or
//! tolerations. When a Node is deleted, timers run on. An evicted Pod gets the condition `DisruptionTarget` and is
//! deleted with its own grace period.

mod plan;

use crate::loops::nodes::taint_eviction::plan::{Eviction, Plan};
use crate::settings::Parts;
use crate::shared::pods::node_name;
use crate::shared::refusal::{self, Refused};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, ObjectReference, Pod, PodCondition, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::time::Duration;
use steersman::cache::{Change, Index};
use steersman::controller::Watch;
use steersman::events::{EventRecorder, EventType};
use steersman::{Action, BoxError, Controller, Lister, Manager, ObjectKey, Scope};
use tokio::time::Instant;

/// The name of the loop in logs, and the source of its Events.
const NAME: &str = "taint-eviction-controller";
const REASON: &str = "TaintManagerEviction";
const WORKERS: usize = 8;
/// The longest delay of a key.
const LOOK_MAX: Duration = Duration::from_secs(24 * 3_600);

struct Context {
    client: Client,
    clock: fn() -> Timestamp,
    events: EventRecorder,
    /// Planned evictions, by Pod.
    evictions: Mutex<HashMap<ObjectKey, Eviction>>,
    nodes: Lister<Node>,
    pods: Lister<Pod>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, settings }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let (nodes, pods) = (informers.informer::<Node>(Scope::All), informers.informer::<Pod>(Scope::All));
    let pods_by_node = pods.add_index(|pod| node_name(pod).map(str::to_owned));
    let context = Context {
        events: EventRecorder::new(client.clone(), NAME),
        client,
        clock: settings.clock,
        evictions: Mutex::default(),
        nodes: nodes.lister(),
        pods: pods.lister(),
    };
    let controller = Controller::<Pod>::of(Watch::of(&pods).when(is_concerned), reconcile, context)
        .name(NAME)
        .workers(WORKERS)
        .watches_changes(&nodes, move |change| on_node(change, &pods_by_node));
    manager.controller(controller)
}

/// Whether a change of a Pod may affect its eviction.
fn is_concerned(change: &Change<'_, Pod>) -> bool {
    let Change::Updated { old, new } = change else { return true };
    let Some(old) = old.object() else { return true };
    node_name(old) != node_name(new) || old.metadata.uid != new.metadata.uid || tolerations(old) != tolerations(new)
}

/// The Pods of a Node whose taints have changed.
fn on_node(change: &Change<'_, Node>, pods: &Index<Pod, String>) -> Vec<ObjectKey> {
    let evicting = |node: &Node| plan::evicting(node.spec.as_ref().and_then(|spec| spec.taints.as_deref()));
    let (name, is_changed) = match change {
        Change::Added(node, _) => (node.metadata.name.as_deref(), !evicting(node).is_empty()),
        Change::Updated { old, new } => {
            (new.metadata.name.as_deref(), old.object().is_none_or(|old| evicting(old) != evicting(new)))
        }
        // The timers of its Pods run on.
        Change::Deleted(_) | Change::Undecodable(_) => return Vec::new(),
    };
    // Until the cache is filled, each Pod is reconciled when it is added.
    name.filter(|_| is_changed).and_then(|name| pods.keys(name).ok()).unwrap_or_default()
}

fn tolerations(pod: &Pod) -> &[Toleration] {
    pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default()
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, BoxError> {
    let Some(pod) = cx.pods.find(&key)? else {
        cx.cancel(&key);
        return Ok(Action::AwaitChange);
    };
    if cx.evictions.lock().get(&key).is_some_and(|eviction| eviction.uid != pod.metadata.uid) {
        cx.cancel(&key);
    }
    let Some(node) = node_name(&pod) else { return Ok(Action::AwaitChange) };
    let node = cx.nodes.find(&ObjectKey::cluster(node))?;
    let taints = node.map(|node| plan::evicting(node.spec.as_ref().and_then(|spec| spec.taints.as_deref())));
    let now = Instant::now();
    match taints.map(|taints| plan::plan(&taints, tolerations(&pod))) {
        Some(Plan::Keep) => {
            cx.cancel(&key);
            return Ok(Action::AwaitChange);
        }
        Some(Plan::Now) => {
            cx.cancel(&key);
            return cx.evict(&key, &pod).await;
        }
        Some(Plan::After(time)) => {
            let eviction = Eviction { at: now + time, uid: pod.metadata.uid.clone() };
            cx.evictions.lock().entry(key.clone()).or_insert(eviction);
        }
        // The Node is gone: a planned eviction still takes place.
        None => {}
    }
    let due = cx.evictions.lock().get(&key).map(|eviction| eviction.at);
    match due.map(|due| due.saturating_duration_since(now)) {
        None => Ok(Action::AwaitChange),
        Some(Duration::ZERO) => cx.evict(&key, &pod).await,
        Some(left) => Ok(Action::RequeueAfter(left.min(LOOK_MAX))),
    }
}

impl Context {
    fn cancel(&self, pod: &ObjectKey) {
        let is_cancelled = self.evictions.lock().remove(pod).is_some();
        if is_cancelled {
            self.say(pod, &format!("Cancelling deletion of Pod {pod}"));
        }
    }

    async fn evict(&self, key: &ObjectKey, pod: &Pod) -> Result<Action, BoxError> {
        self.say(key, &format!("Marking for deletion Pod {key}"));
        let api = Api::<Pod>::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        if let Some(patch) = condemned(pod, (self.clock)()) {
            match api.patch_status(key.name(), &PatchParams::default(), &Patch::Strategic(patch)).await {
                Ok(_) => {}
                Err(error) if refusal::is_outdated(&error) => return Ok(self.done(key)),
                Err(error) => return Err(Refused::to("say why a pod is deleted")(error).into()),
            }
        }
        let preconditions = Preconditions { uid: pod.metadata.uid.clone(), resource_version: None };
        match api.delete(key.name(), &DeleteParams::default().preconditions(preconditions)).await {
            Ok(_) => Ok(self.done(key)),
            Err(error) if refusal::is_outdated(&error) => Ok(self.done(key)),
            Err(error) => Err(Refused::to("delete a pod")(error).into()),
        }
    }

    fn done(&self, pod: &ObjectKey) -> Action {
        self.evictions.lock().remove(pod);
        Action::AwaitChange
    }

    fn say(&self, pod: &ObjectKey, note: &str) {
        let reference = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name().to_owned()),
            namespace: pod.namespace().map(str::to_owned),
            ..ObjectReference::default()
        };
        self.events.event_about(reference, EventType::Normal, REASON, note);
    }
}

/// The status patch with the reason of a Pod's deletion; `None` if the Pod has it already.
fn condemned(pod: &Pod, now: Timestamp) -> Option<serde_json::Value> {
    const TARGET: &str = "DisruptionTarget";
    const WHY: &str = "DeletionByTaintManager";
    const MESSAGE: &str = "Taint manager: deleting due to NoExecute taint";
    let known = crate::shared::pods::condition(pod, TARGET);
    let is_true = known.is_some_and(|condition| condition.status == "True");
    let is_said = known.is_some_and(|condition| {
        condition.reason.as_deref() == Some(WHY)
            && condition.message.as_deref() == Some(MESSAGE)
            && condition.observed_generation == pod.metadata.generation
    });
    if is_true && is_said {
        return None;
    }
    let since = known.filter(|_| is_true).and_then(|condition| condition.last_transition_time.clone());
    let condition = PodCondition {
        type_: TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some(WHY.to_owned()),
        message: Some(MESSAGE.to_owned()),
        last_transition_time: Some(since.unwrap_or(Time(now))),
        observed_generation: pod.metadata.generation,
        ..PodCondition::default()
    };
    Some(json!({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}))
}
