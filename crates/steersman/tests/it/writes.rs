//! Finalizers, status and patches, against a server that keeps versions.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use steersman::{ObjectKey, finalizers, patch, status};

use crate::server::{Fault, Server, Verb};

const CONFIG_MAPS: &str = "/api/v1/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/deployments";
const FINALIZER: &str = "example.com/cleanup";

fn read<K: serde::de::DeserializeOwned>(server: &Server, collection: &str, key: &str) -> K {
    serde_json::from_value(server.get(collection, key).unwrap()).unwrap()
}

fn discovery(server: &Server, resources: &[&str]) {
    let resources: Vec<Value> = resources
        .iter()
        .map(|name| json!({"name": name, "singularName": "", "kind": "Deployment", "namespaced": true, "verbs": ["get"]}))
        .collect();
    let list = json!({"kind": "APIResourceList", "groupVersion": "apps/v1", "resources": resources});
    server.document("/apis/apps/v1", list);
}

fn ready(n_replicas: i32) -> DeploymentStatus {
    DeploymentStatus { ready_replicas: Some(n_replicas), ..DeploymentStatus::default() }
}

fn status_of(server: &Server) -> Value {
    server.get(DEPLOYMENTS, "a/x").unwrap()["status"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_is_added_once_and_removed_even_when_others_write_in_between() {
    let server = Server::new();
    let client = server.client();
    server.put("a/x", "1");
    let stale: ConfigMap = read(&server, CONFIG_MAPS, "a/x");
    server.put("a/x", "2");
    let added = finalizers::add(&client, &stale, FINALIZER).await.unwrap();
    assert!(finalizers::contains(&added, FINALIZER));
    assert_eq!(added.data.as_ref().unwrap()["value"], "2");
    let n_requests = server.seen().len();
    finalizers::add(&client, &added, FINALIZER).await.unwrap();
    assert_eq!(server.seen().len(), n_requests, "nothing to do");
    let removed = finalizers::remove(&client, &stale, FINALIZER).await.unwrap().unwrap();
    assert_eq!(removed.metadata.finalizers, stale.metadata.finalizers, "the stale copy never had it");
    let removed = finalizers::remove(&client, &added, FINALIZER).await.unwrap().unwrap();
    assert!(!finalizers::contains(&removed, FINALIZER));
}

#[tokio::test(start_paused = true)]
async fn removing_the_last_finalizer_of_a_deleted_object_lets_it_go() {
    let server = Server::new();
    let client = server.client();
    let metadata = json!({
        "namespace": "a", "name": "x", "finalizers": [FINALIZER], "deletionTimestamp": "2026-01-01T00:00:00Z",
    });
    server.put_raw(CONFIG_MAPS, json!({"metadata": metadata}));
    let object: ConfigMap = read(&server, CONFIG_MAPS, "a/x");
    assert!(finalizers::is_deleting(&object));
    finalizers::remove(&client, &object, FINALIZER).await.unwrap();
    assert_eq!(server.get(CONFIG_MAPS, "a/x"), None);
    assert!(finalizers::remove(&client, &object, FINALIZER).await.unwrap().is_none(), "gone is as good");
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_never_lands_on_another_object_of_the_same_name() {
    let server = Server::new();
    server.put("a/x", "1");
    let old: ConfigMap = read(&server, CONFIG_MAPS, "a/x");
    server.delete("a/x");
    server.put("a/x", "1");
    let error = finalizers::add(&server.client(), &old, FINALIZER).await.unwrap_err();
    assert!(error.is_not_found(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_status_goes_to_the_subresource_where_there_is_one_and_to_the_object_where_not() {
    for (resources, route) in [
        (&["deployments", "deployments/status"][..], status::Route::Subresource),
        (&["deployments"], status::Route::Object),
    ] {
        let server = Server::new();
        discovery(&server, resources);
        server.put_raw(DEPLOYMENTS, json!({"metadata": {"namespace": "a", "name": "x"}}));
        let writer = status::Writer::<Deployment>::new(server.client());
        assert_eq!(writer.route().await.unwrap(), route);
        let written = writer.write(&read(&server, DEPLOYMENTS, "a/x"), &ready(3)).await.unwrap();
        assert!(matches!(written, status::Written::Changed(_)));
        assert_eq!(status_of(&server), json!({"readyReplicas": 3}));
        let n_requests = server.seen().len();
        let written = writer.write(&read(&server, DEPLOYMENTS, "a/x"), &ready(3)).await.unwrap();
        assert!(matches!(written, status::Written::Unchanged));
        assert_eq!(server.seen().len(), n_requests, "nothing to do");
        writer.write(&read(&server, DEPLOYMENTS, "a/x"), &DeploymentStatus::default()).await.unwrap();
        assert_eq!(status_of(&server), json!({}), "what the new status lacks is removed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_compared_with_what_was_written_and_not_with_a_cache_that_lags() {
    let server = Server::new();
    discovery(&server, &["deployments", "deployments/status"]);
    server.put_raw(DEPLOYMENTS, json!({"metadata": {"namespace": "a", "name": "x"}, "status": {"readyReplicas": 1}}));
    let cached: Deployment = read(&server, DEPLOYMENTS, "a/x");
    let writer = status::Writer::<Deployment>::new(server.client());
    let two = DeploymentStatus { replicas: Some(2), ..ready(2) };
    writer.write(&cached, &two).await.unwrap();
    // The cache already has the wanted status, and the server has another one, from the last write.
    let written = writer.write(&cached, &ready(1)).await.unwrap();
    assert!(matches!(written, status::Written::Changed(_)));
    assert_eq!(status_of(&server), json!({"readyReplicas": 1}));
    let n_requests = server.seen().len();
    assert!(matches!(writer.write(&cached, &ready(1)).await.unwrap(), status::Written::Unchanged));
    assert_eq!(server.seen().len(), n_requests, "nothing to do, though the cache still lags");
    // Once the cache has the write, its state counts: somebody else may have written since.
    let mut edited = server.get(DEPLOYMENTS, "a/x").unwrap();
    edited["status"]["readyReplicas"] = json!(7);
    server.put_raw(DEPLOYMENTS, edited);
    writer.write(&read(&server, DEPLOYMENTS, "a/x"), &ready(1)).await.unwrap();
    assert_eq!(status_of(&server), json!({"readyReplicas": 1}));
}

#[tokio::test(start_paused = true)]
async fn a_status_whose_answer_was_lost_is_not_taken_for_unwritten() {
    let timeout = Fault::Status { code: 408, reason: "Timeout", retry_after: None };
    for (fault, gives_up) in [(Fault::Cut, false), (timeout, false), (Fault::Silence, true)] {
        let server = Server::new();
        discovery(&server, &["deployments", "deployments/status"]);
        server
            .put_raw(DEPLOYMENTS, json!({"metadata": {"namespace": "a", "name": "x"}, "status": {"readyReplicas": 1}}));
        let cached: Deployment = read(&server, DEPLOYMENTS, "a/x");
        let writer = status::Writer::<Deployment>::new(server.client());
        writer.route().await.unwrap();
        let two = DeploymentStatus { replicas: Some(2), ..ready(2) };
        server.fail(Verb::Write, fault);
        if gives_up {
            assert!(tokio::time::timeout(Duration::from_secs(5), writer.write(&cached, &two)).await.is_err());
        } else {
            writer.write(&cached, &two).await.unwrap_err();
        }
        // The write was done, although its answer was lost.
        let mut edited = server.get(DEPLOYMENTS, "a/x").unwrap();
        edited["status"] = json!({"readyReplicas": 2, "replicas": 2});
        server.put_raw(DEPLOYMENTS, edited);
        writer.write(&cached, &ready(1)).await.unwrap();
        assert_eq!(status_of(&server), json!({"readyReplicas": 1}));
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_was_refused_is_not_taken_for_written() {
    let server = Server::new();
    discovery(&server, &["deployments", "deployments/status"]);
    server.put_raw(DEPLOYMENTS, json!({"metadata": {"namespace": "a", "name": "x"}, "status": {"readyReplicas": 1}}));
    let cached: Deployment = read(&server, DEPLOYMENTS, "a/x");
    let writer = status::Writer::<Deployment>::new(server.client());
    server.fail(Verb::Write, Fault::Status { code: 403, reason: "Forbidden", retry_after: None });
    writer.write(&cached, &ready(2)).await.unwrap_err();
    assert!(matches!(writer.write(&cached, &ready(1)).await.unwrap(), status::Written::Unchanged));
    writer.write(&cached, &ready(2)).await.unwrap();
    assert_eq!(status_of(&server), json!({"readyReplicas": 2}));
    // Another object with the same name has a status of its own.
    server.delete_from(DEPLOYMENTS, "a/x");
    server.put_raw(DEPLOYMENTS, json!({"metadata": {"namespace": "a", "name": "x"}, "status": {"readyReplicas": 5}}));
    writer.write(&read(&server, DEPLOYMENTS, "a/x"), &ready(2)).await.unwrap();
    assert_eq!(status_of(&server), json!({"readyReplicas": 2}));
}

#[tokio::test(start_paused = true)]
async fn a_status_finds_its_way_when_the_definition_changes_under_it() {
    let server = Server::new();
    server.put_raw(DEPLOYMENTS, json!({"metadata": {"namespace": "a", "name": "x"}}));
    let writer = status::Writer::<Deployment>::new(server.client());
    let (without, with) = (&["deployments"][..], &["deployments", "deployments/status"][..]);
    for (number, resources) in (1..).zip([without, with, without]) {
        discovery(&server, resources);
        writer.write(&read(&server, DEPLOYMENTS, "a/x"), &ready(number)).await.unwrap();
        assert_eq!(status_of(&server), json!({"readyReplicas": number}), "with {resources:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_apply_creates_and_names_what_it_could_not_do() {
    let server = Server::new();
    let client = server.client();
    let key = ObjectKey::namespaced("a", "x");
    let wanted = json!({"data": {"value": "1"}});
    let applied = patch::apply::<ConfigMap>(&client, &key, "tester", patch::Force::Yes, &wanted).await.unwrap();
    assert_eq!(ObjectKey::of(&applied), key);
    assert_eq!(server.n_seen("PATCH /api/v1/namespaces/a/configmaps/x?&force=true&fieldManager=tester"), 1);
    server.fail(Verb::Write, Fault::Status { code: 409, reason: "Conflict", retry_after: None });
    let error = patch::apply::<ConfigMap>(&client, &key, "tester", patch::Force::No, &wanted).await.unwrap_err();
    assert_eq!(error.to_string(), r#"cannot apply configmaps "a/x""#);
    assert!(error.is_conflict() && error.is_retryable() && !error.is_not_found());
}
