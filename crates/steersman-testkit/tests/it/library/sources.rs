//! Controllers of types that are known at run time only, and of metadata alone.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use steersman::controller::Watch;
use steersman::owners::OwnedBy;
use steersman::{Action, Controller, Manager, ObjectKey, ReconcileError, Scope};
use steersman_testkit::ControlPlane;
use tokio::sync::mpsc;

#[derive(Debug, thiserror::Error)]
#[error("nobody listens")]
struct Deaf;

impl ReconcileError for Deaf {}

/// A reconciler that sends the keys that ran.
async fn tell(key: ObjectKey, heard: &mpsc::Sender<String>) -> Result<Action, Deaf> {
    heard.send(key.to_string()).await.map_err(|_| Deaf)?;
    Ok(Action::AwaitChange)
}

const OWNED: &str = "
{kind: ConfigMap, apiVersion: v1, metadata: {name: child, namespace: default, ownerReferences: [
  {kind: KIND, apiVersion: v1, name: NAME, uid: UID, controller: true}]}}
";

/// Checks that `key` runs when an object appears whose owner is `kind`, `name`, `uid`. `controller` sends the keys that
/// ran.
async fn check_owner<K: steersman::cache::CachedResource>(
    plane: &ControlPlane,
    controller: impl FnOnce(mpsc::Sender<String>) -> Controller<K>,
    (kind, name, uid): (&str, &str, &str),
    key: &str,
) {
    let (sender, mut heard) = mpsc::channel(100);
    let story = async {
        while heard.recv().await.unwrap() != key {}
        while let Ok(Some(_)) = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await {}
        plane.apply(&OWNED.replace("KIND", kind).replace("NAME", name).replace("UID", uid)).await;
        assert_eq!(heard.recv().await.unwrap(), key);
    };
    Manager::new(plane.client()).controller(controller(sender)).run(story).await.unwrap();
    kube::Api::<ConfigMap>::default_namespaced(plane.client())
        .delete("child", &kube::api::DeleteParams::default())
        .await
        .unwrap();
}

async fn uid_of(plane: &ControlPlane, key: &str) -> String {
    let key: ObjectKey = key.parse().unwrap();
    match key.namespace() {
        None => plane.until(&key, |_: &Namespace| true).await.metadata.uid.unwrap(),
        Some(_) => plane.until(&key, |_: &Secret| true).await.metadata.uid.unwrap(),
    }
}

#[tokio::test(start_paused = true)]
async fn controllers_work_for_metadata_and_for_dynamic_types_as_owners_and_as_owned() {
    let plane = ControlPlane::start().await;
    plane.apply("{kind: Secret, apiVersion: v1, metadata: {name: owner, namespace: default}}").await;
    let secret_uid = uid_of(&plane, "default/owner").await;
    let namespace_uid = uid_of(&plane, "default").await;
    let secret = ("Secret", "owner", secret_uid.as_str());
    let namespace = ("Namespace", "default", namespace_uid.as_str());

    let of_metadata =
        |heard| Controller::<PartialObjectMeta<Secret>>::new(tell, heard).owns::<PartialObjectMeta<ConfigMap>>();
    check_owner(&plane, of_metadata, secret, "default/owner").await;
    let dynamic = |resource: ApiResource| {
        move |heard| {
            let owned = Watch::<DynamicObject>::new_with(ApiResource::erase::<ConfigMap>(&()), Scope::All);
            Controller::<DynamicObject>::new_with(resource, tell, heard).owns_with(owned, OwnedBy::Controller)
        }
    };
    check_owner(&plane, dynamic(ApiResource::erase::<Secret>(&())), secret, "default/owner").await;
    check_owner(&plane, dynamic(ApiResource::erase::<Namespace>(&())), namespace, "default").await;
    let dynamic_metadata = |heard| {
        let resource = ApiResource::erase::<Namespace>(&());
        Controller::<PartialObjectMeta<DynamicObject>>::new_with(resource, tell, heard).owns::<ConfigMap>()
    };
    check_owner(&plane, dynamic_metadata, namespace, "default").await;
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cache_of_metadata_holds_no_data() {
    let plane = ControlPlane::start().await;
    plane.apply("{kind: ConfigMap, apiVersion: v1, metadata: {name: x, namespace: default}, data: {a: b}}").await;
    let factory = steersman::InformerFactory::new(plane.client());
    let resource = ApiResource::erase::<ConfigMap>(&());
    let whole = factory.informer_with::<DynamicObject>(&resource, Scope::All);
    let metadata = factory.informer_with::<PartialObjectMeta<DynamicObject>>(&resource, Scope::All);
    let running = factory.start();
    factory.wait_synced(Duration::from_secs(60)).await.unwrap();
    let key = ObjectKey::namespaced("default", "x");
    let (whole, metadata) = (whole.lister().get(&key).unwrap(), metadata.lister().get(&key).unwrap());
    assert_eq!(whole.data["data"]["a"], "b");
    assert_eq!(metadata.metadata.uid, Arc::clone(&whole).metadata.uid);
    assert!(!serde_json::to_string(&*metadata).unwrap().contains("data\":{\"a"));
    running.shutdown().await;
    plane.stop().await;
}
