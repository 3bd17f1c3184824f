//! ResourceQuotas, counted by the loop and by the server's admission, on a whole control plane.

use crate::support::moved;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ResourceQuota};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Fault, Loops};
use tokio::time::{Instant, timeout};

const QUOTA: &str = "
{kind: ResourceQuota, apiVersion: v1, metadata: {name: q, namespace: shop}, spec: {hard: {pods: 20, count/pods: 20, requests.cpu: 100, limits.memory: 100Gi, requests.storage: 1Ti, persistentvolumeclaims: 9, fast.storageclass.storage.k8s.io/requests.storage: 1Ti, services: 9, services.nodeports: 9, services.loadbalancers: 9, configmaps: 9, count/deployments.apps: 9, count/carts.shop.example: 9, requests.example.com/gpu: 9}}}
---
{kind: ResourceQuota, apiVersion: v1, metadata: {name: best, namespace: shop}, spec: {hard: {pods: 9}, scopes: [BestEffort]}}
---
{kind: ResourceQuota, apiVersion: v1, metadata: {name: ends, namespace: shop}, spec: {hard: {pods: 9, requests.cpu: 9}, scopes: [Terminating]}}
";
const OBJECTS: [&str; 9] = [
    "{kind: ConfigMap, apiVersion: v1, metadata: {name: c, namespace: shop}}",
    "{kind: Service, apiVersion: v1, metadata: {name: lb, namespace: shop}, spec: {type: LoadBalancer, ports: [{port: 80, name: a}, {port: 81, name: b}]}}",
    "{kind: Service, apiVersion: v1, metadata: {name: plain, namespace: shop}, spec: {ports: [{port: 80}]}}",
    "{kind: PersistentVolumeClaim, apiVersion: v1, metadata: {name: c, namespace: shop}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 3Gi}}}}",
    "{kind: Deployment, apiVersion: apps/v1, metadata: {name: d, namespace: shop}, spec: {selector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {containers: [{name: c, image: i}]}}}}",
    "{kind: Cart, apiVersion: shop.example/v1, metadata: {name: first, namespace: shop}}",
    "{kind: Pod, apiVersion: v1, metadata: {name: plain, namespace: shop}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 0}, limits: {memory: 0}}}]}}",
    "{kind: Pod, apiVersion: v1, metadata: {name: side, namespace: shop}, spec: {activeDeadlineSeconds: 100, initContainers: [{name: s, image: i, restartPolicy: Always, resources: {requests: {cpu: 100m}, limits: {memory: 1Gi}}}, {name: i, image: i, resources: {requests: {cpu: 2}, limits: {memory: 1Mi}}}], containers: [{name: c, image: i, resources: {requests: {cpu: 300m, example.com/gpu: 2}, limits: {memory: 1536Mi, example.com/gpu: 2}}}]}}",
    "{kind: Pod, apiVersion: v1, metadata: {name: other, namespace: shop}, spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1500m}, limits: {memory: 1Gi}}}]}}",
];

fn used(quota: &ResourceQuota) -> BTreeMap<String, String> {
    let used = quota.status.as_ref().and_then(|status| status.used.clone()).unwrap_or_default();
    used.into_iter().map(|(name, amount)| (name, amount.0)).collect()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("shop", name)
}

async fn all_used(plane: &ControlPlane) -> Vec<BTreeMap<String, String>> {
    let quotas = Api::<ResourceQuota>::namespaced(plane.client(), "shop");
    let mut all = Vec::new();
    for name in ["q", "best", "ends"] {
        all.push(used(&quotas.get(name).await.unwrap()));
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_admission_has_added_up_is_what_the_loop_counts() {
    let plane = ControlPlane::start_with(Loops::only(["resourcequota"])).await;
    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: shop}}").await;
    plane.apply(crate::namespaces::deletion::CARTS).await;
    plane.apply(QUOTA).await;
    let n_hard = QUOTA.lines().nth(1).unwrap().matches(": 9").count();
    assert!(n_hard > 5);
    plane.until(&key("q"), |quota: &ResourceQuota| used(quota).len() == 14).await;
    for name in ["best", "ends"] {
        plane.until(&key(name), |quota: &ResourceQuota| !used(quota).is_empty()).await;
    }
    for object in OBJECTS {
        plane.apply(object).await;
    }
    let added_up = all_used(&plane).await;
    assert_eq!(added_up[0]["requests.cpu"], "3600m");
    assert_eq!((&*added_up[1]["pods"], &*added_up[2]["pods"]), ("1", "1"));
    // An empty status is recomputed from the existing objects, as far as the caches of the loop have them.
    let recounted = async { while recount(&plane).await != added_up {} };
    timeout(Duration::from_secs(60), recounted).await.expect("the loop counts what admission has added up");
    plane.stop().await;
}

