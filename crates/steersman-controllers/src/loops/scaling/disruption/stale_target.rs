//! Resets the condition `DisruptionTarget` of Pods that were to be disrupted and two minutes later have not been.

use crate::loops::scaling::disruption::plan;
use crate::shared::clock;
use crate::shared::pods;
use crate::shared::refusal::{self, Error, Refused};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::Duration;
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};

const NAME: &str = "stale-pod-disruption";
const CONDITION: &str = "DisruptionTarget";
/// The reason for Pods that their node is terminating.
const BY_KUBELET: &str = "TerminationByKubelet";

struct Context {
    client: Client,
    pods: Lister<Pod>,
    clock: fn() -> Timestamp,
}

pub(super) fn add(manager: Manager, client: Client, clock: fn() -> Timestamp) -> Manager {
    let pods = manager.informers().informer::<Pod>(Scope::All);
    let context = Context { client, pods: pods.lister(), clock };
    let controller = Controller::of(&pods, reconcile, context)
        .name(NAME)
        .when(|change| change.object().is_some_and(|pod| since(pod).is_some()));
    manager.controller(controller)
}

/// Since when a Pod has been marked for disruption, if it is.
fn since(pod: &Pod) -> Option<Timestamp> {
    let target = pods::condition(pod, CONDITION).filter(|target| target.status == "True")?;
    let may_go = !pods::is_terminating(pod) && !pods::is_terminal(pod) && target.reason.as_deref() != Some(BY_KUBELET);
    // A condition without a time counts as very old.
    may_go.then(|| target.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}

async fn reconcile(key: ObjectKey, cx: &Context) -> Result<Action, Error> {
    let Some(pod) = cx.pods.find(&key)? else { return Ok(Action::AwaitChange) };
    let Some(since) = since(&pod) else { return Ok(Action::AwaitChange) };
    let now = (cx.clock)();
    if let Some(left) = plan::left_of_patience(since, now).filter(|left| *left > Duration::ZERO) {
        return Ok(Action::RequeueAfter(left));
    }
    let patch = json!({
        "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
        "status": {"conditions": [{
            "type": CONDITION, "status": "False", "reason": null, "message": null,
            "observedGeneration": pod.metadata.generation,
            "lastTransitionTime": clock::whole_seconds(now),
        }]},
    });
    let pods = Api::<Pod>::namespaced(cx.client.clone(), key.namespace().unwrap_or_default());
    match pods.patch_status(key.name(), &PatchParams::default(), &Patch::Strategic(patch)).await {
        Ok(_) => Ok(Action::AwaitChange),
        Err(error) if refusal::is_outdated(&error) => Ok(Action::AwaitChange),
        Err(error) => Err(Refused::to(format!("reset the condition of {key}"))(error).into()),
    }
}
