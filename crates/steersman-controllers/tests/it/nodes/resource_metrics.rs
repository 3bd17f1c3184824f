//! The usage of Pods on simulated nodes, and autoscalers that follow it, on a whole control plane with paused time.

use crate::support::moved;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";
const SECOND: Duration = Duration::from_secs(1);

async fn start(loops: Loops) -> ControlPlane {
    let plane = moved::plane(loops).await;
    plane.apply("{kind: ServiceAccount, apiVersion: v1, metadata: {name: default, namespace: default}}").await;
    plane
}

/// The answer, or the message of the error.
async fn get(plane: &ControlPlane, path: &str) -> Result<Value, String> {
    let request = http::Request::get(format!("{GROUP}/{path}")).body(Vec::new()).unwrap();
    plane.client().request(request).await.map_err(|error| match error {
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    })
}

/// Polls every second until the answer satisfies `is_so`.
async fn until(
    plane: &ControlPlane,
    path: &str,
    is_so: impl Fn(&Result<Value, String>) -> bool,
) -> Result<Value, String> {
    for _ in 0..60 {
        let answer = get(plane, path).await;
        if is_so(&answer) {
            return answer;
        }
        tokio::time::sleep(SECOND).await;
    }
    panic!("{path}: {:?}", get(plane, path).await)
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

#[tokio::test(start_paused = true)]
async fn pods_and_nodes_use_what_annotations_say() {
    let plane = start(Loops::none().nodes(2)).await;
    let refused = get(&plane, "namespaces/default/pods/p").await;
    assert_eq!(refused, Err("pods \"p\" not found".to_owned()));
    plane
        .apply(
            "
kind: Pod
apiVersion: v1
metadata:
  name: p
  namespace: default
  labels: {app: web}
  annotations: {simulate.steersman.dev/cpu-usage: 250m, simulate.steersman.dev/memory-usage: 64Mi}
spec:
  nodeName: node-1
  initContainers:
  - {name: first, image: i}
  - {name: sidecar, image: i, restartPolicy: Always}
  containers:
  - {name: c, image: i}
",
        )
        .await;
    let key = ObjectKey::namespaced("default", "p");
    plane.until(&key, is_running).await;
    // A container that has only just started has no measurements.
    let refused = get(&plane, "namespaces/default/pods/p").await;
    assert_eq!(refused, Err("podmetrics.metrics.k8s.io \"default/p\" not found".to_owned()));

    tokio::time::sleep(20 * SECOND).await;
    let found = get(&plane, "pods?labelSelector=app%3Dweb").await.unwrap();
    let usage = json!({"cpu": "250m", "memory": "64Mi"});
    assert_eq!(found["items"][0]["window"], "15s");
    assert_eq!(
        found["items"][0]["containers"],
        json!([{"name": "c", "usage": usage}, {"name": "sidecar", "usage": usage}])
    );
    let nodes =
        until(&plane, "nodes", |nodes| nodes.as_ref().unwrap()["items"].as_array().unwrap().len() == 2).await.unwrap();
    assert_eq!(nodes["items"][0]["usage"], json!({"cpu": "500m", "memory": "128Mi"}));
    assert_eq!(nodes["items"][1]["usage"], json!({"cpu": "0", "memory": "0"}));

    // A node that is away reports nothing, for itself and for its Pods.
    let away = json!({"metadata": {"annotations": {"simulate.steersman.dev/goes-away": "true"}}});
    Api::<Node>::all(plane.client()).patch("node-1", &PatchParams::default(), &Patch::Merge(away)).await.unwrap();
    until(&plane, "namespaces/default/pods/p", Result::is_err).await.unwrap_err();
    let refused = get(&plane, "nodes/node-1").await;
    assert_eq!(refused, Err("nodemetrics.metrics.k8s.io \"node-1\" not found".to_owned()));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn containers_that_do_not_run_are_left_out() {
    let plane = start(Loops::none().nodes(1)).await;
    plane
        .apply(
            "
kind: Pod
apiVersion: v1
metadata: {name: ends, namespace: default, annotations: {simulate.steersman.dev/succeed-after: 30s}}
spec: {nodeName: node-1, restartPolicy: Never, containers: [{name: c, image: i}]}
---
kind: Pod
apiVersion: v1
metadata: {name: waits, namespace: default}
spec: {nodeName: node-1, containers: [{name: c, image: 'i:missing'}]}
---
kind: Pod
apiVersion: v1
metadata: {name: nowhere, namespace: default}
spec: {schedulerName: nobody, containers: [{name: c, image: i}]}
",
        )
        .await;
    let found = until(&plane, "namespaces/default/pods/ends", Result::is_ok).await.unwrap();
    // Without any settings, containers use as much as an idle program.
    assert_eq!(found["containers"], json!([{"name": "c", "usage": {"cpu": "1m", "memory": "10Mi"}}]));
    // A Stage changes the usage of running containers.
    let stage = "{kind: Stage, apiVersion: simulate.steersman.dev/v1alpha1, metadata: {name: busy}, spec: {usage: {cpu: 1500m}}}";
    plane.apply(stage).await;
    let is_busy = |found: &Result<Value, String>| found.as_ref().unwrap()["containers"][0]["usage"]["cpu"] == "1500m";
    until(&plane, "namespaces/default/pods/ends", is_busy).await.unwrap();
    let list = get(&plane, "namespaces/default/pods").await.unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1, "{list:#}");
    until(&plane, "namespaces/default/pods/ends", Result::is_err).await.unwrap_err();
    plane.stop().await;
}

#[tokio::test]
async fn without_simulated_nodes_nobody_knows() {
    let plane = ControlPlane::start().await;
    assert!(get(&plane, "nodes").await.is_err());
    let groups = plane.client().list_api_groups().await.unwrap().groups;
    assert!(groups.iter().all(|group| group.name != "metrics.k8s.io"));
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_follows_what_the_pods_use_up_and_down() {
    let loops = Loops::only(["deployment", "replicaset", "horizontalpodautoscaling"]).nodes(1);
    let plane = start(loops).await;
    plane
        .apply(
            "
kind: Deployment
apiVersion: apps/v1
metadata: {name: web, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {simulate.steersman.dev/cpu-usage: 80m}}
    spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 100m}}}]}
---
kind: HorizontalPodAutoscaler
apiVersion: autoscaling/v2
metadata: {name: web, namespace: default}
spec:
  minReplicas: 1
  maxReplicas: 5
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]
  behavior: {scaleDown: {stabilizationWindowSeconds: 0}}
",
        )
        .await;
    let key = ObjectKey::namespaced("default", "web");
    let has_ready = |n: i32| {
        move |one: &Deployment| {
            let ready = one.status.as_ref().and_then(|status| status.ready_replicas);
            one.spec.replicas == Some(n) && ready == Some(n)
        }
    };
    let is_active = |one: &HorizontalPodAutoscaler| {
        let conditions = one.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "ScalingActive" && one.status == "True")
    };
    plane.until(&key, is_active).await;
    // Usage of four fifths of the request with a target of a half: each evaluation adds replicas.
    plane.until(&key, has_ready(2)).await;
    plane.until(&key, has_ready(5)).await;
    let calm =
        json!({"spec": {"template": {"metadata": {"annotations": {"simulate.steersman.dev/cpu-usage": "10m"}}}}});
    let api = Api::<Deployment>::namespaced(plane.client(), "default");
    api.patch("web", &PatchParams::default(), &Patch::Merge(calm)).await.unwrap();
    plane.until(&key, has_ready(1)).await;
    plane.stop().await;
}
