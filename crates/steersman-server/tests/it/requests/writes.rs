//! Writes: generated names, and writes without effect.

use crate::custom::definitions::{DEFINITIONS, KITES, definition, kite, spec};
use crate::support::{CONFIGS, TestServer, config, names, text};
use futures::future::join_all;
use http::Method;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread")]
async fn generated_names_differ() {
    let test = TestServer::new().await;
    let writers = (0..150).map(|_| {
        let http = test.http();
        tokio::spawn(async move {
            let object = http.post(CONFIGS, &json!({"metadata": {"generateName": "job-"}})).await.ok();
            object["metadata"]["name"].as_str().unwrap().to_owned()
        })
    });
    let made: BTreeSet<String> = join_all(writers).await.into_iter().map(|name| name.unwrap()).collect();
    assert_eq!(made.len(), 150);
    assert!(made.iter().all(|name| name.starts_with("job-") && name.len() == 9));
    assert_eq!(made.into_iter().collect::<Vec<_>>(), names(&test.http().get(CONFIGS).await.ok()));
}

#[tokio::test]
async fn a_dry_run_answers_and_leaves_nothing() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &json!({"metadata": {"name": "there"}, "data": {"n": "1"}})).await.ok();
    let before = (test.store.sync().await.unwrap(), http.get(CONFIGS).await.bytes);
    let there = format!("{CONFIGS}/there?dryRun=All");

    let created = http.post(&format!("{CONFIGS}?dryRun=All"), &config("new")).await.ok();
    assert!(created["metadata"]["uid"].is_string());
    let put = http.put(&there, &json!({"metadata": {"name": "there"}, "data": {"n": "2"}})).await.ok();
    let merged = http.merge(&there, &json!({"data": {"n": "2"}})).await.ok();
    assert_eq!((&put["data"]["n"], &merged["data"]["n"]), (&json!("2"), &json!("2")));
    let apply = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "applied"}}).to_string();
    let path = format!("{CONFIGS}/applied?dryRun=All&fieldManager=test");
    http.send(Method::PATCH, &path, "application/apply-patch+yaml", apply).await.ok();
    http.delete(&there).await.ok();
    http.delete(&format!("{CONFIGS}?dryRun=All")).await.ok();
    http.post("/api/v1/namespaces?dryRun=All", &config("new")).await.ok();
    assert_eq!(http.post(&format!("{CONFIGS}?dryRun=All"), &config("there")).await.code, 409);

    assert_eq!((test.store.sync().await.unwrap(), http.get(CONFIGS).await.bytes), before);
    assert_eq!(http.get("/api/v1/namespaces/new").await.code, 404);
}

#[tokio::test]
async fn a_dry_run_of_a_definition_serves_nothing() {
    let test = TestServer::new().await;
    let http = test.http();
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "kites.example.com"},
        "spec": {
            "group": "example.com", "scope": "Cluster", "names": {"plural": "kites", "kind": "Kite"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    });
    http.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", &definition).await.ok();
    assert_eq!(http.get("/apis/example.com/v1").await.code, 404);
}

#[tokio::test]
async fn a_change_that_changes_nothing_is_no_write() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(CONFIGS, &json!({"metadata": {"name": "c"}, "data": {"n": "1"}})).await.ok();
    let before = test.store.sync().await.unwrap();
    let object = http.merge(&format!("{CONFIGS}/c"), &json!({"data": {"n": "1"}})).await.ok();
    http.put(&format!("{CONFIGS}/c"), &object).await.ok();
    assert_eq!(test.store.sync().await.unwrap(), before);
}

