//! Namespaces that are deleted, on a whole control plane.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, NamespaceCondition};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

const SHOP: &str = "
{kind: Namespace, apiVersion: v1, metadata: {name: shop}}
---
{kind: ConfigMap, apiVersion: v1, metadata: {name: prices, namespace: shop}}
---
{kind: Secret, apiVersion: v1, metadata: {name: till, namespace: shop}}
---
{kind: ConfigMap, apiVersion: v1, metadata: {name: prices, namespace: default}}
";
/// The definition of the kind Cart.
pub(crate) const CARTS: &str = "
kind: CustomResourceDefinition
apiVersion: apiextensions.k8s.io/v1
metadata: {name: carts.shop.example}
spec:
  group: shop.example
  names: {kind: Cart, plural: carts}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
const CART: &str = "{kind: Cart, apiVersion: shop.example/v1, metadata: {name: first, namespace: shop}}";

async fn delete(plane: &ControlPlane) {
    Api::<Namespace>::all(plane.client()).delete("shop", &DeleteParams::default()).await.expect("the shop closes");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_in_it_goes_and_then_the_namespace() {
    let plane = ControlPlane::start_with(Loops::only(["namespace"])).await;
    plane.apply(SHOP).await;
    plane.apply(CARTS).await;
    plane.apply(CART).await;
    delete(&plane).await;
    plane.until_gone::<Namespace>(&ObjectKey::cluster("shop")).await;

    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: shop}}").await;
    let left = Api::<ConfigMap>::namespaced(plane.client(), "shop").list(&ListParams::default()).await.unwrap();
    assert!(left.items.is_empty(), "nothing outlives its namespace");
    Api::<ConfigMap>::namespaced(plane.client(), "default").get("prices").await.unwrap();
    plane.apply(CART).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_finalizer_holds_is_said_and_waited_for() {
    let plane = ControlPlane::start_with(Loops::only(["namespace"])).await;
    plane.apply(SHOP).await;
    let configs = Api::<ConfigMap>::namespaced(plane.client(), "shop");
    let finalizers = |list: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": list}}));
    configs.patch("prices", &PatchParams::default(), &finalizers(&["shop.example/audit"])).await.unwrap();
    delete(&plane).await;
    let says = |conditions: &[NamespaceCondition], type_: &str, message: &str| {
        let found = conditions.iter().find(|one| one.type_ == type_);
        found.is_some_and(|one| one.status == "True" && one.message.as_deref() == Some(message))
    };
    let held = plane
        .until(&ObjectKey::cluster("shop"), |namespace: &Namespace| {
            let status = namespace.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            says(
                conditions,
                "NamespaceContentRemaining",
                "Some resources are remaining: configmaps. has 1 resource instances",
            ) && says(
                conditions,
                "NamespaceFinalizersRemaining",
                "Some content in the namespace has finalizers remaining: shop.example/audit in 1 resource instances",
            )
        })
        .await;
    assert_eq!(held.status.unwrap().phase.as_deref(), Some("Terminating"));
    configs.patch("prices", &PatchParams::default(), &finalizers(&[])).await.unwrap();
    plane.until_gone::<Namespace>(&ObjectKey::cluster("shop")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_was_left_half_deleted_is_taken_up_again() {
    let plane = ControlPlane::start().await;
    plane.apply(SHOP).await;
    delete(&plane).await;
    let plane = plane.with_loops(Loops::only(["namespace"])).await;
    plane.until_gone::<Namespace>(&ObjectKey::cluster("shop")).await;
    plane.stop().await;
}

fn said(namespace: &Namespace) -> Vec<(&str, &str, &str)> {
    let status = namespace.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions
        .iter()
        .map(|one| (one.type_.as_str(), one.status.as_str(), one.reason.as_deref().unwrap_or_default()))
        .collect()
}

const ALL_IS_WELL: [(&str, &str, &str); 5] = [
    ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered"),
    ("NamespaceDeletionGroupVersionParsingFailure", "False", "ParsedGroupVersions"),
    ("NamespaceDeletionContentFailure", "False", "ContentDeleted"),
    ("NamespaceContentRemaining", "False", "ContentRemoved"),
    ("NamespaceFinalizersRemaining", "False", "ContentHasNoFinalizers"),
];

#[tokio::test(flavor = "multi_thread")]
async fn pods_go_first_and_everything_else_waits_for_them() {
    let plane = ControlPlane::start_with(Loops::only(["namespace"])).await;
    plane.apply(SHOP).await;
    plane.apply("{kind: Node, apiVersion: v1, metadata: {name: one}}").await;
    plane
        .apply(
            "{kind: Pod, apiVersion: v1, metadata: {name: bound, namespace: shop}, \
             spec: {nodeName: one, tolerations: [{operator: Exists}], containers: [{name: c, image: i}]}}",
        )
        .await;
    delete(&plane).await;
    plane.until(&ObjectKey::cluster("shop"), |namespace: &Namespace| said(namespace) == ALL_IS_WELL).await;
    Api::<ConfigMap>::namespaced(plane.client(), "shop").get("prices").await.expect("it waits for the pod");
    let pods = Api::<k8s_openapi::api::core::v1::Pod>::namespaced(plane.client(), "shop");
    assert!(pods.get("bound").await.unwrap().metadata.deletion_timestamp.is_some());
    pods.delete("bound", &DeleteParams::default().grace_period(0)).await.unwrap();
    plane.until_gone::<Namespace>(&ObjectKey::cluster("shop")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_namespace_that_is_held_says_that_nothing_is_left() {
    let plane = ControlPlane::start_with(Loops::only(["namespace"])).await;
    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: shop, finalizers: [shop.example/audit]}}").await;
    delete(&plane).await;
    let held = plane
        .until(&ObjectKey::cluster("shop"), |namespace: &Namespace| {
            namespace.spec.as_ref().is_none_or(|spec| spec.finalizers.as_ref().is_none_or(Vec::is_empty))
        })
        .await;
    assert_eq!(said(&held), ALL_IS_WELL);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn conditions_have_the_time_that_the_clock_of_the_control_plane_shows() {
    let plane = crate::support::moved::plane(Loops::only(["namespace"])).await;
    plane.apply("{kind: Namespace, apiVersion: v1, metadata: {name: shop, finalizers: [shop.example/audit]}}").await;
    delete(&plane).await;
    let held = plane.until(&ObjectKey::cluster("shop"), |namespace: &Namespace| !said(namespace).is_empty()).await;
    for condition in held.status.unwrap().conditions.unwrap() {
        let since = condition.last_transition_time.unwrap().0.to_string();
        assert!(since.starts_with("2026-03-01T00:0"), "{since}");
    }
    plane.stop().await;
}
