//! What has to be written about claims and volumes before a Pod is bound, and what is done when that fails.

use super::{Effect, PodRef, World, key, merge, node, pod};
use crate::scheduler::volumes::VolumePlan;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};

/// A node, and a class whose volumes are made once a Pod has a node.
fn world() -> World {
    let mut world = World::with_nodes([node("n", json!({}))]);
    let class = json!({"metadata": {"name": "fast"}, "provisioner": "example.com/disks", "volumeBindingMode": "WaitForFirstConsumer"});
    let class = serde_json::from_value(class).unwrap();
    let now = world.now;
    let event = crate::scheduler::hints::Event::Class;
    world.state.storage_changed(&event, now, |volumes| volumes.set_class("fast", Some(&class)));
    world
}

fn claim(name: &str, over: Value) -> PersistentVolumeClaim {
    let mut base = json!({
        "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}"), "resourceVersion": "10"},
        "spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    merge(&mut base, over);
    serde_json::from_value(base).unwrap()
}

/// A Pod that uses the claim `data`.
fn user(name: &str, uid: &str) -> Pod {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(name, json!({"metadata": {"uid": uid}, "spec": {"volumes": volumes}}))
}

// === impl World ===

impl World {
    fn claim(&mut self, claim: &PersistentVolumeClaim) {
        let name = claim.metadata.name.as_deref().unwrap();
        self.state.claim_changed(&key(name), Some(claim), self.now);
    }

    /// The only thing that is to be done: to write what a Pod's claims need.
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
    let mut world = world();
    world.claim(&claim("data", json!({})));
    world.pod(&user("web-0", "old"));
    let (old, _) = world.plan();
    world.pod(&user("web-0", "new"));
    let (new, _) = world.plan();
    world.state.volumes_written(&old, Err("the claim has changed".to_owned()), world.now);
    world.state.volumes_written(&new, Ok(()), world.now);
    let annotations = json!({"volume.kubernetes.io/selected-node": "n", "pv.kubernetes.io/bind-completed": "yes"});
    let bound = json!({"metadata": {"resourceVersion": "11", "annotations": annotations}, "spec": {"volumeName": "disk"}});
    world.claim(&claim("data", bound));
    assert_eq!(world.bindings(), [("web-0".to_owned(), "n".to_owned())]);
}
