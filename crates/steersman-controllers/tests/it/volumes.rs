//! Claims and volumes: binding, protection and release, on a whole control plane.

use http::Method;
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttributesClass};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Fault, Loops, User};

const LOOPS: [&str; 4] = ["ephemeral-volume", "persistentvolume-binder", "pv-protection", "pvc-protection"];
const VOLUME: &str = "
kind: PersistentVolume
apiVersion: v1
metadata: {name: disk}
spec: {capacity: {storage: 2Gi}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Retain, hostPath: {path: /data}}
";
const CLAIM: &str = "
kind: PersistentVolumeClaim
apiVersion: v1
metadata: {name: data, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
const ACCOUNT: &str = "{kind: ServiceAccount, apiVersion: v1, metadata: {name: default, namespace: default}}";

fn claim_key() -> ObjectKey {
    ObjectKey::namespaced("default", "data")
}

fn phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref()?.phase.as_deref()
}

fn volume_phase(volume: &PersistentVolume) -> Option<&str> {
    volume.status.as_ref()?.phase.as_deref()
}

/// Waits for an Event with a reason about the claim, and returns its message.
async fn event(plane: &ControlPlane, reason: &str) -> String {
    crate::support::events::until(plane, "data", reason).await.message.unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_is_bound_to_a_volume_that_comes_later_and_the_volume_is_released_with_it() {
    let plane = ControlPlane::start_with(Loops::only(LOOPS)).await;
    plane.apply(CLAIM).await;
    let note = event(&plane, "FailedBinding").await;
    assert_eq!(note, "no persistent volumes available for this claim and no storage class is set");
    plane.apply(VOLUME).await;
    let claim = plane.until(&claim_key(), |claim| phase(claim) == Some("Bound")).await;
    assert_eq!(claim.spec.unwrap().volume_name.as_deref(), Some("disk"));
    let annotations = claim.metadata.annotations.unwrap();
    assert_eq!(annotations.get("pv.kubernetes.io/bind-completed").map(String::as_str), Some("yes"));
    assert_eq!(claim.status.unwrap().capacity.unwrap()["storage"].0, "2Gi");
    let disk = ObjectKey::cluster("disk");
    plane.until(&disk, |volume| volume_phase(volume) == Some("Bound")).await;
    let claims = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default");
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<PersistentVolumeClaim>(&claim_key()).await;
    let volume = plane.until(&disk, |volume| volume_phase(volume) == Some("Released")).await;
    assert_eq!(volume.spec.unwrap().claim_ref.unwrap().name.as_deref(), Some("data"), "nobody else gets it");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_a_pod_with_a_node_uses_outlives_its_deletion_until_the_pod_goes() {
    let plane = ControlPlane::start_with(Loops::only(LOOPS)).await;
    plane.apply(VOLUME).await;
    plane.apply(CLAIM).await;
    plane.apply(ACCOUNT).await;
    plane
        .apply(
            "
kind: Pod
apiVersion: v1
metadata: {name: user, namespace: default}
spec:
  nodeName: node
  containers: [{name: c, image: i}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
",
        )
        .await;
    let protected = |claim: &PersistentVolumeClaim| {
        phase(claim) == Some("Bound")
            && claim.metadata.finalizers.as_deref() == Some(&["kubernetes.io/pvc-protection".to_owned()])
    };
    plane.until(&claim_key(), protected).await;
    let claims = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default");
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    // The volume waits for the claim, and the claim for the Pod.
    let volumes = Api::<PersistentVolume>::all(plane.client());
    volumes.delete("disk", &DeleteParams::default()).await.unwrap();
    let other = CLAIM.replace("name: data", "name: other");
    plane.apply(&other).await;
    let key = ObjectKey::namespaced("default", "other");
    plane.until(&key, |claim: &PersistentVolumeClaim| claim.metadata.finalizers.is_some()).await;
    assert!(claims.get_opt("data").await.unwrap().is_some(), "a Pod uses it");
    let pods = Api::<Pod>::namespaced(plane.client(), "default");
    pods.delete("user", &DeleteParams::default().grace_period(0)).await.unwrap();
    plane.until_gone::<PersistentVolumeClaim>(&claim_key()).await;
    plane.until_gone::<PersistentVolume>(&ObjectKey::cluster("disk")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_of_attributes_outlives_its_deletion_until_nothing_names_it() {
    let plane = ControlPlane::start().await;
    let class = "{kind: VolumeAttributesClass, apiVersion: storage.k8s.io/v1, metadata: {name: NAME}, driverName: disks.example, parameters: {iops: '1'}}";
    let protected = class.replace("NAME", "NAME, finalizers: [kubernetes.io/vac-protection]");
    let classes = Api::<VolumeAttributesClass>::all(plane.client());
    let [gold, silver, unused] = ["gold", "silver", "unused"].map(ObjectKey::cluster);
    for key in [&gold, &silver, &unused] {
        plane.apply(&protected.replace("NAME", key.name())).await;
    }
    for key in [&gold, &silver] {
        classes.delete(key.name(), &DeleteParams::default()).await.unwrap();
    }
    plane.apply(&CLAIM.replace("spec: {", "spec: {volumeAttributesClassName: gold, ")).await;
    let csi = "csi: {driver: disks.example, volumeHandle: h}, volumeAttributesClassName: silver";
    plane.apply(&VOLUME.replace("hostPath: {path: /data}", csi)).await;
    let plane = plane.with_loops(Loops::only(["volumeattributesclass-protection"])).await;
    plane.apply(&class.replace("NAME", "new")).await;
    plane.until(&ObjectKey::cluster("new"), is_protected).await;
    // Deleted last: when it is gone, the others have been reconciled.
    classes.delete("unused", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<VolumeAttributesClass>(&unused).await;
    assert!(is_protected(&classes.get("gold").await.unwrap()) && is_protected(&classes.get("silver").await.unwrap()));
    let claims = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default");
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<VolumeAttributesClass>(&gold).await;
    assert!(is_protected(&classes.get("silver").await.unwrap()));
    let other = json!({"spec": {"volumeAttributesClassName": "other"}});
    let volumes = Api::<PersistentVolume>::all(plane.client());
    volumes.patch("disk", &PatchParams::default(), &Patch::Merge(other)).await.unwrap();
    plane.until_gone::<VolumeAttributesClass>(&silver).await;
    plane.stop().await;
}

fn is_protected(class: &VolumeAttributesClass) -> bool {
    class.metadata.finalizers.as_deref() == Some(&["kubernetes.io/vac-protection".to_owned()])
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_claims_each_gets_a_volume_of_its_own() {
    let plane = ControlPlane::start_with(Loops::only(LOOPS)).await;
    for number in 0..20 {
        plane.apply(&CLAIM.replace("name: data", &format!("name: data-{number}"))).await;
        plane.apply(&VOLUME.replace("name: disk", &format!("name: disk-{number}"))).await;
    }
    let mut taken = std::collections::BTreeSet::new();
    for number in 0..20 {
        let key = ObjectKey::namespaced("default", &format!("data-{number}"));
        let claim = plane.until(&key, |claim| phase(claim) == Some("Bound")).await;
        assert!(taken.insert(claim.spec.unwrap().volume_name.unwrap()), "a volume is bound to two claims");
    }
    let volumes = Api::<PersistentVolume>::all(plane.client()).list(&ListParams::default()).await.unwrap();
    let bound: std::collections::BTreeSet<String> =
        volumes.items.into_iter().map(|volume| volume.spec.unwrap().claim_ref.unwrap().uid.unwrap()).collect();
    assert_eq!(bound.len(), 20, "a volume is held for a claim that has another");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_says_for_whom_it_waits_and_asks_the_provisioner_once_a_node_is_chosen() {
    let plane = ControlPlane::start_with(Loops::only(LOOPS)).await;
    plane.apply(ACCOUNT).await;
    plane.apply("{kind: StorageClass, apiVersion: storage.k8s.io/v1, metadata: {name: late}, provisioner: disks.example, volumeBindingMode: WaitForFirstConsumer}").await;
    plane.apply(&CLAIM.replace("spec: {", "spec: {storageClassName: late, ")).await;
    assert_eq!(event(&plane, "WaitForFirstConsumer").await, "waiting for first consumer to be created before binding");
    plane
        .apply(
            "
kind: Pod
apiVersion: v1
metadata: {name: user, namespace: default}
spec:
  containers: [{name: c, image: i}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
",
        )
        .await;
    assert_eq!(event(&plane, "WaitForPodScheduled").await, "waiting for pod user to be scheduled");
    let claims = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default");
    let chosen = json!({"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n"}}});
    claims.patch("data", &PatchParams::default(), &Patch::Merge(chosen)).await.unwrap();
    plane
        .until(&claim_key(), |claim: &PersistentVolumeClaim| {
            let annotations = claim.metadata.annotations.iter().flatten();
            annotations
                .into_iter()
                .any(|(name, value)| name == "volume.kubernetes.io/storage-provisioner" && value == "disks.example")
        })
        .await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_names_no_class_gets_the_default_one_when_there_is_one() {
    let plane = ControlPlane::start_with(Loops::only(LOOPS)).await;
    plane.apply(CLAIM).await;
    plane.apply("{kind: StorageClass, apiVersion: storage.k8s.io/v1, metadata: {name: std, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: disks.example}").await;
    plane
        .until(&claim_key(), |claim: &PersistentVolumeClaim| {
            claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) == Some("std")
        })
        .await;
    event(&plane, "ExternalProvisioning").await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_gets_the_claims_that_it_describes_and_they_are_its_own() {
    let plane = ControlPlane::start_with(Loops::only(LOOPS)).await;
    plane.apply(ACCOUNT).await;
    let pod = "
kind: Pod
apiVersion: v1
metadata: {name: web, namespace: default}
spec:
  containers: [{name: c, image: i}]
  volumes:
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        metadata: {labels: {kind: scratch}}
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
";
    plane.apply(pod).await;
    let key = ObjectKey::namespaced("default", "web-scratch");
    let claim = plane.until(&key, |_: &PersistentVolumeClaim| true).await;
    assert_eq!(claim.metadata.owner_references.unwrap()[0].kind, "Pod");
    assert_eq!(claim.metadata.labels.unwrap()["kind"], "scratch");
    plane.apply(&CLAIM.replace("name: data", "name: other-scratch")).await;
    plane.apply(&pod.replace("name: web", "name: other")).await;
    let events = Api::<Event>::namespaced(plane.client(), "default");
    loop {
        let list = events.list(&ListParams::default()).await.unwrap();
        let said = list.items.iter().any(|event| {
            event.message.as_deref().is_some_and(|note| note.contains("was not created for pod default/other"))
        });
        if said {
            break;
        }
        tokio::task::yield_now().await;
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_are_deleted_together_have_the_pods_listed_once() {
    const N_CLAIMS: usize = 10;
    let plane = ControlPlane::start().await;
    let claims = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default");
    for n in 0..N_CLAIMS {
        let metadata = format!("name: data-{n}, finalizers: [kubernetes.io/pvc-protection]");
        plane.apply(&CLAIM.replace("name: data", &metadata)).await;
        claims.delete(&format!("data-{n}"), &DeleteParams::default()).await.unwrap();
    }
    assert_eq!(claims.list(&ListParams::default()).await.unwrap().items.len(), N_CLAIMS, "the finalizer holds them");
    let n_lists = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&n_lists);
    plane.fail_next_where(1, Fault::Unsent, move |_, path| {
        if path == "/api/v1/namespaces/default/pods" {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        false
    });
    let plane = plane.with_loops(Loops::only(["pvc-protection"])).await;
    for n in 0..N_CLAIMS {
        plane.until_gone::<PersistentVolumeClaim>(&ObjectKey::namespaced("default", &format!("data-{n}"))).await;
    }
    assert_eq!(n_lists.load(Ordering::Relaxed), 1);
    plane.stop().await;
}

fn is_default(class: &StorageClass) -> bool {
    class
        .metadata
        .annotations
        .iter()
        .flatten()
        .any(|(key, value)| key.ends_with("/is-default-class") && value == "true")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_class_of_simulated_nodes_is_the_default_unless_another_is() {
    let key = ObjectKey::cluster("simulated");
    let plane = ControlPlane::start_with(Loops::none().nodes(1)).await;
    let class: StorageClass = plane.until(&key, |_: &StorageClass| true).await;
    assert!(is_default(&class));
    plane.stop().await;
    let plane = ControlPlane::start().await;
    plane.apply("{kind: StorageClass, apiVersion: storage.k8s.io/v1, metadata: {name: mine, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: example.com/mine}").await;
    let plane = plane.with_loops(Loops::none().nodes(1)).await;
    let class: StorageClass = plane.until(&key, |_: &StorageClass| true).await;
    assert!(!is_default(&class));
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_that_is_refused_is_made_later_and_everything_else_goes_on() {
    let plane = ControlPlane::start().await;
    let is_creation = |method: &Method, path: &str| method == Method::POST && path.ends_with("/storageclasses");
    plane.fail_next_where(1, Fault::Refused(403), is_creation);
    let plane = plane.with_loops(Loops::none().nodes(1)).await;
    plane.until(&ObjectKey::cluster("simulated"), |_: &StorageClass| true).await;
    assert_eq!(plane.n_faults_left(), 0);
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_provisioner_of_simulated_nodes_has_the_rights_for_volumes_and_no_others() {
    let plane = ControlPlane::start_with(Loops::only(LOOPS).nodes(1)).await;
    plane.apply(ACCOUNT).await;
    plane.until(&ObjectKey::cluster("simulated"), |_: &StorageClass| true).await;
    plane.apply(CLAIM).await;
    plane.apply("{kind: Pod, apiVersion: v1, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: i}], volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]}}").await;
    let claim = plane.until(&claim_key(), |claim| phase(claim) == Some("Bound")).await;
    let volume = ObjectKey::cluster(&claim.spec.unwrap().volume_name.unwrap());
    assert_eq!(
        event(&plane, "ProvisioningSucceeded").await,
        format!("Successfully provisioned volume {}", volume.name())
    );
    Api::<Pod>::namespaced(plane.client(), "default").delete("p", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<Pod>(&ObjectKey::namespaced("default", "p")).await;
    let claims = Api::<PersistentVolumeClaim>::namespaced(plane.client(), "default");
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<PersistentVolume>(&volume).await;
    let user = User::authenticated("system:steersman:simulated-provisioner", []);
    let secrets = Api::<Secret>::all(plane.client_as(user)).list(&ListParams::default()).await;
    assert!(secrets.unwrap_err().to_string().contains("cannot list resource \"secrets\""));
    plane.stop().await;
}
