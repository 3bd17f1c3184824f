//! The server's answers to requests for an outdated decision.

use super::{key, reference, without_extenders};
use crate::scheduler::Configuration;
use crate::scheduler::plugins::volumes::{ClaimVersion, Provisioning, Reserved, VolumeBinding, VolumePlan};
use crate::scheduler::requests::{Answer, Requests};
use crate::scheduler::state::Effect;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use steersman_testkit::ControlPlane;

const OBJECTS: &str = "
{apiVersion: v1, kind: PersistentVolume, metadata: {name: disk}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], storageClassName: fast, hostPath: {path: /disk}}}
---
{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data, namespace: default}, spec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}
";

async fn send(plane: &ControlPlane, plan: VolumePlan) -> Result<(), String> {
    let effect = Effect::BindVolumes { pod: reference("p"), node: "n".into(), plan };
    let requests = Requests::new(plane.client(), &Configuration::default(), without_extenders(), Timestamp::now);
    match requests.send(effect).await {
        Answer::VolumesWritten(_, answer) => answer,
        other => panic!("{other:?}"),
    }
}

/// The current version of the claim `data`.
async fn claim(plane: &ControlPlane) -> ClaimVersion {
    let claim = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default").get("data").await.unwrap();
    let (uid, version) = (claim.metadata.uid.unwrap(), claim.metadata.resource_version.unwrap());
    ClaimVersion { key: key("data"), uid, version }
}

#[tokio::test]
async fn a_volume_that_another_claim_got_meanwhile_is_not_taken_from_it() {
    let plane = ControlPlane::start().await;
    plane.apply(OBJECTS).await;
    let volumes = Api::<PersistentVolume>::all(plane.client());
    let decided = volumes.get("disk").await.unwrap();
    let plan = VolumePlan {
        bind: vec![VolumeBinding {
            volume: "disk".to_owned(),
            volume_version: decided.metadata.resource_version.unwrap(),
            claim: claim(&plane).await,
            reserved: Reserved::No,
        }],
        provision: Vec::new(),
    };
    let other = json!({"spec": {"claimRef": {"namespace": "default", "name": "other", "uid": "uid-other"}}});
    volumes.patch("disk", &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
    let refused = send(&plane, plan.clone()).await.unwrap_err();
    assert!(refused.contains("the object has been modified"), "{refused}");
    let reference = volumes.get("disk").await.unwrap().spec.and_then(|spec| spec.claim_ref).unwrap();
    assert_eq!(reference.name.as_deref(), Some("other"));
    // For the current version, the same request succeeds.
    let free = json!({"spec": {"claimRef": null}});
    let free: PersistentVolume = volumes.patch("disk", &PatchParams::default(), &Patch::Merge(free)).await.unwrap();
    let mut plan = plan;
    plan.bind[0].volume_version = free.metadata.resource_version.unwrap();
    send(&plane, plan.clone()).await.unwrap();
    let bound = volumes.get("disk").await.unwrap();
    let reference = bound.spec.and_then(|spec| spec.claim_ref).unwrap();
    assert_eq!(reference.uid.as_deref(), Some(plan.bind[0].claim.uid.as_str()));
    assert_eq!(bound.metadata.annotations.unwrap()["pv.kubernetes.io/bound-by-controller"], "yes");
    plane.stop().await;
}

#[tokio::test]
async fn no_node_is_selected_for_a_claim_that_has_changed_or_is_another() {
    let plane = ControlPlane::start().await;
    plane.apply(OBJECTS).await;
    let plan = |claim: ClaimVersion| VolumePlan {
        bind: Vec::new(),
        provision: vec![Provisioning { claim, is_selected: false }],
    };
    let old = claim(&plane).await;
    let claims = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default");
    let changed = json!({"metadata": {"labels": {"a": "b"}}});
    claims.patch("data", &PatchParams::default(), &Patch::Merge(changed)).await.unwrap();
    let refused = send(&plane, plan(old)).await.unwrap_err();
    assert!(refused.contains("the object has been modified"), "{refused}");
    let current = claim(&plane).await;
    send(&plane, plan(ClaimVersion { uid: "another".to_owned(), ..current.clone() })).await.unwrap_err();
    let selected = async || {
        let claim = claims.get("data").await.unwrap();
        claim.metadata.annotations.unwrap_or_default().get("volume.kubernetes.io/selected-node").cloned()
    };
    assert_eq!(selected().await, None::<String>);
    send(&plane, plan(current)).await.unwrap();
    assert_eq!(selected().await.map(Value::from), Some(json!("n")));
    plane.stop().await;
}

#[tokio::test]
async fn a_binding_that_the_server_refuses_names_the_plugin() {
    let plane = ControlPlane::start().await;
    let effect =
        Effect::Bind { pod: reference("p"), node: "n".into(), scheduler: "default-scheduler".into(), binder: None };
    let requests = Requests::new(plane.client(), &Configuration::default(), without_extenders(), Timestamp::now);
    let Answer::Bound(_, Err(why)) = requests.send(effect).await else { panic!("there is no such Pod") };
    assert_eq!(why, "running Bind plugin \"DefaultBinder\": pods \"p\" not found");
    plane.stop().await;
}
