//! Objects that are deleted with their owner, and objects that stay, on a whole control plane.

use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::Resource;
use kube::{Api, ResourceExt};
use serde_json::json;
use std::time::Duration;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};
use tokio::time::Instant;

const HOLD: &str = "example.com/hold";

async fn start() -> ControlPlane {
    ControlPlane::start_with(Loops::only(["garbagecollector"])).await
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::namespaced("default", name)
}

fn configs(plane: &ControlPlane) -> Api<ConfigMap> {
    Api::namespaced(plane.client(), "default")
}

fn config(name: &str, owners: &[OwnerReference]) -> ConfigMap {
    let mut config = ConfigMap::default();
    config.metadata.name = Some(name.to_owned());
    config.metadata.owner_references = Some(owners.to_vec());
    config
}

fn blocking<K: Resource<DynamicType = ()>>(owner: &K) -> OwnerReference {
    OwnerReference { block_owner_deletion: Some(true), ..owner.owner_ref(&()).unwrap() }
}

async fn create(plane: &ControlPlane, name: &str, owners: &[OwnerReference]) -> ConfigMap {
    configs(plane).create(&PostParams::default(), &config(name, owners)).await.unwrap()
}

async fn delete(plane: &ControlPlane, name: &str, policy: PropagationPolicy) {
    let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    configs(plane).delete(name, &params).await.unwrap();
}

