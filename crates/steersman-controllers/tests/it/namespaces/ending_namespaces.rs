//! Owners of Pods in a namespace that is being deleted and held by a finalizer.

use crate::support::moved;
use k8s_openapi::api::apps::v1::{DaemonSet, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{NamespaceResourceScope, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use steersman_testkit::{ControlPlane, Fault, Loops};

const LOOPS: [&str; 4] = ["daemonset", "job", "replicaset", "statefulset"];
const OWNERS: &str = "
{kind: Namespace, apiVersion: v1, metadata: {name: shop}}
---
{kind: Node, apiVersion: v1, metadata: {name: one}}
---
{kind: Node, apiVersion: v1, metadata: {name: two}}
---
kind: DaemonSet
apiVersion: apps/v1
metadata: {name: x, namespace: shop}
spec:
  selector: {matchLabels: {app: d}}
  template: {metadata: {labels: {app: d}}, spec: {nodeSelector: {on: 'yes'}, tolerations: [{operator: Exists}], containers: [{name: c, image: i}]}}
---
kind: Job
apiVersion: batch/v1
metadata: {name: x, namespace: shop}
spec: {suspend: true, parallelism: 8, completions: 8, template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}
---
kind: ReplicaSet
apiVersion: apps/v1
metadata: {name: x, namespace: shop}
spec:
  replicas: 0
  selector: {matchLabels: {app: r}}
  template: {metadata: {labels: {app: r}}, spec: {containers: [{name: c, image: i}]}}
---
kind: StatefulSet
apiVersion: apps/v1
metadata: {name: x, namespace: shop}
spec:
  replicas: 0
  podManagementPolicy: Parallel
  selector: {matchLabels: {app: s}}
  template: {metadata: {labels: {app: s}}, spec: {containers: [{name: c, image: i}]}}
";

async fn change<K>(plane: &ControlPlane, change: Value)
where
    K: Clone + Debug + DeserializeOwned + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    let api = Api::<K>::namespaced(plane.client(), "shop");
    api.patch("x", &PatchParams::default(), &Patch::Merge(change)).await.expect("it is changed");
}

/// How many Pods the owners try to create within minutes, if they are scaled up only after their namespace was deleted.
async fn n_created_when_it_ends_after(wait: Duration) -> usize {
    let plane = moved::plane(Loops::only(LOOPS)).await;
    plane.apply(OWNERS).await;
    tokio::time::sleep(wait).await;
    Api::<Namespace>::all(plane.client()).delete("shop", &DeleteParams::default()).await.expect("the shop closes");
    tokio::time::sleep(Duration::from_millis(1)).await;
    let n_created = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&n_created);
    plane.fail_next_where(1, Fault::Unsent, move |method, path| {
        if *method == http::Method::POST && path == "/api/v1/namespaces/shop/pods" {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        false
    });
    change::<DaemonSet>(&plane, json!({"spec": {"template": {"spec": {"nodeSelector": null}}}})).await;
    change::<Job>(&plane, json!({"spec": {"suspend": false}})).await;
    change::<ReplicaSet>(&plane, json!({"spec": {"replicas": 8}})).await;
    change::<StatefulSet>(&plane, json!({"spec": {"replicas": 8}})).await;
    tokio::time::sleep(Duration::from_mins(5)).await;
    plane.stop().await;
    n_created.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn nothing_is_created_where_the_cache_shows_the_end() {
    assert_eq!(n_created_when_it_ends_after(Duration::from_secs(2)).await, 0);
}

#[tokio::test(start_paused = true)]
async fn the_first_refusal_ends_the_attempt_where_it_does_not() {
    // Within the same second, the namespace may be a new one that the cache does not show yet.
    let n_created = n_created_when_it_ends_after(Duration::ZERO).await;
    // Each owner is reconciled once or twice more, for its new generation and its status.
    assert!((4..=12).contains(&n_created), "{n_created}");
}
