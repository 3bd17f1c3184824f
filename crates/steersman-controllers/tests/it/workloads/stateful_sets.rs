//! StatefulSets on a whole control plane.

use crate::workloads::replicas::{mark, mark_ready, names, pods};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

const SET: &str = "
kind: StatefulSet
apiVersion: apps/v1
metadata: {name: web, namespace: default}
spec:
  replicas: 2
  serviceName: web
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: 'i:1'}]}
";
const CLAIMS: &str = "  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

async fn start() -> ControlPlane {
    ControlPlane::start_with(Loops::only(["statefulset"])).await
}

async fn patch(plane: &ControlPlane, patch: Value) {
    let sets = Api::<StatefulSet>::namespaced(plane.client(), "default");
    sets.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.expect("the set is changed");
}

/// Waits until a Pod exists and is not being deleted, and returns it.
async fn there(plane: &ControlPlane, name: &str) -> Pod {
    plane.until(&key(name), |pod: &Pod| pod.metadata.deletion_timestamp.is_none()).await
}

async fn until_status(plane: &ControlPlane, wanted: Value) -> StatefulSet {
    let has = |set: &StatefulSet| {
        let status = serde_json::to_value(&set.status).unwrap_or_default();
        wanted.as_object().is_some_and(|wanted| wanted.iter().all(|(key, value)| status[key] == *value))
    };
    plane.until(&key("web"), has).await
}

async fn notes(plane: &ControlPlane) -> Vec<String> {
    let list = Api::<Event>::namespaced(plane.client(), "default")
        .list(&ListParams::default())
        .await
        .expect("events are listed");
    let text = |event: Event| {
        format!(
            "{} {} {}",
            event.type_.unwrap_or_default(),
            event.reason.unwrap_or_default(),
            event.message.unwrap_or_default()
        )
    };
    let mut notes: Vec<String> = list.items.into_iter().map(text).collect();
    notes.sort();
    notes
}

