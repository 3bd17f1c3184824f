//! Deployments and their ReplicaSets on a whole control plane.

use crate::workloads::replicas::{mark_ready, names, pods};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use std::collections::BTreeMap;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

const WEB: &str = "
kind: Deployment
apiVersion: apps/v1
metadata: {name: web, namespace: default, annotations: {note: kept}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: 'nginx:1'}]}}
";

fn web() -> ObjectKey {
    ObjectKey::namespaced("default", "web")
}

async fn start() -> ControlPlane {
    ControlPlane::start_with(Loops::only(["deployment", "replicaset"])).await
}

async fn change(plane: &ControlPlane, spec: serde_json::Value) {
    let deployments = Api::<Deployment>::namespaced(plane.client(), "default");
    let patch = Patch::Strategic(json!({"spec": spec}));
    deployments.patch("web", &PatchParams::default(), &patch).await.expect("it is changed");
}

async fn set_image(plane: &ControlPlane, image: &str) {
    change(plane, json!({"template": {"spec": {"containers": [{"name": "c", "image": image}]}}})).await;
}

fn progress(deployment: &Deployment) -> Option<&str> {
    let conditions = deployment.status.as_ref()?.conditions.as_ref()?;
    let progressing = conditions.iter().find(|condition| condition.type_.as_deref() == Some("Progressing"))?;
    progressing.reason.as_deref()
}

/// The criterion of `kubectl rollout status`.
fn is_done(deployment: &Deployment) -> bool {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.replicas;
    status.observed_generation == deployment.metadata.generation
        && [status.replicas, status.updated_replicas, status.available_replicas].iter().all(|count| *count == wanted)
}