/// Empties the statuses, and returns what the loop has counted then.
async fn recount(plane: &ControlPlane) -> Vec<BTreeMap<String, String>> {
    let quotas = Api::<ResourceQuota>::namespaced(plane.client(), "shop");
    for name in ["q", "best", "ends"] {
        let nothing = json!({"status": {"hard": null, "used": null}});
        quotas.patch_status(name, &PatchParams::default(), &Patch::Merge(nothing)).await.unwrap();
        plane.until(&key(name), |quota: &ResourceQuota| !used(quota).is_empty()).await;
    }
    all_used(plane).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_deleted_or_has_ended_is_free_at_once() {
    let plane = ControlPlane::start_with(Loops::only(["resourcequota"])).await;
    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: shop}}").await;
    plane.apply(QUOTA).await;
    plane.until(&key("q"), |quota: &ResourceQuota| used(quota).len() == 13).await;
    plane.apply(OBJECTS[0]).await;
    plane.apply(OBJECTS[6]).await;
    plane.apply(OBJECTS[8]).await;
    let is = |name: &'static str, amount: &'static str| {
        move |quota: &ResourceQuota| used(quota).get(name).is_some_and(|used| used == amount)
    };
    plane.until(&key("q"), is("configmaps", "1")).await;
    let configs = Api::<ConfigMap>::namespaced(plane.client(), "shop");
    configs.delete("c", &DeleteParams::default()).await.unwrap();
    plane.until(&key("q"), is("configmaps", "0")).await;
    let pods = Api::<Pod>::namespaced(plane.client(), "shop");
    let ended: Value = json!({"status": {"phase": "Succeeded"}});
    pods.patch_status("other", &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    let quota = plane.until(&key("q"), is("requests.cpu", "0")).await;
    assert_eq!((&*used(&quota)["pods"], &*used(&quota)["count/pods"]), ("1", "2"));
    pods.delete("other", &DeleteParams::default().grace_period(0)).await.unwrap();
    plane.until(&key("q"), is("count/pods", "1")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_is_counted_when_it_comes_and_again_when_it_comes_back() {
    let plane = ControlPlane::start_with(Loops::only(["resourcequota"])).await;
    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: shop}}").await;
    plane.apply(QUOTA).await;
    plane.until(&key("q"), |quota: &ResourceQuota| used(quota).len() == 13).await;
    let carts = |number: &'static str| {
        move |quota: &ResourceQuota| used(quota).get("count/carts.shop.example").is_some_and(|used| used == number)
    };
    for _ in 0..2 {
        plane.apply(crate::namespaces::deletion::CARTS).await;
        plane.until(&key("q"), carts("0")).await;
        plane.apply(OBJECTS[5]).await;
        plane.until(&key("q"), carts("1")).await;
        let definitions = Api::<CustomResourceDefinition>::all(plane.client());
        definitions.delete("carts.shop.example", &DeleteParams::default()).await.unwrap();
        plane.until_gone::<CustomResourceDefinition>(&ObjectKey::cluster("carts.shop.example")).await;
    }
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_counted_yet_keeps_neither_the_rest_nor_other_quotas_waiting() {
    const N_QUOTAS: usize = 6;
    let plane = moved::plane(Loops::only(["resourcequota"])).await;
    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: shop}}").await;
    plane.fail_next_where(8, Fault::Refused(500), |_, path| path == "/apis/apps/v1/deployments");
    let began = Instant::now();
    for n in 0..N_QUOTAS {
        let hard = "{configmaps: 9, count/deployments.apps: 9}";
        plane
            .apply(&format!("{{kind: ResourceQuota, apiVersion: v1, metadata: {{name: q{n}, namespace: shop}}, spec: {{hard: {hard}}}}}"))
            .await;
    }
    for n in 0..N_QUOTAS {
        let is_counted = |quota: &ResourceQuota| used(quota).get("configmaps").is_some_and(|used| used == "0");
        plane.until(&key(&format!("q{n}")), is_counted).await;
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert!(plane.n_faults_left() > 0, "the deployments are not listed yet");
    for n in 0..N_QUOTAS {
        plane.until(&key(&format!("q{n}")), |quota: &ResourceQuota| used(quota).len() == 2).await;
    }
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_of_which_the_server_says_nothing_does_not_keep_the_others_from_being_counted() {
    let plane = moved::plane(Loops::only(["resourcequota"])).await;
    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: shop}}").await;
    plane.fail_next_where(usize::MAX, Fault::Refused(500), |_, path| path == "/apis/apps/v1");
    plane.apply(QUOTA).await;
    let quota = plane.until(&key("q"), |quota: &ResourceQuota| !used(quota).is_empty()).await;
    assert!(!used(&quota).contains_key("count/deployments.apps"));
    plane.until(&key("q"), |quota: &ResourceQuota| used(quota).get("services").is_some_and(|used| used == "0")).await;
    plane.stop().await;
}
