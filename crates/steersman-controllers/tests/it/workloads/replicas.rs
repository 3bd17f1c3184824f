//! ReplicaSets and ReplicationControllers on a whole control plane.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Event, Pod, ReplicationController};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Fault, Loops};

const SET: &str = "
kind: ReplicaSet
apiVersion: apps/v1
metadata: {name: x, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: x}}
  template: {metadata: {labels: {app: x, more: labels}}, spec: {containers: [{name: c, image: i}]}}
";

fn x() -> ObjectKey {
    ObjectKey::namespaced("default", "x")
}

pub(crate) fn pods(plane: &ControlPlane) -> Api<Pod> {
    Api::namespaced(plane.client(), "default")
}

pub(crate) async fn names(plane: &ControlPlane, labels: &str) -> Vec<String> {
    let list = pods(plane).list(&ListParams::default().labels(labels)).await.expect("pods are listed");
    list.items.into_iter().filter_map(|pod| pod.metadata.name).collect()
}

/// Writes the status of a Pod as a kubelet would.
pub(crate) async fn mark(plane: &ControlPlane, name: &str, status: &Value) {
    let patch = Patch::Merge(json!({"status": status}));
    match pods(plane).patch_status(name, &PatchParams::default(), &patch).await {
        Ok(_) => {}
        // The Pod has been deleted meanwhile.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        Err(error) => panic!("the status of {name} cannot be written: {error}"),
    }
}

pub(crate) async fn mark_ready(plane: &ControlPlane, name: &str) {
    let conditions =
        json!([{"type": "Ready", "status": "True", "lastTransitionTime": jiff::Timestamp::now().to_string()}]);
    mark(plane, name, &json!({"phase": "Running", "conditions": conditions})).await;
}

async fn scale(plane: &ControlPlane, replicas: i32) {
    let sets = Api::<ReplicaSet>::namespaced(plane.client(), "default");
    let patch = Patch::Merge(json!({"spec": {"replicas": replicas}}));
    sets.patch("x", &PatchParams::default(), &patch).await.expect("it is scaled");
}

fn replicas(set: &ReplicaSet) -> Option<i32> {
    set.status.as_ref().map(|status| status.replicas)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_set_makes_and_adopts_as_many_pods_as_it_wants() {
    let plane = ControlPlane::start_with(Loops::only(["replicaset"])).await;
    let free = "{kind: Pod, apiVersion: v1, metadata: {name: free, namespace: default, labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}";
    plane.apply(free).await;
    plane.apply(SET).await;
    let set = plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(3)).await;
    let status = set.status.expect("a status");
    assert_eq!((status.fully_labeled_replicas, status.observed_generation), (Some(2), Some(1)));
    assert_eq!((status.ready_replicas, status.terminating_replicas), (None, Some(0)));
    assert_eq!(names(&plane, "app=x").await.len(), 3);
    let adopted = pods(&plane).get("free").await.expect("it is there");
    assert_eq!(adopted.metadata.owner_references.expect("it has an owner")[0].kind, "ReplicaSet");

    // A later one is adopted too, and a surplus Pod is deleted. That may be the new one, so the watch starts before it
    // is created.
    let later = ObjectKey::namespaced("default", "later");
    let is_adopted = plane.until(&later, |pod: &Pod| pod.metadata.owner_references.is_some());
    let pod = free.replace("name: free", "name: later");
    tokio::join!(is_adopted, plane.apply(&pod));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_no_longer_matches_is_let_go_and_one_that_failed_is_replaced() {
    let plane = ControlPlane::start_with(Loops::only(["replicaset"])).await;
    plane.apply(SET).await;
    plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(3)).await;
    let all = names(&plane, "app=x").await;
    let patch = Patch::Merge(json!({"metadata": {"labels": {"app": "z"}}}));
    pods(&plane).patch(&all[0], &PatchParams::default(), &patch).await.expect("it is labelled");
    plane.until(&ObjectKey::namespaced("default", &all[0]), |pod: &Pod| pod.metadata.owner_references.is_none()).await;
    mark(&plane, &all[1], &json!({"phase": "Failed"})).await;
    plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(3)).await;
    let is_replaced = async {
        while names(&plane, "app=x").await.len() < 4 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), is_replaced).await.expect("both are replaced");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn those_that_are_worth_least_go_first_and_what_is_ready_long_enough_is_available() {
    let plane = ControlPlane::start_with(Loops::only(["replicaset"])).await;
    plane.apply(&SET.replace("  replicas: 3", "  minReadySeconds: 1\n  replicas: 3")).await;
    plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(3)).await;
    let all = names(&plane, "app=x").await;
    mark_ready(&plane, &all[1]).await;
    plane.until(&x(), |set: &ReplicaSet| set.status.as_ref().is_some_and(|s| s.ready_replicas == Some(1))).await;
    plane.until(&x(), |set: &ReplicaSet| set.status.as_ref().is_some_and(|s| s.available_replicas == Some(1))).await;
    scale(&plane, 1).await;
    plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(1)).await;
    assert_eq!(names(&plane, "app=x").await, [all[1].clone()]);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_a_condition_and_an_event_until_it_is_allowed() {
    let plane = ControlPlane::start_with(Loops::only(["replicationcontroller"])).await;
    plane
        .apply("{kind: LimitRange, apiVersion: v1, metadata: {name: small, namespace: default}, spec: {limits: [{type: Container, max: {cpu: 1}}]}}")
        .await;
    plane
        .apply(
            "
kind: ReplicationController
apiVersion: v1
metadata: {name: x, namespace: default}
spec:
  replicas: 2
  template: {metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i, resources: {limits: {cpu: 2}}}]}}