/// Marks every new Pod as ready, until the rollout is complete.
async fn roll_out(plane: &ControlPlane) -> Deployment {
    let deployments = Api::<Deployment>::namespaced(plane.client(), "default");
    let rollout = async {
        loop {
            let deployment = deployments.get("web").await.expect("it is there");
            if is_done(&deployment) {
                return deployment;
            }
            let list = pods(plane).list(&ListParams::default().labels("app=web")).await.expect("pods are listed");
            for pod in list.items {
                let is_pending = pod.status.is_some_and(|status| status.phase.as_deref() == Some("Pending"));
                if is_pending && pod.metadata.deletion_timestamp.is_none() {
                    mark_ready(plane, pod.metadata.name.as_deref().unwrap_or_default()).await;
                }
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), rollout).await.expect("the rollout ends")
}

/// The replicas of each revision.
async fn revisions(plane: &ControlPlane) -> BTreeMap<String, Option<i32>> {
    let sets = Api::<ReplicaSet>::namespaced(plane.client(), "default");
    let sets = sets.list(&ListParams::default()).await.expect("sets are listed");
    let revision = |set: &ReplicaSet| {
        set.metadata.annotations.clone().unwrap_or_default()["deployment.kubernetes.io/revision"].clone()
    };
    sets.items.iter().map(|set| (revision(set), set.spec.replicas)).collect()
}

fn of(revisions: &[(&str, i32)]) -> BTreeMap<String, Option<i32>> {
    revisions.iter().map(|(revision, size)| ((*revision).to_owned(), Some(*size))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_rolls_out_and_back_and_says_so() {
    let plane = start().await;
    plane.apply(WEB).await;
    plane.until(&web(), |deployment| progress(deployment) == Some("ReplicaSetUpdated")).await;
    let deployment = roll_out(&plane).await;
    let annotations = deployment.metadata.annotations.expect("annotations");
    assert_eq!(annotations["deployment.kubernetes.io/revision"], "1");
    let status = deployment.status.expect("a status");
    assert_eq!((status.replicas, status.available_replicas, status.updated_replicas), (Some(3), Some(3), Some(3)));

    set_image(&plane, "nginx:2").await;
    roll_out(&plane).await;
    assert_eq!(revisions(&plane).await, of(&[("1", 0), ("2", 3)]));
    set_image(&plane, "nginx:1").await;
    let deployment = roll_out(&plane).await;
    assert_eq!(deployment.metadata.annotations.expect("annotations")["deployment.kubernetes.io/revision"], "3");
    assert_eq!(revisions(&plane).await, of(&[("2", 0), ("3", 3)]));
    assert_eq!(names(&plane, "app=web").await.len(), 3);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_replica_set_has_the_hash_of_its_template_and_events_tell_of_it() {
    let plane = start().await;
    plane.apply(WEB).await;
    roll_out(&plane).await;
    let sets = Api::<ReplicaSet>::namespaced(plane.client(), "default").list(&ListParams::default()).await.unwrap();
    let set = &sets.items[0];
    let hash = &set.metadata.labels.as_ref().expect("labels")["pod-template-hash"];
    let name = format!("web-{hash}");
    assert_eq!(set.metadata.name.as_ref(), Some(&name));
    assert_eq!(set.metadata.annotations.as_ref().expect("annotations")["note"], "kept");
    assert_eq!(names(&plane, &format!("app=web,pod-template-hash={hash}")).await.len(), 3);
    let wanted = format!("Scaled up replica set {name} from 0 to 3");
    let told = async {
        let events = Api::<Event>::namespaced(plane.client(), "default");
        while !events.list(&ListParams::default()).await.expect("events").items.iter().any(|event| {
            event.reason.as_deref() == Some("ScalingReplicaSet") && event.message.as_ref() == Some(&wanted)
        }) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), told).await.expect("an Event tells");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_deployment_waits_and_recreation_begins_when_all_old_pods_are_gone() {
    let plane = start().await;
    plane.apply(&WEB.replace("replicas: 3", "replicas: 2\n  strategy: {type: Recreate}")).await;
    roll_out(&plane).await;
    change(&plane, json!({"paused": true})).await;
    plane.until(&web(), |deployment| progress(deployment) == Some("DeploymentPaused")).await;
    set_image(&plane, "nginx:2").await;
    change(&plane, json!({"replicas": 3})).await;
    plane
        .until(&web(), |deployment: &Deployment| deployment.status.as_ref().is_some_and(|s| s.replicas == Some(3)))
        .await;
    assert_eq!(revisions(&plane).await, of(&[("1", 3)]));
    change(&plane, json!({"paused": false})).await;
    roll_out(&plane).await;
    assert_eq!(revisions(&plane).await, of(&[("1", 0), ("2", 3)]));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_is_taken_by_another_template_is_given_way_to() {
    let plane = ControlPlane::start_with(Loops::none()).await;
    plane.apply(WEB).await;
    let plane = plane.with_loops(Loops::only(["deployment"])).await;
    plane.until(&web(), |deployment| progress(deployment).is_some()).await;
    let sets = Api::<ReplicaSet>::namespaced(plane.client(), "default");
    let name = sets.list(&ListParams::default()).await.unwrap().items[0].metadata.name.clone().expect("a name");
    let plane = plane.with_loops(Loops::none()).await;
    // Another Deployment of the same name.
    Api::<Deployment>::namespaced(plane.client(), "default")
        .delete("web", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    sets.delete(&name, &kube::api::DeleteParams::default()).await.unwrap();
    plane
        .apply(&format!(
            "
kind: ReplicaSet
apiVersion: apps/v1
metadata: {{name: {name}, namespace: default}}
spec:
  replicas: 0
  selector: {{matchLabels: {{app: other}}}}
  template: {{metadata: {{labels: {{app: other}}}}, spec: {{containers: [{{name: c, image: i}}]}}}}
"
        ))
        .await;
    plane.apply(WEB).await;
    let plane = plane.with_loops(Loops::only(["deployment"])).await;
    let deployment = plane.until(&web(), |deployment| progress(deployment).is_some()).await;
    assert_eq!(deployment.status.expect("a status").collision_count, Some(1));
    plane.stop().await;
}