#[tokio::test]
async fn an_object_with_finalizers_goes_with_the_last_of_them() {
    let test = TestServer::new().await;
    let http = test.http();
    let path = format!("{CONFIGS}/c");
    http.post(CONFIGS, &json!({"metadata": {"name": "c", "finalizers": ["example.com/a", "example.com/b"]}}))
        .await
        .ok();
    let marked = http.delete(&path).await.ok();
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(http.delete(&path).await.ok()["metadata"]["resourceVersion"], marked["metadata"]["resourceVersion"]);
    let more = json!({"metadata": {"finalizers": ["example.com/a", "example.com/c"]}});
    assert_eq!(http.merge(&path, &more).await.refusal(), (422, "Invalid".to_owned()));
    http.merge(&path, &json!({"metadata": {"finalizers": ["example.com/a"]}})).await.ok();
    http.merge(&path, &json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(http.get(&path).await.code, 404);
}

#[tokio::test]
async fn version_zero_is_no_version() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(DEFINITIONS, &definition(&spec())).await.ok();
    http.post(KITES, &kite("k", 1)).await.ok();
    http.post(CONFIGS, &config("c")).await.ok();
    let at_zero = |mut object: Value| {
        object["metadata"]["resourceVersion"] = json!("0");
        object
    };
    // An unconditional update of a custom resource is refused; one of a ConfigMap is not.
    let refused = http.put(&format!("{KITES}/k"), &at_zero(kite("k", 2))).await.json();
    let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
    assert!(text(&refused, "/message").ends_with(why), "{refused}");
    let patch = json!({"metadata": {"resourceVersion": "0"}, "spec": {"length": 2}});
    assert_eq!(http.merge(&format!("{KITES}/k"), &patch).await.refusal(), (422, "Invalid".to_owned()));
    assert_eq!(http.get(&format!("{KITES}/k")).await.ok()["spec"]["length"], 1);
    http.put(&format!("{CONFIGS}/c"), &at_zero(config("c"))).await.ok();
}

#[tokio::test]
async fn a_collection_goes_and_is_answered_in_order() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut made = Vec::new();
    for index in 0..200 {
        made.push(format!("c{index:03}"));
        http.post(CONFIGS, &config(made.last().unwrap())).await.ok();
    }
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    http.merge(&format!("{CONFIGS}/c100"), &held).await.ok();
    let wrong = json!({"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}).to_string();
    assert_eq!(http.send(Method::DELETE, CONFIGS, "application/json", wrong).await.code, 409);
    assert_eq!(names(&http.get(CONFIGS).await.ok()), made);
    assert_eq!(names(&http.delete(CONFIGS).await.ok()), made);
    assert_eq!(names(&http.get(CONFIGS).await.ok()), ["c100"]);
}

#[tokio::test]
async fn a_dry_run_takes_what_was_read_before() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut copy = http.post(CONFIGS, &config("one")).await.ok();
    copy["metadata"]["name"] = json!("two");
    assert_eq!(http.post(CONFIGS, &copy).await.code, 400);
    let made = http.post(&format!("{CONFIGS}?dryRun=All"), &copy).await.ok();
    assert_eq!(made["metadata"]["name"], "two");
    assert_eq!(http.get(&format!("{CONFIGS}/two")).await.code, 404);
}

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(replicas: u32) -> Value {
    let labels = json!({"app": "a"});
    json!({
        "metadata": {"name": "a"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    })
}

#[tokio::test]
async fn a_scale_can_be_applied() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(DEPLOYMENTS, &deployment(1)).await.ok();
    let apply = async |query: &str, scale: Value| {
        let path = format!("{DEPLOYMENTS}/a/scale?fieldManager=scaler{query}");
        http.send(Method::PATCH, &path, "application/apply-patch+yaml", scale.to_string()).await
    };
    let three = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}});
    let refused = apply("", three.clone()).await;
    assert_eq!((refused.code, text(&refused.json(), "/reason")), (409, "Conflict"));
    let made = apply("&force=true", three).await.ok();
    assert_eq!((&made["kind"], &made["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    let after = http.get(&format!("{DEPLOYMENTS}/a")).await.ok();
    assert_eq!(after["spec"]["replicas"], 3);
    let entries = after["metadata"]["managedFields"].as_array().unwrap();
    let own = entries.iter().find(|entry| entry["manager"] == "scaler").unwrap();
    assert_eq!((&own["operation"], &own["subresource"]), (&json!("Apply"), &json!("scale")));
    assert_eq!(own["fieldsV1"], json!({"f:spec": {"f:replicas": {}}}));
    let below_zero = json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": -1}});
    assert_eq!(apply("", below_zero).await.code, 422);
    let labelled = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"labels": {"a": "b c"}}, "spec": {"replicas": -1},
    });
    let refused = apply("&force=true", labelled).await;
    let causes = refused.json()["details"]["causes"].clone();
    assert_eq!((&causes[0]["field"], &causes[1]["field"]), (&json!("metadata.labels"), &json!("spec.replicas")));
    let other = json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2}});
    assert_eq!(apply("", other).await.code, 400);
}

