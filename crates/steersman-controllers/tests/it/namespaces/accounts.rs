//! Objects that every namespace gets: the account `default` and the certificate of the cluster's authority.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use steersman::ObjectKey;
use steersman_testkit::{ControlPlane, Loops};

const SHOP: &str = "{kind: Namespace, apiVersion: v1, metadata: {name: shop}}";

#[tokio::test(flavor = "multi_thread")]
async fn every_namespace_has_an_account_and_gets_another_when_it_is_deleted() {
    let plane = ControlPlane::start_with(Loops::only(["serviceaccount"])).await;
    plane.apply(SHOP).await;
    let key = |namespace| ObjectKey::namespaced(namespace, "default");
    for namespace in ["default", "kube-system"] {
        plane.until(&key(namespace), |_: &ServiceAccount| true).await;
    }
    let first: ServiceAccount = plane.until(&key("shop"), |_: &ServiceAccount| true).await;
    let accounts = Api::<ServiceAccount>::namespaced(plane.client(), "shop");
    accounts.delete("default", &DeleteParams::default()).await.unwrap();
    plane.until(&key("shop"), |account: &ServiceAccount| account.uid() != first.uid()).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_ends_stays_without_what_is_published_in_others() {
    let plane =
        ControlPlane::start_with(Loops::only(["namespace", "root-ca-certificate-publisher", "serviceaccount"])).await;
    plane.apply(SHOP).await;
    plane.until(&ObjectKey::namespaced("shop", "kube-root-ca.crt"), |_: &ConfigMap| true).await;
    plane.until(&ObjectKey::namespaced("shop", "default"), |_: &ServiceAccount| true).await;
    Api::<Namespace>::all(plane.client()).delete("shop", &DeleteParams::default()).await.unwrap();
    plane.until_gone::<Namespace>(&ObjectKey::cluster("shop")).await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_writes_over_the_certificate_is_put_right() {
    let plane = ControlPlane::start_with(Loops::only(["root-ca-certificate-publisher"])).await;
    let key = ObjectKey::namespaced("default", "kube-root-ca.crt");
    let is_certificate = |config: &ConfigMap| {
        let data = config.data.clone().unwrap_or_default();
        data.len() == 1 && data["ca.crt"].starts_with("-----BEGIN CERTIFICATE-----")
    };
    let published = plane.until(&key, is_certificate).await;
    assert!(published.annotations()["kubernetes.io/description"].starts_with("Contains a CA bundle"));
    let configs = Api::<ConfigMap>::namespaced(plane.client(), "default");
    let mine = Patch::Merge(json!({"data": {"ca.crt": "mine", "more": "x"}}));
    configs.patch("kube-root-ca.crt", &PatchParams::default(), &mine).await.unwrap();
    plane.until(&key, is_certificate).await;
    configs.delete("kube-root-ca.crt", &DeleteParams::default()).await.unwrap();
    plane.until(&key, |config: &ConfigMap| is_certificate(config) && config.uid() != published.uid()).await;
    plane.stop().await;
}
