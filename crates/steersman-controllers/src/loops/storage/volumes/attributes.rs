//! Keeps VolumeAttributesClasses while claims or volumes name them.
//!
//! Follows upstream's volumeattributesclass-protection-controller. As there, only the caches are read: a claim that is
//! created during the deletion of a class may name a class that is gone.

use crate::loops::storage::volumes::protection::{self, needs_work};
use crate::settings::Parts;
use crate::shared::refusal::Error;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::{Api, Client, Resource};
use steersman::cache::{Change, Index};
use steersman::{Action, Controller, Lister, Manager, ObjectKey, Scope};

const FINALIZER: &str = "kubernetes.io/vac-protection";

struct Classes {
    client: Client,
    classes: Lister<VolumeAttributesClass>,
    claims: Index<PersistentVolumeClaim, ObjectKey>,
    volumes: Index<PersistentVolume, ObjectKey>,
}

/// Adds the loop to a manager.
pub(crate) fn add(manager: Manager, Parts { client, .. }: Parts<'_>) -> Manager {
    let informers = manager.informers();
    let classes = informers.informer::<VolumeAttributesClass>(Scope::All);
    let (claims, volumes) =
        (informers.informer::<PersistentVolumeClaim>(Scope::All), informers.informer::<PersistentVolume>(Scope::All));
    let context = Classes {
        client,
        classes: classes.lister(),
        claims: claims.add_index(named_by_claim),
        volumes: volumes.add_index(named_by_volume),
    };
    let controller = Controller::of(&classes, protect, context)
        .name("volumeattributesclass-protection-controller")
        .when(needs_work(FINALIZER))
        .watches_changes(&claims, |change: &Change<'_, _>| no_longer_named(change, named_by_claim))
        .watches_changes(&volumes, |change: &Change<'_, _>| no_longer_named(change, named_by_volume));
    manager.controller(controller)
}

async fn protect(key: ObjectKey, cx: &Classes) -> Result<Action, Error> {
    let Some(class) = cx.classes.find(&key)? else { return Ok(Action::AwaitChange) };
    let api = Api::<VolumeAttributesClass>::all(cx.client.clone());
    let is_used = async { Ok(cx.claims.count(&key)? + cx.volumes.count(&key)? > 0) };
    protection::keep(&api, &*class, FINALIZER, is_used).await
}

/// The classes that a claim asks for, has, and is being changed to.
fn named_by_claim(claim: &PersistentVolumeClaim) -> Vec<ObjectKey> {
    let wanted = claim.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    let status = claim.status.as_ref();
    let current = status.and_then(|status| status.current_volume_attributes_class_name.as_deref());
    let modified = status.and_then(|status| status.modify_volume_status.as_ref());
    let target = modified.and_then(|modified| modified.target_volume_attributes_class_name.as_deref());
    let mut names: Vec<&str> =
        [wanted, current, target].into_iter().flatten().filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(ObjectKey::cluster).collect()
}

fn named_by_volume(volume: &PersistentVolume) -> Vec<ObjectKey> {
    let name = volume.spec.as_ref().and_then(|spec| spec.volume_attributes_class_name.as_deref());
    name.filter(|name| !name.is_empty()).map(ObjectKey::cluster).into_iter().collect()
}

/// The classes that an object named before a change and does not name any more.
fn no_longer_named<K: Resource>(change: &Change<'_, K>, named: fn(&K) -> Vec<ObjectKey>) -> Vec<ObjectKey> {
    let now = change.object().map(named).unwrap_or_default();
    match change {
        Change::Updated { old, .. } => {
            let before = old.object().map(|old| named(old)).unwrap_or_default();
            before.into_iter().filter(|name| !now.contains(name)).collect()
        }
        Change::Deleted(_) => now,
        Change::Added(..) | Change::Undecodable(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::sync::Arc;
    use steersman::cache::Previous;

    #[test]
    fn a_claim_names_the_class_it_wants_the_one_it_has_and_the_one_it_is_changed_to() {
        let names = |claim| {
            let claim = serde_json::from_value(claim).unwrap();
            named_by_claim(&claim).iter().map(|key| key.name().to_owned()).collect::<Vec<_>>()
        };
        let target = json!({"targetVolumeAttributesClassName": "c", "status": "Pending"});
        let status = json!({"currentVolumeAttributesClassName": "b", "modifyVolumeStatus": target});
        assert_eq!(names(json!({"spec": {"volumeAttributesClassName": "a"}, "status": status})), ["a", "b", "c"]);
        let same = json!({"currentVolumeAttributesClassName": "a"});
        assert_eq!(names(json!({"spec": {"volumeAttributesClassName": "a"}, "status": same})), ["a"]);
        assert_eq!(names(json!({"spec": {"volumeAttributesClassName": ""}})), <[&str; 0]>::default());
    }

    #[test]
    fn classes_are_looked_at_when_an_object_names_them_no_more() {
        let claim = |status: serde_json::Value| -> Arc<PersistentVolumeClaim> {
            let claim = json!({"spec": {"volumeAttributesClassName": "a"}, "status": status});
            Arc::new(serde_json::from_value(claim).unwrap())
        };
        let before = claim(json!({"currentVolumeAttributesClassName": "b"}));
        let left = |now: serde_json::Value| {
            let change = Change::Updated { old: &Previous::from(&before), new: &claim(now) };
            no_longer_named(&change, named_by_claim)
        };
        assert_eq!(left(json!({"currentVolumeAttributesClassName": "b"})), []);
        assert_eq!(left(json!({"currentVolumeAttributesClassName": "a"})), [ObjectKey::cluster("b")]);
        let moving = json!({"currentVolumeAttributesClassName": "c", "modifyVolumeStatus": {"targetVolumeAttributesClassName": "b", "status": "Pending"}});
        assert_eq!(left(moving), []);
    }
}