async fn set_finalizers(plane: &ControlPlane, name: &str, finalizers: &[&str]) {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    configs(plane).patch(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn gone(plane: &ControlPlane, name: &str) {
    plane.until_gone::<ConfigMap>(&key(name)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chains_of_dependents_go_after_their_owner() {
    let plane = start().await;
    let owner = create(&plane, "owner", &[]).await;
    let child = create(&plane, "child", &[owner.owner_ref(&()).unwrap()]).await;
    create(&plane, "grandchild", &[child.owner_ref(&()).unwrap()]).await;
    delete(&plane, "owner", PropagationPolicy::Background).await;
    gone(&plane, "grandchild").await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_the_foreground_an_owner_waits_for_those_that_block_it() {
    let plane = start().await;
    let owner = create(&plane, "owner", &[]).await;
    create(&plane, "held", &[blocking(&owner)]).await;
    create(&plane, "loose", &[owner.owner_ref(&()).unwrap()]).await;
    set_finalizers(&plane, "held", &[HOLD]).await;
    delete(&plane, "owner", PropagationPolicy::Foreground).await;
    gone(&plane, "loose").await;
    plane.until(&key("held"), |held: &ConfigMap| held.metadata.deletion_timestamp.is_some()).await;
    let waiting = configs(&plane).get("owner").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    set_finalizers(&plane, "held", &[]).await;
    gone(&plane, "owner").await;
    gone(&plane, "held").await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_lose_the_reference_and_stay() {
    let plane = start().await;
    let owner = create(&plane, "owner", &[]).await;
    create(&plane, "orphan", &[blocking(&owner)]).await;
    plane.until(&key("orphan"), |_: &ConfigMap| true).await;
    delete(&plane, "owner", PropagationPolicy::Orphan).await;
    gone(&plane, "owner").await;
    let orphan = configs(&plane).get("orphan").await.unwrap();
    assert!(orphan.owner_references().is_empty());
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_owner_of_two_is_enough_to_stay() {
    let plane = start().await;
    let (left, right) = (create(&plane, "left", &[]).await, create(&plane, "right", &[]).await);
    create(&plane, "shared", &[left.owner_ref(&()).unwrap(), right.owner_ref(&()).unwrap()]).await;
    delete(&plane, "left", PropagationPolicy::Background).await;
    let shared = plane.until(&key("shared"), |shared: &ConfigMap| shared.owner_references().len() == 1).await;
    assert_eq!(shared.owner_references()[0].name, "right");
    delete(&plane, "right", PropagationPolicy::Background).await;
    gone(&plane, "shared").await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_circle_that_goes_in_the_foreground_does_not_lock() {
    let plane = start().await;
    let first = create(&plane, "first", &[]).await;
    let second = create(&plane, "second", &[blocking(&first)]).await;
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [blocking(&second)]}}));
    configs(&plane).patch("first", &PatchParams::default(), &patch).await.unwrap();
    delete(&plane, "first", PropagationPolicy::Foreground).await;
    gone(&plane, "first").await;
    gone(&plane, "second").await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_owner_in_another_namespace_is_none_and_an_event_says_so() {
    let plane = start().await;
    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: far}}").await;
    let far = Api::<ConfigMap>::namespaced(plane.client(), "far");
    let owner = far.create(&PostParams::default(), &config("owner", &[])).await.unwrap();
    create(&plane, "across", &[owner.owner_ref(&()).unwrap()]).await;
    gone(&plane, "across").await;
    let role = ClusterRole {
        metadata: kube::core::ObjectMeta {
            name: Some("wide".to_owned()),
            owner_references: Some(vec![owner.owner_ref(&()).unwrap()]),
            ..Default::default()
        },
        ..ClusterRole::default()
    };
    Api::<ClusterRole>::all(plane.client()).create(&PostParams::default(), &role).await.unwrap();
    let uid = owner.uid().unwrap();
    for (name, namespace) in [("across", "default"), ("wide", "")] {
        let note = format!(
            "ownerRef [v1/ConfigMap, namespace: {namespace}, name: owner, uid: {uid}] does not exist in namespace \"{namespace}\""
        );
        let events = Api::<Event>::namespaced(plane.client(), "default");
        let fields = format!("involvedObject.name={name}");
        let event = loop {
            if let Some(event) = events.list(&ListParams::default().fields(&fields)).await.unwrap().items.pop() {
                break event;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(event.message.as_deref(), Some(&*note));
        assert_eq!(event.reason.as_deref(), Some("OwnerRefInvalidNamespace"));
        assert_eq!(event.source.unwrap().component.as_deref(), Some("garbage-collector-controller"));
    }
    far.delete("owner", &DeleteParams::default()).await.unwrap();
    create(&plane, "marker", &[owner.owner_ref(&()).unwrap()]).await;
    gone(&plane, "marker").await;
    Api::<ClusterRole>::all(plane.client()).get("wide").await.expect("an object of the cluster stays");
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_without_an_owner_before_the_start_goes() {
    let plane = ControlPlane::start().await;
    let owner = create(&plane, "owner", &[]).await;
    create(&plane, "child", &[owner.owner_ref(&()).unwrap()]).await;
    create(&plane, "kept", &[]).await;
    delete(&plane, "owner", PropagationPolicy::Background).await;
    let plane = plane.with_loops(Loops::only(["garbagecollector"])).await;
    gone(&plane, "child").await;
    configs(&plane).get("kept").await.unwrap();
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn custom_resources_own_and_are_owned_from_the_start_of_their_definition() {
    let plane = start().await;
    plane.apply(crate::namespaces::deletion::CARTS).await;
    let carts =
        plane.apply("{kind: Cart, apiVersion: shop.example/v1, metadata: {name: first, namespace: default}}").await;
    let owner = OwnerReference {
        api_version: "shop.example/v1".to_owned(),
        kind: "Cart".to_owned(),
        name: "first".to_owned(),
        uid: carts[0].uid().unwrap(),
        ..OwnerReference::default()
    };
    create(&plane, "list", &[owner]).await;
    let resource = kube::core::ApiResource {
        group: "shop.example".to_owned(),
        version: "v1".to_owned(),
        api_version: "shop.example/v1".to_owned(),
        kind: "Cart".to_owned(),
        plural: "carts".to_owned(),
    };
    let api = Api::<kube::core::DynamicObject>::namespaced_with(plane.client(), "default", &resource);
    api.delete("first", &DeleteParams::default()).await.unwrap();
    gone(&plane, "list").await;

    // A dependent of a kind that does not support strategic merge patches.
    let (left, right) = (create(&plane, "left", &[]).await, create(&plane, "right", &[]).await);
    let mut cart = kube::core::DynamicObject::new("second", &resource);
    cart.metadata.owner_references = Some(vec![left.owner_ref(&()).unwrap(), blocking(&right)]);
    api.create(&PostParams::default(), &cart).await.unwrap();
    delete(&plane, "left", PropagationPolicy::Background).await;
    loop {
        let owners = api.get("second").await.unwrap().metadata.owner_references.unwrap_or_default();
        if owners == [blocking(&right)] {
            break;
        }
        tokio::task::yield_now().await;
    }
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_dependents_go_soon() {
    let plane = start().await;
    let owner = create(&plane, "owner", &[]).await;
    let secrets = Api::<Secret>::namespaced(plane.client(), "default");
    let n_dependents = 500;
    for n in 0..n_dependents {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("child-{n}"));
        secret.metadata.owner_references = Some(vec![blocking(&owner)]);
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    let begun = Instant::now();
    delete(&plane, "owner", PropagationPolicy::Foreground).await;
    gone(&plane, "owner").await;
    assert!(secrets.list_metadata(&ListParams::default()).await.unwrap().items.is_empty());
    println!("{n_dependents} dependents in {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(10));
    plane.stop().await;
}
