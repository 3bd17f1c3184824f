//! Namespaces that end, on a whole control plane.

mod scheduler;
mod service_cidrs;

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
const KIND: &str = "
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
    plane.apply(KIND).await;
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