async fn until_noted(plane: &ControlPlane, wanted: &[&str]) {
    let all = async {
        loop {
            let notes = notes(plane).await;
            if wanted.iter().all(|wanted| notes.iter().any(|note| note == wanted)) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(std::time::Duration::from_secs(30), all).await.is_err() {
        panic!("{:#?}", notes(plane).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_come_one_after_the_other_and_go_from_the_last() {
    let plane = start().await;
    plane.apply(SET).await;
    let first = there(&plane, "web-0").await;
    let labels = first.metadata.labels.expect("labels");
    assert_eq!(
        (&*labels["statefulset.kubernetes.io/pod-name"], &*labels["apps.kubernetes.io/pod-index"]),
        ("web-0", "0")
    );
    let set = until_status(&plane, json!({"replicas": 1, "observedGeneration": 1})).await;
    let status = serde_json::to_value(set.status).expect("a status");
    assert_eq!(status["updateRevision"], *labels["controller-revision-hash"]);
    assert_eq!(
        (&status["currentReplicas"], &status["availableReplicas"], &status["collisionCount"]),
        (&json!(1), &json!(0), &json!(0))
    );
    assert_eq!(names(&plane, "app=web").await, ["web-0"], "the second one waits");
    mark_ready(&plane, "web-0").await;
    there(&plane, "web-1").await;
    mark_ready(&plane, "web-1").await;
    until_status(
        &plane,
        json!({"readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2}),
    )
    .await;

    // A failed Pod is created again under its name.
    let failed = pods(&plane).get("web-0").await.expect("it is there").metadata.uid;
    mark(&plane, "web-0", &json!({"phase": "Failed"})).await;
    plane.until(&key("web-0"), |pod: &Pod| pod.metadata.uid != failed).await;
    mark_ready(&plane, "web-0").await;

    patch(&plane, json!({"spec": {"replicas": 0}})).await;
    plane.until_gone::<Pod>(&key("web-1")).await;
    plane.until_gone::<Pod>(&key("web-0")).await;
    until_status(&plane, json!({"replicas": 0, "readyReplicas": null, "observedGeneration": 2})).await;
    until_noted(
        &plane,
        &[
            "Normal SuccessfulCreate Create Pod web-1 in StatefulSet web successful",
            "Normal SuccessfulDelete Delete Pod web-1 in StatefulSet web successful",
        ],
    )
    .await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_goes_from_the_last_and_back_again_by_its_revision() {
    let plane = start().await;
    plane.apply(&SET.replace("  serviceName", "  podManagementPolicy: Parallel\n  serviceName")).await;
    for name in ["web-0", "web-1"] {
        there(&plane, name).await;
        mark_ready(&plane, name).await;
    }
    let before = until_status(&plane, json!({"readyReplicas": 2})).await.status.expect("a status");
    let (first, second) =
        (before.current_revision.clone(), pods(&plane).get("web-1").await.expect("it is there").metadata.uid);
    assert_eq!(before.current_revision, before.update_revision);
    patch(&plane, json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}})).await;
    plane.until(&key("web-1"), |pod: &Pod| pod.metadata.uid != second).await;
    let during =
        until_status(&plane, json!({"updatedReplicas": 1, "currentReplicas": 1})).await.status.expect("a status");
    assert_eq!(during.current_revision, first);
    assert_ne!(during.update_revision, first);
    let kept = pods(&plane).get("web-0").await.expect("it is there");
    assert!(kept.metadata.deletion_timestamp.is_none(), "the first one waits for the last");
    mark_ready(&plane, "web-1").await;
    plane.until(&key("web-0"), |pod: &Pod| pod.metadata.uid != kept.metadata.uid).await;
    mark_ready(&plane, "web-0").await;
    let after = until_status(&plane, json!({"updatedReplicas": 2, "currentReplicas": 2, "readyReplicas": 2})).await;
    assert_eq!(after.status.expect("a status").current_revision, during.update_revision);

    // The earlier template gets its earlier revision, with a new number.
    patch(&plane, json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})).await;
    let back = until_status(&plane, json!({"updateRevision": first, "observedGeneration": 3})).await;
    assert_eq!(back.status.expect("a status").current_revision, during.update_revision);
    let revisions = Api::<ControllerRevision>::namespaced(plane.client(), "default");
    let list = revisions.list(&ListParams::default()).await.expect("revisions are listed");
    let mut numbers: Vec<_> = list.items.iter().map(|one| (one.revision, one.metadata.name.clone())).collect();
    numbers.sort();
    assert_eq!(numbers, [(Some(2), during.update_revision), (Some(3), first)]);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_made_first_and_owned_as_the_policy_says() {
    let plane = start().await;
    plane
        .apply(&format!(
            "{SET}{CLAIMS}  persistentVolumeClaimRetentionPolicy: {{whenDeleted: Delete, whenScaled: Delete}}\n"
        ))
        .await;
    let pod = there(&plane, "web-0").await;
    let volumes = pod.spec.expect("a spec").volumes.expect("volumes");
    assert_eq!(volumes[0].persistent_volume_claim.as_ref().expect("a claim").claim_name, "data-web-0");
    let owner_of = |claim: &PersistentVolumeClaim| {
        let owners = claim.metadata.owner_references.clone().unwrap_or_default();
        owners.into_iter().map(|owner| format!("{} {}", owner.kind, owner.name)).collect::<Vec<_>>()
    };
    plane.until(&key("data-web-0"), |claim: &PersistentVolumeClaim| owner_of(claim) == ["StatefulSet web"]).await;
    mark_ready(&plane, "web-0").await;
    there(&plane, "web-1").await;
    mark_ready(&plane, "web-1").await;
    plane.until(&key("data-web-1"), |claim: &PersistentVolumeClaim| owner_of(claim) == ["StatefulSet web"]).await;
    until_status(&plane, json!({"availableReplicas": 2})).await;
    patch(&plane, json!({"spec": {"replicas": 1}})).await;
    plane.until_gone::<Pod>(&key("web-1")).await;
    plane.until(&key("data-web-1"), |claim: &PersistentVolumeClaim| owner_of(claim) == ["Pod web-1"]).await;

    // The Pod is created again only after the claim of the previous one is gone.
    patch(&plane, json!({"spec": {"replicas": 2}})).await;
    until_status(&plane, json!({"observedGeneration": 3})).await;
    assert_eq!(names(&plane, "app=web").await, ["web-0"]);
    let claims = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default");
    claims.delete("data-web-1", &DeleteParams::default()).await.expect("the claim is deleted");
    claims
        .patch("data-web-1", &PatchParams::default(), &Patch::Merge(json!({"metadata": {"finalizers": null}})))
        .await
        .ok();
    there(&plane, "web-1").await;
    until_noted(
        &plane,
        &[
            "Normal SuccessfulCreate Create Claim data-web-0 Pod web-0 in StatefulSet web success",
            "Normal SuccessfulCreate Create Pod web-0 in StatefulSet web successful",
        ],
    )
    .await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_an_event_and_an_orphan_of_the_right_name_is_adopted() {
    let plane = start().await;
    plane
        .apply("{kind: LimitRange, apiVersion: v1, metadata: {name: small, namespace: default}, spec: {limits: [{type: Container, max: {cpu: 1}}]}}")
        .await;
    plane.apply(&SET.replace("image: 'i:1'", "image: 'i:1', resources: {limits: {cpu: 2}}")).await;
    until_noted(&plane, &[
        "Warning FailedCreate Create Pod web-0 in StatefulSet web failed error: pods \"web-0\" is forbidden: maximum cpu usage per Container is 1, but limit is 2",
    ])
    .await;
    for name in ["web-0", "other-0"] {
        plane
            .apply(&format!("{{kind: Pod, apiVersion: v1, metadata: {{name: {name}, namespace: default, labels: {{app: web}}}}, spec: {{containers: [{{name: c, image: i, resources: {{limits: {{cpu: 1}}}}}}]}}}}"))
            .await;
    }
    let adopted = plane.until(&key("web-0"), |pod: &Pod| pod.metadata.owner_references.is_some()).await;
    assert_eq!(adopted.metadata.owner_references.expect("an owner")[0].kind, "StatefulSet");
    mark_ready(&plane, "web-0").await;
    // Then it gets the label with its own name.
    plane
        .until(&key("web-0"), |pod: &Pod| {
            pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key("statefulset.kubernetes.io/pod-name"))
        })
        .await;
    let other = pods(&plane).get("other-0").await.expect("it is there");
    assert!(other.metadata.owner_references.is_none(), "one of another name is not adopted");
    plane.stop().await;
}
