//! Writes for claims and volumes before a Pod is bound, and failures of these writes.

use super::{Effect, PodRef, TestCluster, key, merge, node, pod, reference};
use crate::scheduler::plugins::volumes::{ClaimVersion, Reserved, VolumeBinding, VolumePlan};
use crate::scheduler::requests::claim_ref_of;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

/// A node, and a storage class that waits for the first consumer.
fn test_cluster() -> TestCluster {
    let mut test_cluster = TestCluster::with_nodes([node("n", json!({}))]);
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"});
    let class = serde_json::from_value(class).unwrap();
    let now = test_cluster.now;
    let event = crate::scheduler::hints::Event::Class;
    test_cluster.state.storage_changed(&event, now, |volumes| volumes.set_class("fast", Some(&class)));
    test_cluster
}

fn claim(name: &str, over: Value) -> PersistentVolumeClaim {
    let mut base = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "10"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    merge(&mut base, over);
    serde_json::from_value(base).unwrap()
}

fn volume(name: &str, over: Value) -> PersistentVolume {
    let mut base = json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "20"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}},
        "status": {"phase": "Available"},
    });
    merge(&mut base, over);
    serde_json::from_value(base).unwrap()
}

/// A Pod that uses the claim `data`.
fn user(name: &str, uid: &str) -> Pod {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(name, json!({"metadata": {"uid": uid}, "spec": {"volumes": volumes}}))
}

// === impl TestCluster ===

impl TestCluster {
    fn claim(&mut self, claim: &PersistentVolumeClaim) {
        let name = claim.metadata.name.as_deref().unwrap();
        self.state.claim_changed(&key(name), Some(claim), self.now);
    }

    fn volume(&mut self, volume: &PersistentVolume) {
        let name = volume.metadata.name.as_deref().unwrap();
        self.state.volume_changed(name, Some(volume), self.now);
    }

    /// The only request due: the writes for a Pod's claims.
    #[track_caller]
    fn plan(&mut self) -> (PodRef, VolumePlan) {
        match self.effects().pop() {
            Some(Effect::BindVolumes { pod, plan, .. }) => (pod, plan),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_late_answer_about_an_earlier_pod_of_the_name_leaves_the_later_one_alone() {
    let mut test_cluster = test_cluster();
    test_cluster.claim(&claim("data", json!({})));
    test_cluster.pod(&user("web-0", "old"));
    let (old, _) = test_cluster.plan();
    test_cluster.pod(&user("web-0", "new"));
    let (new, _) = test_cluster.plan();
    test_cluster.state.volumes_written(&old, Err("the claim has changed".to_owned()), test_cluster.now);
    test_cluster.state.volumes_written(&new, Ok(()), test_cluster.now);
    let annotations = json!({"volume.kubernetes.io/selected-node": "n", "pv.kubernetes.io/bind-completed": "yes"});
    let bound =
        json!({"metadata": {"resourceVersion": "11", "annotations": annotations}, "spec": {"volumeName": "disk"}});
    test_cluster.claim(&claim("data", bound));
    assert_eq!(test_cluster.bindings(), [("web-0".to_owned(), "n".to_owned())]);
}

#[test]
fn what_is_written_is_for_the_versions_that_were_decided_from() {
    let mut test_cluster = test_cluster();
    test_cluster.claim(&claim("data", json!({})));
    test_cluster.volume(&volume("disk", json!({})));
    test_cluster.pod(&user("p", "uid-p"));
    let (_, plan) = test_cluster.plan();
    let claim = ClaimVersion { key: key("data"), uid: "uid-data".to_owned(), version: "10".to_owned() };
    let binding =
        VolumeBinding { volume: "disk".to_owned(), volume_version: "20".to_owned(), claim, reserved: Reserved::No };
    assert_eq!(plan, VolumePlan { bind: vec![binding], provision: Vec::new() });
}

#[test]
fn a_refused_write_is_reported_and_decided_again_from_what_is_there_then() {
    let mut test_cluster = test_cluster();
    test_cluster.claim(&claim("data", json!({})));
    test_cluster.volume(&volume("disk", json!({})));
    test_cluster.pod(&user("p", "uid-p"));
    let (first, _) = test_cluster.plan();
    // Another claim has got the volume.
    let taken = json!({"metadata": {"resourceVersion": "21"}, "spec": {"claimRef": {"namespace": "default", "name": "other", "uid": "o"}}});
    test_cluster.volume(&volume("disk", taken));
    test_cluster.state.volumes_written(&first, Err("the object has been modified".to_owned()), test_cluster.now);
    let effects = test_cluster.effects();
    let [Effect::Report(report)] = effects.as_slice() else { panic!("{effects:?}") };
    assert_eq!(report.message, "running PreBind plugin \"VolumeBinding\": the object has been modified");
    test_cluster.done(&reference("p"));
    test_cluster.pass(std::time::Duration::from_secs(1));
    let (_, plan) = test_cluster.plan();
    assert!(plan.bind.is_empty() && plan.provision.len() == 1, "{plan:?}");
}

#[test]
fn pods_that_share_a_claim_have_it_written_once_and_try_again_if_that_fails() {
    let mut test_cluster = test_cluster();
    test_cluster.claim(&claim("data", json!({})));
    test_cluster.pod(&user("a", "uid-a"));
    let (a, plan_of_a) = test_cluster.plan();
    test_cluster.pod(&user("b", "uid-b"));
    let (b, plan_of_b) = test_cluster.plan();
    assert!(!plan_of_a.provision[0].is_selected && plan_of_b.provision[0].is_selected);
    test_cluster.state.volumes_written(&b, Ok(()), test_cluster.now);
    assert!(test_cluster.effects().is_empty(), "it waits for the other's request");
    test_cluster.state.volumes_written(&a, Err("the object has been modified".to_owned()), test_cluster.now);
    let reports = test_cluster.effects().into_iter().filter(|effect| matches!(effect, Effect::Report(_))).count();
    assert_eq!(reports, 2);
    test_cluster.done(&a);
    test_cluster.done(&b);
    test_cluster.pass(std::time::Duration::from_secs(1));
    let n_plans =
        test_cluster.effects().into_iter().filter(|effect| matches!(effect, Effect::BindVolumes { .. })).count();
    assert_eq!(n_plans, 2);
}

#[test]
fn a_volume_that_was_reserved_by_name_is_bound_without_saying_that_a_controller_chose_it() {
    let mut test_cluster = test_cluster();
    test_cluster.claim(&claim("data", json!({})));
    test_cluster.volume(&volume("disk", json!({"spec": {"claimRef": {"namespace": "default", "name": "data"}}})));
    test_cluster.pod(&user("p", "uid-p"));
    let (_, plan) = test_cluster.plan();
    assert_eq!(plan.bind[0].reserved, Reserved::ByName);
    assert_eq!(claim_ref_of(&plan.bind[0])["metadata"], json!({"resourceVersion": "20"}));
}
