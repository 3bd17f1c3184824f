//! Pods that only the Pod garbage collector deletes, on a whole control plane.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops, Options};

async fn start() -> (ControlPlane, Api<Pod>) {
    // Longer than the quarantine of a missing node, where time is paused.
    let patience = Duration::from_secs(300);
    let options = Options { loops: Loops::only(["podgc"]), patience, ..Options::default() };
    let plane = ControlPlane::try_start(options).await.unwrap();
    let pods = Api::namespaced(plane.client(), "default");
    (plane, pods)
}

fn pod(name: &str, node: &str, finalizer: &str) -> String {
    let (node, finalizer) = (json!(node), json!([finalizer].iter().filter(|one| !one.is_empty()).collect::<Vec<_>>()));
    format!(
        "{{kind: Pod, apiVersion: v1, metadata: {{name: {name}, namespace: default, finalizers: {finalizer}}}, \
         spec: {{nodeName: {node}, containers: [{{name: c, image: i}}]}}}}"
    )
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

async fn set_phase(pods: &Api<Pod>, name: &str, phase: &str) {
    let patch = Patch::Merge(json!({"status": {"phase": phase}}));
    pods.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn those_of_a_node_that_stays_away_fail_and_go() {
    let (plane, pods) = start().await;
    let begun = tokio::time::Instant::now();
    plane.apply(&pod("lost", "gone", "")).await;
    plane.apply(&pod("held", "gone", "example.com/hold")).await;
    plane.apply(&pod("ended", "gone", "example.com/hold")).await;
    set_phase(&pods, "ended", "Succeeded").await;
    plane.until_gone::<Pod>(&key("lost")).await;
    assert!(begun.elapsed().as_secs() >= 40, "the node may come back");
    let held = plane.until(&key("held"), |pod: &Pod| phase(pod) == "Failed").await;
    let status = held.status.unwrap();
    assert_eq!(status.observed_generation, Some(1));
    let condition = status.conditions.unwrap().into_iter().find(|one| one.type_ == "DisruptionTarget").unwrap();
    assert_eq!(condition.status, "True");
    assert_eq!(condition.reason.as_deref(), Some("DeletionByPodGC"));
    assert_eq!(condition.message.as_deref(), Some("PodGC: node no longer exists"));
    let ended = plane.until(&key("ended"), |pod: &Pod| pod.metadata.deletion_timestamp.is_some()).await;
    assert_eq!((phase(&ended), ended.status.as_ref().unwrap().conditions.is_none()), ("Succeeded", true));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_deleted_before_it_has_a_node_fails() {
    let (plane, pods) = start().await;
    plane.apply(&pod("unbound", "", "example.com/hold")).await;
    pods.delete("unbound", &DeleteParams::default()).await.unwrap();
    let unbound = plane.until(&key("unbound"), |pod: &Pod| phase(pod) == "Failed").await;
    assert!(unbound.metadata.finalizers.is_some());
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_on_a_node_out_of_service_goes_at_once() {
    let (plane, pods) = start().await;
    plane.apply("{kind: Node, apiVersion: v1, metadata: {name: broken}}").await;
    plane.apply(&pod("deleted", "broken", "")).await;
    plane.apply(&pod("kept", "broken", "")).await;
    pods.delete("deleted", &DeleteParams::default()).await.unwrap();
    let deleted = pods.get("deleted").await.expect("it waits for its kubelet");
    assert!(deleted.metadata.deletion_timestamp.is_some());
    let taint = json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"});
    let patch = Patch::Merge(json!({"spec": {"taints": [taint]}}));
    let nodes = Api::<k8s_openapi::api::core::v1::Node>::all(plane.client());
    nodes.patch("broken", &PatchParams::default(), &patch).await.unwrap();
    plane.until_gone::<Pod>(&key("deleted")).await;
    pods.get("kept").await.unwrap();
    plane.stop().await;
}