",
        )
        .await;
    let failure = |controller: &ReplicationController| {
        let conditions = controller.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == "ReplicaFailure")
    };
    let held = plane.until(&x(), |controller| failure(controller).is_some()).await;
    let condition = failure(&held).expect("the condition");
    assert_eq!((&*condition.status, condition.reason.as_deref()), ("True", Some("FailedCreate")));
    assert!(condition.message.expect("a message").contains("maximum cpu usage per Container is 1"));
    Api::<k8s_openapi::api::core::v1::LimitRange>::namespaced(plane.client(), "default")
        .delete("small", &DeleteParams::default())
        .await
        .expect("it is deleted");
    plane
        .until(&x(), |controller: &ReplicationController| {
            failure(controller).is_none() && controller.status.as_ref().is_some_and(|status| status.replicas == 2)
        })
        .await;
    let events = Api::<Event>::namespaced(plane.client(), "default").list(&ListParams::default()).await.unwrap();
    assert!(events.items.iter().any(|event| event.reason.as_deref() == Some("FailedCreate")
        && event.message.as_deref().is_some_and(|message| message.starts_with("Error creating: pods \"x-"))));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_says_what_is_true_is_not_written_again() {
    let plane = ControlPlane::start_with(Loops::only(["replicaset"])).await;
    plane.apply(SET).await;
    plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(3)).await;
    let sets = Api::<ReplicaSet>::namespaced(plane.client(), "default");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"a": "b"}}}));
    let patched = sets.patch("x", &PatchParams::default(), &patch).await.expect("it is annotated");
    // These changes are processed after the annotation.
    scale(&plane, 4).await;
    plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(4)).await;
    scale(&plane, 4).await;
    let set = sets.get("x").await.expect("it is there");
    let version = |set: &ReplicaSet| set.metadata.resource_version.clone().unwrap_or_default();
    assert_ne!(version(&patched), version(&set));
    assert_eq!(names(&plane, "app=x").await.len(), 4);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_is_denied_as_a_conflict_is_not_taken_for_done() {
    let plane = ControlPlane::start_with(Loops::only(["replicaset"])).await;
    plane.apply(SET).await;
    plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(3)).await;
    plane.fail_next_where(2, Fault::Refused(409), |method, path| {
        *method == http::Method::DELETE && path.contains("/pods/")
    });
    scale(&plane, 1).await;
    plane.until(&x(), |set: &ReplicaSet| replicas(set) == Some(1)).await;
    assert_eq!((plane.n_faults_left(), names(&plane, "app=x").await.len()), (0, 1));
    plane.stop().await;
}
