//! A server that takes no writes: it shows what is stored as it is stored, and stores nothing of its own.

use crate::support::{Options, TestServer, options};
use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use steersman_machinery::{Draft, Revision};
use steersman_server::Writes;
use steersman_server::authz::Authorization;
use steersman_storage::kv::Entry;
use steersman_storage::{Memory, Store};

const WHY: &str = "this is a copy, opened to be read";

fn entry(key: &str, revision: u64, object: &Value) -> Entry {
    let value = Draft::read(object.to_string().into()).unwrap().encode();
    Entry { key: key.to_owned().into(), revision: Revision(revision), value }
}

fn definition() -> Value {
    json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": "widgets.example.com", "uid": "u1", "generation": 3},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://192.0.2.1:1/convert"}}},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            ],
        },
    })
}

fn pod() -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "gone", "uid": "u2", "deletionTimestamp": "2026-01-01T00:00:00Z", "labels": {"a": "b"}},
        "spec": {"aFieldOfALaterRelease": 1, "nodeName": "n", "containers": [{"name": "c"}]}, "status": {"phase": "Failed"},
    })
}

async fn shown() -> TestServer {
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "namespace": "gone"}, "spec": {"x": 1}});
    let service = json!({
        "kind": "APIService", "apiVersion": "apiregistration.k8s.io/v1", "metadata": {"name": "v1.other.io"},
        "spec": {"group": "other.io", "version": "v1", "service": {"namespace": "gone", "name": "s", "port": 1}, "insecureSkipTLSVerify": true, "groupPriorityMinimum": 1, "versionPriority": 1},
    });
    let event = json!({"kind": "Event", "apiVersion": "v1", "metadata": {"name": "e", "namespace": "gone"}, "lastTimestamp": "2020-01-01T00:00:00Z"});
    let entries = [
        entry("/pods/gone/web", 7, &pod()),
        entry("/events/gone/e", 8, &event),
        entry("apiextensions.k8s.io/customresourcedefinitions/widgets.example.com", 9, &definition()),
        entry("apiregistration.k8s.io/apiservices/v1.other.io", 10, &service),
        entry("example.com/widgets/gone/w", 11, &widget),
    ];
    let store = Store::open(Arc::new(Memory::filled(entries, Revision(20))), Default::default()).await.unwrap();
    let writes = Writes::Refused { why: WHY.into() };
    TestServer::of(store.clone(), Options { writes, ..options(&store, Authorization::default()) }).await
}

#[tokio::test(start_paused = true)]
async fn objects_are_shown_as_they_are_and_nothing_is_stored_meanwhile() {
    let test = shown().await;
    let http = test.http();
    // Longer than any task of a server waits before it does something.
    tokio::time::sleep(std::time::Duration::from_secs(7_200)).await;
    let mut want = pod();
    want["metadata"]["resourceVersion"] = "7".into();
    assert_eq!(http.get("/api/v1/namespaces/gone/pods/web").await.ok(), want);
    let list = http.get("/api/v1/pods?labelSelector=a%3Db&fieldSelector=status.phase%3DFailed").await.ok();
    assert_eq!((list["items"].as_array().unwrap().len(), &list["metadata"]["resourceVersion"]), (1, &json!("20")));
    assert_eq!(http.get("/api/v1/namespaces").await.ok()["items"], json!([]), "a dump without namespaces has none");
    assert_eq!(http.get("/api/v1/events").await.ok()["items"].as_array().unwrap().len(), 1, "events do not expire");
    let definition = http.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com").await.ok();
    assert_eq!((definition.get("status"), &definition["metadata"]["resourceVersion"]), (None, &json!("9")));
    assert_eq!(http.get("/apis/example.com/v1/namespaces/gone/widgets/w").await.ok()["spec"]["x"], 1);
    assert_eq!(http.get("/readyz").await.code, 200);
    assert_eq!(test.store.revision(), Revision(20));
    test.server.stop().await;
}

#[tokio::test]
async fn every_write_is_refused_with_the_same_sentence() {
    let test = shown().await;
    let http = test.http();
    let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}});
    let config = "/api/v1/namespaces/gone/configmaps";
    let web = "/api/v1/namespaces/gone/pods/web";
    let answers = [
        http.post(config, &object).await,
        http.post(&format!("{config}?dryRun=All"), &object).await,
        http.put(&format!("{config}/c"), &object).await,
        http.merge(web, &json!({"metadata": {"labels": {"a": "c"}}})).await,
        http.merge(&format!("{web}/status"), &json!({"status": {}})).await,
        http.delete(web).await,
        http.delete("/api/v1/namespaces/gone/pods").await,
        http.post(&format!("{web}/eviction"), &json!({})).await,
        http.post("/api/v1/namespaces/gone/serviceaccounts/default/token", &json!({})).await,
        http.get(&format!("{web}/exec?command=ls&stdout=true")).await,
        http.get(&format!("{web}/proxy/")).await,
        http.send(Method::POST, &format!("{web}/portforward"), "", "").await,
    ];
    for answer in answers {
        assert_eq!(answer.refusal(), (403, "Forbidden".to_owned()), "{}", answer.body_text());
        assert!(
            answer.json()["message"].as_str().unwrap().ends_with(&format!("is forbidden: {WHY}")),
            "{}",
            answer.body_text()
        );
    }
    assert_eq!(test.store.revision(), Revision(20));
}

#[tokio::test]
async fn reviews_are_answered_since_they_store_nothing() {
    let http = shown().await.http();
    let review = json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let answer = http.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.ok();
    assert_eq!(answer["status"]["allowed"], true);
}

#[tokio::test]
async fn nobody_is_called_whom_an_object_names() {
    let http = shown().await.http();
    assert_eq!(http.get("/apis/other.io/v1/things").await.code, 404, "the server behind an APIService is not asked");
    let converted = http.get("/apis/example.com/v2/namespaces/gone/widgets/w").await;
    assert!(converted.code == 500 && converted.body_text().contains(WHY), "{}", converted.body_text());
}
