//! DaemonSets on a whole control plane. The tests bind Pods to their Nodes as a scheduler would.

use crate::workloads::replicas::{mark, mark_ready, names, pods};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Binding, Event, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Fault, Loops};

const SET: &str = "
kind: DaemonSet
apiVersion: apps/v1
metadata: {name: d, namespace: default}
spec:
  selector: {matchLabels: {app: d}}
  template:
    metadata: {labels: {app: d}}
    spec: {nodeSelector: {on: 'yes'}, terminationGracePeriodSeconds: 0, containers: [{name: c, image: 'i:1'}]}
";

fn d() -> ObjectKey {
    ObjectKey::namespaced("default", "d")
}

/// A control plane with Nodes that have the label, and no taints.
async fn start(nodes: &[&str]) -> ControlPlane {
    let plane = ControlPlane::start_with(Loops::only(["daemonset"])).await;
    for node in nodes {
        add_node(&plane, node).await;
    }
    plane
}

async fn add_node(plane: &ControlPlane, name: &str) {
    plane.apply(&format!("{{kind: Node, apiVersion: v1, metadata: {{name: {name}, labels: {{'on': 'yes'}}}}}}")).await;
    patch_node(plane, name, json!({"spec": {"taints": null}})).await;
}

async fn patch_node(plane: &ControlPlane, name: &str, patch: Value) {
    let nodes = Api::<Node>::all(plane.client());
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("the node is changed");
}

async fn patch(plane: &ControlPlane, patch: Value) {
    let sets = Api::<DaemonSet>::namespaced(plane.client(), "default");
    sets.patch("d", &PatchParams::default(), &Patch::Merge(patch)).await.expect("the set is changed");
}

/// The Node that a Pod is assigned to.
fn target(pod: &Pod) -> String {
    let affinity =
        pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()).and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let fields = required.and_then(|required| required.node_selector_terms[0].match_fields.as_ref()).expect("a field");
    assert_eq!((&*fields[0].key, &*fields[0].operator), ("metadata.name", "In"));
    fields[0].values.clone().unwrap_or_default().concat()
}

/// Binds all unbound Pods, and marks all as ready that have not terminated.
async fn ready(plane: &ControlPlane) {
    for pod in pods(plane).list(&ListParams::default()).await.expect("pods are listed").items {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref()).is_none() {
            let binding = Binding {
                metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
                target: ObjectReference {
                    kind: Some("Node".to_owned()),
                    name: Some(target(&pod)),
                    ..ObjectReference::default()
                },
            };
            let bound =
                pods(plane).create_subresource::<_, Value>("binding", &name, &PostParams::default(), &binding).await;
            bound.expect("the pod is bound");
            mark_ready(plane, &name).await;
        }
    }
}