#[tokio::test]
async fn a_scale_takes_a_strategic_merge_patch() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(DEPLOYMENTS, &deployment(1)).await.ok();
    let path = format!("{DEPLOYMENTS}/a/scale");
    let patch = json!({"spec": {"replicas": 2}}).to_string();
    let made = http.send(Method::PATCH, &path, "application/strategic-merge-patch+json", patch).await.ok();
    assert_eq!(made["spec"]["replicas"], 2);
    assert_eq!(http.get(&format!("{DEPLOYMENTS}/a")).await.ok()["spec"]["replicas"], 2);
}

#[tokio::test]
async fn an_object_of_a_namespace_is_found_below_its_namespace_only() {
    let test = TestServer::new().await;
    let http = test.http();
    http.post(DEFINITIONS, &definition(&spec())).await.ok();
    let refused = |answer: crate::support::Answer| (answer.code, text(&answer.json(), "/reason").to_owned());
    let (not_found, not_allowed) = ((404, "NotFound".to_owned()), (405, "MethodNotAllowed".to_owned()));
    for path in ["/api/v1/configmaps/a", "/apis/example.com/v1/kites/a"] {
        let apply = http.send(Method::PATCH, path, "application/apply-patch+yaml", "{}").await;
        assert_eq!(refused(apply), not_found, "{path}");
        assert_eq!(refused(http.put(path, &config("a")).await), not_found, "{path}");
        assert_eq!(refused(http.delete(path).await), not_found, "{path}");
        assert_eq!(refused(http.get(path).await), not_found, "{path}");
    }
    assert_eq!(refused(http.post("/api/v1/configmaps", &config("a")).await), not_allowed);
    assert_eq!(refused(http.delete("/api/v1/configmaps").await), not_allowed);
    assert_eq!(refused(http.post("/apis/example.com/v1/kites", &kite("a", 1)).await), not_found);
    assert!(names(&http.get("/api/v1/configmaps").await.ok()).iter().all(|name| name != "a"));
}

#[tokio::test]
async fn a_default_for_the_whole_status_is_there_from_the_beginning() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut definition = definition(&spec());
    let version = &mut definition["spec"]["versions"][0];
    version["subresources"] = json!({"status": {}});
    version["schema"]["openAPIV3Schema"]["properties"]["status"] =
        json!({"type": "object", "default": {"seen": -1}, "properties": {"seen": {"type": "integer"}}});
    http.post(DEFINITIONS, &definition).await.ok();
    let mut sent = kite("red", 1);
    sent["status"] = json!({"seen": 7});
    let made = http.post(KITES, &sent).await.ok();
    assert_eq!(made["status"], json!({"seen": -1}));
    assert_eq!(http.get(&format!("{KITES}/red")).await.ok()["status"], json!({"seen": -1}));
}

#[tokio::test]
async fn times_of_the_years_0_to_9999_are_kept() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    const EVENTS: &str = "/api/v1/namespaces/default/events";
    let test = TestServer::new().await;
    let http = test.http();
    let event = |time: &str| {
        json!({
            "metadata": {"generateName": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"},
            "reason": "r", "message": "m", "lastTimestamp": time,
        })
    };
    for (given, kept) in [
        ("9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59Z"),
        ("9999-12-31T23:59:59+01:00", "9999-12-31T22:59:59Z"),
        ("0001-01-02T00:00:00Z", "0001-01-02T00:00:00Z"),
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
    ] {
        assert_eq!(text(&http.post(EVENTS, &event(given)).await.ok(), "/lastTimestamp"), kept);
    }
    for wrong in ["9999-12-31T23:59:59-01:00", "0000-01-01T00:00:00+01:00", "9999-12-32T00:00:00Z"] {
        assert_eq!(http.post(EVENTS, &event(wrong)).await.code, 400, "{wrong}");
    }
    let lease = json!({"metadata": {"name": "l"}, "spec": {"renewTime": "9999-12-31T23:59:59.999999Z"}});
    assert_eq!(text(&http.post(LEASES, &lease).await.ok(), "/spec/renewTime"), "9999-12-31T23:59:59.999999Z");
    // The last of these times in seconds since 1970.
    let protobuf = http.get_as(&format!("{LEASES}/l"), "application/vnd.kubernetes.protobuf").await;
    let seconds = [0x08, 0xff, 0x82, 0xd1, 0xff, 0xaf, 0x07];
    assert!(protobuf.bytes.windows(seconds.len()).any(|bytes| bytes == seconds), "{:x?}", protobuf.bytes);
    let table = http.get_as(EVENTS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(table["rows"].as_array().map(Vec::len), Some(5), "times that are far away have an age too");
}
