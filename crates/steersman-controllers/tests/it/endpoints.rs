//! Endpoints and EndpointSlices of Services, on a whole control plane.

use k8s_openapi::api::core::v1::{Endpoints, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use std::time::Duration;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

const SHOP: &str = "
{kind: Node, apiVersion: v1, metadata: {name: node-1, labels: {topology.kubernetes.io/zone: east}}}
---
{kind: Service, apiVersion: v1, metadata: {name: web, namespace: default, labels: {tier: front}}, spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}}
";

async fn pod(plane: &ControlPlane, n: usize) {
    plane
        .apply(&format!(
            "{{kind: Pod, apiVersion: v1, metadata: {{name: p{n}, namespace: default, labels: {{app: web}}}}, \
             spec: {{nodeName: node-1, containers: [{{name: c, image: i}}]}}}}"
        ))
        .await;
}

async fn run(plane: &ControlPlane, n: usize, is_ready: bool) {
    let ip = format!("10.1.{}.{}", n / 250, n % 250 + 1);
    let ready = if is_ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": ready}]}});
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.patch_status(&format!("p{n}"), &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
}

async fn slices(plane: &ControlPlane) -> Vec<EndpointSlice> {
    let slices = Api::<EndpointSlice>::namespaced(plane.client(), "default");
    let of_web = ListParams::default().labels("kubernetes.io/service-name=web");
    slices.list(&of_web).await.unwrap().items
}

/// Waits until the slices of the Service satisfy `is_wanted`.
async fn until(plane: &ControlPlane, is_wanted: impl Fn(&[EndpointSlice]) -> bool) -> Vec<EndpointSlice> {
    let wait = async {
        loop {
            let slices = slices(plane).await;
            if is_wanted(&slices) {
                return slices;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("the slices come to be as wanted")
}

fn n_endpoints(slices: &[EndpointSlice]) -> usize {
    slices.iter().flat_map(|slice| &slice.endpoints).map(Vec::len).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_become_endpoints_and_say_whether_they_are_ready() {
    let plane = ControlPlane::start_with(Loops::only(["endpoint", "endpointslice"])).await;
    plane.apply(SHOP).await;
    let empty = until(&plane, |slices| slices.len() == 1).await;
    assert_eq!(n_endpoints(&empty), 0, "a Service without Pods has an empty slice");
    pod(&plane, 1).await;
    pod(&plane, 2).await;
    run(&plane, 1, true).await;
    run(&plane, 2, false).await;
    let slices = until(&plane, |slices| n_endpoints(slices) == 2).await;
    assert_eq!(slices[0].metadata.name, empty[0].metadata.name, "the empty slice is filled");
    let first = serde_json::to_value(&slices[0].endpoints.as_ref().unwrap()[0]).unwrap();
    assert_eq!(first["addresses"], json!(["10.1.0.2"]));
    assert_eq!(first["conditions"], json!({"ready": true, "serving": true, "terminating": false}));
    assert_eq!(first["zone"], "east");
    let key = ObjectKey::namespaced("default", "web");
    let has_both = |endpoints: &Endpoints| {
        let subsets = serde_json::to_value(&endpoints.subsets).unwrap();
        subsets[0]["addresses"][0]["ip"] == "10.1.0.2" && subsets[0]["notReadyAddresses"][0]["ip"] == "10.1.0.3"
    };
    plane.until(&key, has_both).await;
    run(&plane, 1, false).await;
    until(&plane, |slices| {
        let ready = slices[0].endpoints.as_ref().and_then(|endpoints| endpoints[0].conditions.clone()?.ready);
        ready == Some(false)
    })
    .await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_pods_cost_few_writes_and_fill_the_slices() {
    let plane = ControlPlane::start().await;
    plane.apply(SHOP).await;
    for n in 0..250 {
        pod(&plane, n).await;
    }
    let plane = plane.with_loops(Loops::only(["endpointslice"])).await;
    futures::future::join_all((0..250).map(|n| run(&plane, n, true))).await;
    let slices = until(&plane, |slices| n_endpoints(slices) == 250).await;
    assert!(slices.len() <= 4, "{} slices", slices.len());
    let n_writes: i64 = slices.iter().filter_map(|slice| slice.metadata.generation).sum();
    assert!(n_writes < 100, "{n_writes} writes");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_go_with_their_service_also_if_it_went_while_nobody_looked() {
    let plane = ControlPlane::start_with(Loops::only(["endpoint"])).await;
    plane.apply(SHOP).await;
    let key = ObjectKey::namespaced("default", "web");
    plane.until(&key, |_: &Endpoints| true).await;
    Api::<Service>::namespaced(plane.client(), "default").delete("web", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<Endpoints>(&key).await;
    plane.stop().await;

    let plane = ControlPlane::start().await;
    plane.apply("{kind: Endpoints, apiVersion: v1, metadata: {name: left, namespace: default}}").await;
    let plane = plane.with_loops(Loops::only(["endpoint"])).await;
    plane.until_gone::<Endpoints>(&ObjectKey::namespaced("default", "left")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoints_written_by_hand_are_mirrored_while_their_service_has_no_selector() {
    let plane = ControlPlane::start_with(Loops::only(["endpointslicemirroring"])).await;
    plane.apply("{kind: Endpoints, apiVersion: v1, metadata: {name: web, namespace: default}, subsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]}").await;
    plane
        .apply(
            "{kind: Service, apiVersion: v1, metadata: {name: web, namespace: default}, spec: {ports: [{port: 80}]}}",
        )
        .await;
    let mirrored = until(&plane, |slices| slices.len() == 1).await;
    let labels = mirrored[0].metadata.labels.as_ref().unwrap();
    assert_eq!(labels["endpointslice.kubernetes.io/managed-by"], "endpointslicemirroring-controller.k8s.io");
    let services = Api::<Service>::namespaced(plane.client(), "default");
    let selector = json!({"spec": {"selector": {"app": "web"}}});
    services.patch("web", &PatchParams::default(), &Patch::Merge(selector)).await.unwrap();
    until(&plane, |slices| slices.is_empty()).await;
    plane.stop().await;
}