/// Waits until exactly these Nodes have Pods, with these images.
async fn until_on(plane: &ControlPlane, wanted: &[(&str, &str)]) {
    let found = async || {
        let list = pods(plane).list(&ListParams::default().labels("app=d")).await.expect("pods are listed");
        let image = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default();
        let mut found: Vec<_> = list.items.iter().map(|pod| (target(pod), image(pod))).collect();
        found.sort();
        found
    };
    let is_so = async {
        while !found().await.iter().map(|(node, image)| (&**node, &**image)).eq(wanted.iter().copied()) {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(Duration::from_secs(30), is_so).await.is_err() {
        panic!("{:?}", found().await);
    }
}

async fn until_status(plane: &ControlPlane, wanted: Value) -> DaemonSet {
    let has = |set: &DaemonSet| {
        let status = serde_json::to_value(&set.status).unwrap_or_default();
        wanted.as_object().is_some_and(|wanted| wanted.iter().all(|(key, value)| status[key] == *value))
    };
    plane.until(&d(), has).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_node_that_is_meant_has_a_pod_as_long_as_it_is() {
    let plane = start(&["a", "b"]).await;
    plane.apply("{kind: Node, apiVersion: v1, metadata: {name: other}}").await;
    plane.apply(SET).await;
    until_on(&plane, &[("a", "i:1"), ("b", "i:1")]).await;
    until_status(&plane, json!({"desiredNumberScheduled": 2, "currentNumberScheduled": 2, "numberUnavailable": 2, "numberAvailable": null})).await;
    ready(&plane).await;
    until_status(
        &plane,
        json!({"numberReady": 2, "numberAvailable": 2, "numberUnavailable": null, "numberMisscheduled": 0}),
    )
    .await;

    add_node(&plane, "c").await;
    until_on(&plane, &[("a", "i:1"), ("b", "i:1"), ("c", "i:1")]).await;
    ready(&plane).await;
    patch_node(&plane, "a", json!({"metadata": {"labels": {"on": null}}})).await;
    until_on(&plane, &[("b", "i:1"), ("c", "i:1")]).await;
    patch_node(&plane, "b", json!({"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}})).await;
    until_on(&plane, &[("c", "i:1")]).await;
    until_status(&plane, json!({"desiredNumberScheduled": 1, "numberReady": 1})).await;
    patch_node(&plane, "a", json!({"metadata": {"labels": {"on": "yes"}}})).await;
    until_on(&plane, &[("a", "i:1"), ("c", "i:1")]).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_template_replaces_one_pod_after_the_other_and_makes_a_revision() {
    let plane = start(&["a", "b"]).await;
    plane.apply(SET).await;
    until_on(&plane, &[("a", "i:1"), ("b", "i:1")]).await;
    ready(&plane).await;
    until_status(&plane, json!({"numberAvailable": 2})).await;
    patch(&plane, json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}})).await;
    until_on(&plane, &[("a", "i:2"), ("b", "i:1")]).await;
    until_status(&plane, json!({"updatedNumberScheduled": 1, "numberAvailable": 1, "observedGeneration": 2})).await;
    ready(&plane).await;
    until_on(&plane, &[("a", "i:2"), ("b", "i:2")]).await;
    ready(&plane).await;
    until_status(&plane, json!({"updatedNumberScheduled": 2, "numberAvailable": 2})).await;

    let revisions = Api::<ControllerRevision>::namespaced(plane.client(), "default");
    let list = revisions.list(&ListParams::default()).await.expect("revisions are listed").items;
    let mut numbers: Vec<_> = list.iter().map(|one| one.revision).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [Some(1), Some(2)]);
    let pod = pods(&plane).get(&names(&plane, "app=d").await[0]).await.expect("it is there");
    let labels = pod.metadata.labels.expect("labels");
    assert_eq!(labels["pod-template-generation"], "2");
    revisions
        .get(&format!("d-{}", labels["controller-revision-hash"]))
        .await
        .expect("a revision is named by the label");

    // With a limit of 0, only revisions in use are left.
    patch(&plane, json!({"spec": {"revisionHistoryLimit": 0}})).await;
    let name =
        list.iter().find(|one| one.revision == Some(1)).and_then(|one| one.metadata.name.clone()).expect("a name");
    plane.until_gone::<ControllerRevision>(&ObjectKey::namespaced("default", &name)).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_surge_the_new_pod_comes_first() {
    let plane = start(&["a"]).await;
    plane.apply(SET).await;
    until_on(&plane, &[("a", "i:1")]).await;
    ready(&plane).await;
    until_status(&plane, json!({"numberAvailable": 1})).await;
    patch(
        &plane,
        json!({"spec": {
            "updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}},
        }}),
    )
    .await;
    until_on(&plane, &[("a", "i:1"), ("a", "i:2")]).await;
    ready(&plane).await;
    until_on(&plane, &[("a", "i:2")]).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_pod_is_replaced_with_an_event_and_later_if_it_fails_again() {
    let plane = start(&["a"]).await;
    plane.apply(SET).await;
    until_on(&plane, &[("a", "i:1")]).await;
    until_status(&plane, json!({"observedGeneration": 1})).await;
    let failed = names(&plane, "app=d").await.remove(0);
    mark(&plane, &failed, &json!({"phase": "Failed"})).await;
    plane.until_gone::<Pod>(&ObjectKey::namespaced("default", &failed)).await;
    until_on(&plane, &[("a", "i:1")]).await;
    let again = names(&plane, "app=d").await.remove(0);
    mark(&plane, &again, &json!({"phase": "Failed"})).await;
    plane.until_gone::<Pod>(&ObjectKey::namespaced("default", &again)).await;
    until_on(&plane, &[("a", "i:1")]).await;
    let note = format!("Found failed daemon pod default/{failed} on node a, will try to kill it");
    let events = Api::<Event>::namespaced(plane.client(), "default");
    let is_noted = async {
        loop {
            let list = events.list(&ListParams::default()).await.expect("events are listed");
            let is_it = |event: &Event| {
                event.message.as_deref() == Some(&note) && event.reason.as_deref() == Some("FailedDaemonPod")
            };
            if list.items.iter().any(is_it) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), is_noted).await.expect("an Event says so");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revision_whose_deletion_is_denied_as_a_conflict_is_deleted_later() {
    let plane = start(&[]).await;
    plane.apply(SET).await;
    let is_observed = |generation| {
        move |set: &DaemonSet| set.status.as_ref().is_some_and(|status| status.observed_generation == Some(generation))
    };
    plane.until(&d(), is_observed(1)).await;
    let revisions = Api::<ControllerRevision>::namespaced(plane.client(), "default");
    let first = revisions.list(&ListParams::default()).await.unwrap().items.remove(0).metadata.name.unwrap();
    plane.fail_next_where(1, Fault::Refused(409), |method, path| {
        *method == http::Method::DELETE && path.contains("/controllerrevisions/")
    });
    let image = |image: &str| json!({"spec": {"revisionHistoryLimit": 0, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}}});
    patch(&plane, image("i:2")).await;
    plane.until_gone::<ControllerRevision>(&ObjectKey::namespaced("default", &first)).await;
    patch(&plane, image("i:3")).await;
    plane.until(&d(), is_observed(3)).await;
    assert_eq!(plane.n_faults_left(), 0);
    plane.stop().await;
}
