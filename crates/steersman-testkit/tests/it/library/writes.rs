//! The library's functions for writing, against a real API server.

use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use serde_json::{Value, json};
use steersman::patch::{self, Lock, StrategicError};
use steersman::write::{OperationResult, create_or_patch, create_or_update, update};
use steersman::{ObjectKey, WriteError, owners};
use steersman_testkit::{ControlPlane, Fault};

use crate::{config, configs, create};

fn set(name: &'static str, value: &'static str) -> impl Fn(&mut ConfigMap) {
    move |config| drop(config.data.get_or_insert_default().insert(name.to_owned(), value.to_owned()))
}

fn in_default(name: &str) -> ConfigMap {
    let mut object = config(name);
    object.metadata.namespace = Some("default".to_owned());
    object
}

fn data(config: &ConfigMap) -> Value {
    serde_json::to_value(&config.data).unwrap()
}

#[tokio::test(start_paused = true)]
async fn an_object_is_created_then_changed_and_then_left_alone() {
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let created = create_or_update(&client, in_default("x"), set("a", "1")).await.unwrap();
    assert!(matches!(created, OperationResult::Created(_)));
    let updated = create_or_update(&client, in_default("x"), set("b", "2")).await.unwrap();
    assert!(matches!(updated, OperationResult::Updated(_)));
    assert_eq!(data(updated.object()), json!({"a": "1", "b": "2"}));
    // Every write would fail now, so the call succeeds only if it sends none.
    plane.fail_next_where(1, Fault::Refused(500), |method, _| method != "GET");
    let unchanged = create_or_update(&client, in_default("x"), set("b", "2")).await.unwrap();
    assert_eq!((unchanged.is_changed(), unchanged.object()), (false, updated.object()));
    assert_eq!(plane.n_faults_left(), 1);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_was_faster_is_not_overwritten() {
    let plane = ControlPlane::start().await;
    let client = plane.client();
    // Somebody creates the object after a read has found none.
    plane.fail_next_where(1, Fault::Refused(404), |method, _| method == "GET");
    let first = create(&configs(&plane), "x").await;
    let result = create_or_update(&client, in_default("x"), set("a", "1")).await.unwrap();
    assert!(matches!(&result, OperationResult::Updated(config) if config.metadata.uid == first.metadata.uid));
    // `first` is out of date now.
    let result = update(&client, &first, set("b", "2")).await.unwrap();
    assert_eq!(data(result.object()), json!({"a": "1", "b": "2"}));

    let n_seen = AtomicU32::new(0);
    plane.fail_next_where(6, Fault::Refused(409), |method, _| method == "PATCH");
    let error = create_or_update(&client, in_default("x"), |config| {
        n_seen.fetch_add(1, Ordering::Relaxed);
        set("c", "3")(config);
    })
    .await
    .unwrap_err();
    assert!(error.is_conflict());
    assert_eq!((n_seen.into_inner(), plane.n_faults_left()), (6, 0));

    configs(&plane).delete("x", &kube::api::DeleteParams::default()).await.unwrap();
    let second = create(&configs(&plane), "x").await;
    assert!(update(&client, &first, set("b", "2")).await.unwrap_err().is_not_found(), "it is another object");
    assert_eq!(configs(&plane).get("x").await.unwrap(), second);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_the_server_makes_of_a_change_decides_whether_it_was_one() {
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let deployment: Deployment = serde_json::from_value(deployment(&["web"])).unwrap();
    create_or_update(&client, deployment.clone(), |_| {}).await.unwrap();
    // The object lacks the fields that the server filled in, and has a status, which is not written here.
    let result = create_or_update(&client, deployment.clone(), |object| {
        object.spec.clone_from(&deployment.spec);
        object.status.get_or_insert_default().ready_replicas = Some(7);
    })
    .await
    .unwrap();
    assert!(!result.is_changed());
    let old = result.into_object();
    let mut new = old.clone();
    new.status.get_or_insert_default().observed_generation = Some(7);
    let written = patch::merge_status_from(&client, &old, &new, Lock::Yes).await.unwrap().unwrap();
    assert_eq!(written.status.unwrap().observed_generation, Some(7));
    let error = patch::merge_status_from(&client, &old, &new, Lock::Yes).await.unwrap_err();
    assert!(error.is_conflict());
    assert!(patch::merge_status_from(&client, &new, &new, Lock::Yes).await.unwrap().is_none());
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_change_that_fails_or_renames_writes_nothing() {
    #[derive(Debug, thiserror::Error)]
    enum Error {
        #[error("owner")]
        Owner(#[from] owners::OwnerError),
        #[error("write")]
        Write(#[from] WriteError),
    }
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let owner = in_default("unsaved");
    let own = |config: &mut ConfigMap| owners::set_controller(&owner, config).map(drop).map_err(Error::from);
    let error = steersman::write::try_create_or_update(&client, in_default("x"), own).await.unwrap_err();
    assert!(matches!(error, Error::Owner(_)), "{error:?}");
    let rename = |config: &mut ConfigMap| config.metadata.name = Some("y".to_owned());
    let error = create_or_update(&client, in_default("x"), rename).await.unwrap_err();
    assert_eq!(error.status_code(), Some(422));
    let error = create_or_update(&client, ConfigMap::default(), |_| {}).await.unwrap_err();
    assert_eq!(error.status_code(), Some(422));
    assert_eq!(configs(&plane).list(&kube::api::ListParams::default()).await.unwrap().items, []);
    plane.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_patch_without_a_lock_keeps_what_others_did_and_one_with_a_lock_refuses() {
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let old = create(&configs(&plane), "x").await;
    create_or_patch(&client, in_default("x"), set("theirs", "1")).await.unwrap();
    let mut new = old.clone();
    set("mine", "1")(&mut new);
    assert!(patch::merge_from(&client, &old, &new, Lock::Yes).await.unwrap_err().is_conflict());
    let merged = patch::merge_from(&client, &old, &new, Lock::No).await.unwrap().unwrap();
    assert_eq!(data(&merged), json!({"mine": "1", "theirs": "1"}));
    assert!(patch::merge_from(&client, &merged, &merged, Lock::Yes).await.unwrap().is_none());

    configs(&plane).delete("x", &kube::api::DeleteParams::default()).await.unwrap();
    create(&configs(&plane), "x").await;
    let error = patch::merge_from(&client, &old, &new, Lock::No).await.unwrap_err();
    assert!(error.is_conflict() && error.is_retryable(), "another object of that name is not touched: {error:?}");
    plane.stop().await;
}

fn deployment(containers: &[&str]) -> Value {
    let containers: Vec<Value> = containers.iter().map(|name| json!({"name": name, "image": "web:1"})).collect();
    json!({
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}},
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_strategic_patch_names_only_the_items_that_changed() {
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let first: Deployment = serde_json::from_value(deployment(&["web", "log"])).unwrap();
    let old = create_or_update(&client, first, |_| {}).await.unwrap().into_object();
    let set_image = |object: &mut Deployment, at: usize, image: &str| {
        let spec = object.spec.template.spec.as_mut().unwrap();
        spec.containers[at].image = Some(image.to_owned());
    };
    let mut new = old.clone();
    set_image(&mut new, 0, "web:2");
    let difference = patch::strategic_two_way(&old, &new).unwrap().unwrap();
    let containers = json!([{"name": "web", "image": "web:2"}]);
    assert_eq!(difference["spec"]["template"]["spec"]["containers"], containers);
    assert_eq!(patch::strategic_two_way(&old, &old).unwrap(), None);

    update(&client, &old, |object| set_image(object, 1, "log:2")).await.unwrap();
    let merged = patch::strategic_from(&client, &old, &new, Lock::No).await.unwrap().unwrap();
    let images: Vec<_> = merged.spec.template.spec.unwrap().containers;
    let images: Vec<_> = images.into_iter().map(|container| container.image.unwrap()).collect();
    assert_eq!(images, ["web:2", "log:2"]);
    assert!(patch::strategic_from(&client, &old, &new, Lock::Yes).await.unwrap_err().is_conflict());
    plane.stop().await;
}

/// A kind that is not built into Kubernetes.
#[derive(Clone, Debug, PartialEq, serde::Deserialize, serde::Serialize)]
struct Foreign(ConfigMap);

impl kube::Resource for Foreign {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> std::borrow::Cow<'_, str> {
        "Foreign".into()
    }

    fn group((): &()) -> std::borrow::Cow<'_, str> {
        "example.com".into()
    }

    fn version((): &()) -> std::borrow::Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> std::borrow::Cow<'_, str> {
        "foreigns".into()
    }

    fn meta(&self) -> &kube::core::ObjectMeta {
        &self.0.metadata
    }

    fn meta_mut(&mut self) -> &mut kube::core::ObjectMeta {
        &mut self.0.metadata
    }
}

#[test]
fn a_strategic_patch_is_for_kinds_of_kubernetes_only() {
    let error = patch::strategic_two_way(&Foreign(config("x")), &Foreign(config("y"))).unwrap_err();
    assert!(matches!(&error, StrategicError::NotBuiltIn { .. }));
    assert_eq!(
        error.to_string(),
        "example.com/v1 Foreign is no kind of Kubernetes' own: it takes JSON merge patches only"
    );
}

/// The fields of a Pod that can be updated after its creation, drawn from `seed`; its containers stay.
fn draw(seed: u64) -> Value {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    let mut containers = Vec::new();
    let order = next(6);
    for at in 0..3 {
        let name = ["a", "b", "c"][usize::try_from((at + order) % 3).unwrap()];
        if next(3) == 0 && at > 0 {
            continue;
        }
        let mut env = Vec::new();
        for name in ["X", "Y", "Z"] {
            if next(2) == 0 {
                env.push(json!({"name": name, "value": next(3).to_string()}));
            }
        }
        let ports: Vec<Value> = (0..next(3)).map(|n| json!({"containerPort": 80 + n, "protocol": "TCP"})).collect();
        let image = format!("{name}:{}", next(3));
        containers.push(
            json!({"name": name, "image": image, "env": env, "ports": ports, "args": vec!["v"; next(3) as usize]}),
        );
    }
    let finalizers: Vec<String> = (0..next(3)).map(|n| format!("example.com/{n}")).collect();
    let mut object = deployment(&[]);
    object["metadata"]["finalizers"] = json!(finalizers);
    object["metadata"]["annotations"] = json!({ "n": next(3).to_string() });
    object["spec"]["template"]["spec"]["containers"] = json!(containers);
    object["spec"]["strategy"] =
        if next(2) == 0 { json!({"type": "Recreate"}) } else { json!({"type": "RollingUpdate"}) };
    object
}

#[tokio::test(start_paused = true)]
async fn either_patch_makes_the_old_object_the_new_one_on_the_server() {
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let api: Api<Deployment> = Api::default_namespaced(plane.client());
    let first: Deployment = serde_json::from_value(draw(0)).unwrap();
    let mut current = create_or_update(&client, first, |_| {}).await.unwrap().into_object();
    for seed in 1..60 {
        // The wanted state in the server's own form, with its defaults.
        let wish: Deployment = serde_json::from_value(draw(seed)).unwrap();
        let mut wanted = wish.clone();
        wanted.metadata.resource_version.clone_from(&current.metadata.resource_version);
        let dry = kube::api::PostParams { dry_run: true, ..Default::default() };
        let wanted = api.replace("x", &dry, &wanted).await.unwrap();
        let send = if seed % 2 == 0 {
            patch::strategic_from(&client, &current, &wanted, Lock::Yes).await
        } else {
            patch::merge_from(&client, &current, &wanted, Lock::Yes).await
        };
        let got = send.unwrap().unwrap_or_else(|| current.clone());
        let form = |object: &Deployment| json!([object.spec, object.metadata.finalizers, object.metadata.annotations]);
        assert_eq!(form(&got), form(&wanted), "seed {seed}");
        current = got;
    }
    plane.stop().await;
}

#[test]
fn a_pod_differs_from_itself_in_nothing() {
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "x", "managedFields": [{}]}})).unwrap();
    let mut newer = pod.clone();
    newer.metadata.managed_fields = None;
    newer.metadata.resource_version = Some("7".to_owned());
    assert_eq!(patch::two_way(&pod, &newer).unwrap(), None);
    assert_eq!(ObjectKey::of(&pod).name(), "x");
}
