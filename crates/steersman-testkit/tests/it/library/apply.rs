//! Manifests, and waits for their effects.

use crate::configs;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams};
use steersman::ObjectKey;
use steersman_testkit::ControlPlane;

const DEFINITION_AND_OBJECT: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: kites.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: kites, singular: kite, kind: Kite, listKind: KiteList}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {spec: {type: object, properties: {length: {type: integer, default: 20}}}}
---
apiVersion: example.com/v1
kind: Kite
metadata: {name: red}
spec: {}
";

#[tokio::test]
async fn a_definition_and_its_objects_may_share_a_manifest() {
    let plane = ControlPlane::start().await;
    let applied = plane.apply(DEFINITION_AND_OBJECT).await;
    let kite: &DynamicObject = &applied[1];
    assert_eq!((kite.metadata.namespace.as_deref(), &kite.data["spec"]["length"]), (Some("default"), &20.into()));
}

#[tokio::test]
async fn applying_again_changes_what_is_there() {
    let plane = ControlPlane::start().await;
    plane.apply("{kind: ConfigMap, apiVersion: v1, metadata: {name: c}, data: {a: '1', b: '1'}}").await;
    plane.apply("{kind: ConfigMap, apiVersion: v1, metadata: {name: c}, data: {a: '2'}}").await;
    let data = configs(&plane).get("c").await.unwrap().data.unwrap();
    assert_eq!(data.into_iter().collect::<Vec<_>>(), [("a".to_owned(), "2".to_owned())]);
}

#[tokio::test]
async fn an_object_without_a_name_is_created_each_time() {
    let plane = ControlPlane::start().await;
    for _ in 0..2 {
        plane.apply("---\n{kind: ConfigMap, apiVersion: v1, metadata: {generateName: c-}}\n---\n").await;
    }
    assert_eq!(configs(&plane).list(&ListParams::default()).await.unwrap().items.len(), 2);
}

#[track_caller]
fn check(outcome: Result<Vec<DynamicObject>, steersman_testkit::ApplyError>, want: &str) {
    let error = outcome.unwrap_err();
    let source = std::error::Error::source(&error).map(|source| format!(": {source}")).unwrap_or_default();
    let got = format!("{error}{source}");
    assert!(got.starts_with(want), "{got}");
}

#[tokio::test]
async fn what_is_wrong_with_a_manifest_is_named() {
    let plane = ControlPlane::start().await;
    check(plane.try_apply("kind: ConfigMap").await, "document 1 of the manifest has no apiVersion");
    check(
        plane.try_apply("{apiVersion: v1, kind: ConfigMap}").await,
        "document 1 of the manifest has no metadata.name",
    );
    check(plane.try_apply("a: [").await, "the manifest is not readable as YAML: ");
    let kite = "{apiVersion: example.com/v1, kind: Kite, metadata: {name: red}}";
    check(
        plane.try_apply(kite).await,
        "document 1 is a Kite of example.com/v1, which is not served: apply its CustomResourceDefinition first",
    );
    check(
        plane.try_apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: A_B}}").await,
        "ConfigMap \"A_B\" (document 1) could not be applied: ",
    );
}

#[tokio::test]
async fn waiting_sees_what_was_before_and_what_comes_after() {
    let plane = ControlPlane::start().await;
    let key = ObjectKey::namespaced("default", "c");
    plane.until_gone::<ConfigMap>(&key).await;
    let api: Api<ConfigMap> = configs(&plane);
    let (found, _) = tokio::join!(plane.until(&key, |_: &ConfigMap| true), crate::create(&api, "c"));
    assert_eq!(plane.until(&key, |_: &ConfigMap| true).await.metadata.uid, found.metadata.uid);
    let params = DeleteParams::default();
    let (_, deleted) = tokio::join!(plane.until_gone::<ConfigMap>(&key), api.delete("c", &params));
    deleted.unwrap();
}
