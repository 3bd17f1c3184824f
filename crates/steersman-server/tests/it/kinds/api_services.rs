//! The APIServices of groups that the server serves, and of others.

use crate::support::{TestServer, names, text};
use serde_json::{Value, json};

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[tokio::test]
async fn every_version_that_upstream_serves_has_one_but_that_of_apiservices() {
    let test = TestServer::new().await;
    let http = test.http();
    let groups = http.get("/apis").await.ok();
    let groups = groups["groups"].as_array().unwrap();
    let versions = groups.iter().flat_map(|group| {
        let name = group["name"].as_str().unwrap();
        let versions = group["versions"].as_array().unwrap().iter().map(|version| version["version"].as_str().unwrap());
        versions.map(move |version| format!("{version}.{name}"))
    });
    let without = ["v1.apiregistration.k8s.io", "v1beta1.apiextensions.k8s.io", "v2alpha1.batch"];
    let mut wanted: Vec<String> = versions.filter(|name| !without.contains(&name.as_str())).collect();
    wanted.push("v1.".to_owned());
    wanted.sort();
    assert_eq!(names(&http.get(SERVICES).await.ok()), wanted);
    let apps = http.get(&format!("{SERVICES}/v1.apps")).await.ok();
    assert_eq!(
        apps["spec"],
        json!({"group": "apps", "groupPriorityMinimum": 17800, "version": "v1", "versionPriority": 15})
    );
    assert_eq!(text(&apps, "/status/conditions/0/reason"), "Local");
}

fn definition() -> Value {
    json!({
        "metadata": {"name": "hats.a.example.com"},
        "spec": {
            "group": "a.example.com", "scope": "Namespaced", "names": {"plural": "hats", "kind": "Hat"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

#[tokio::test]
async fn that_of_a_definition_comes_stays_as_it_is_and_goes_with_it() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut watch = http.watch(&format!("{SERVICES}?watch=1&fieldSelector=metadata.name=v1.a.example.com")).await;
    http.post(DEFINITIONS, &definition()).await.ok();
    let made = watch.next().await.unwrap();
    assert_eq!((&made["type"], &made["object"]["spec"]["versionPriority"]), (&json!("ADDED"), &json!(100)));
    let changed = json!({"spec": {"versionPriority": 7}});
    http.merge(&format!("{SERVICES}/v1.a.example.com"), &changed).await.ok();
    for priority in [7, 100] {
        assert_eq!(watch.next().await.unwrap()["object"]["spec"]["versionPriority"], priority);
    }
    http.delete(&format!("{DEFINITIONS}/hats.a.example.com")).await.ok();
    assert_eq!(watch.next().await.unwrap()["type"], "DELETED");
}

#[tokio::test]
async fn that_of_another_server_says_why_it_is_not_available() {
    let test = TestServer::new().await;
    let http = test.http();
    let far = json!({"metadata": {"name": "v1.far.example.com"}, "spec": {
        "group": "far.example.com", "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 15,
        "service": {"namespace": "default", "name": "far"},
    }});
    assert_eq!(http.get("/apis/far.example.com/v1/things").await.code, 404);
    http.post(SERVICES, &far).await.ok();
    let mut watch = http.watch(&format!("{SERVICES}?watch=1&fieldSelector=metadata.name=v1.far.example.com")).await;
    let mut reason = async || loop {
        let event = watch.next().await.unwrap();
        if let Some(reason) = event["object"].pointer("/status/conditions/0/reason") {
            return reason.clone();
        }
    };
    assert_eq!(reason().await, "ServiceNotFound");
    let answer = http.get("/apis/far.example.com/v1/things").await;
    assert_eq!((answer.code, &answer.bytes[..]), (503, &b"service unavailable\n"[..]));
    let service = json!({"metadata": {"name": "far"}, "spec": {"ports": [{"port": 443}]}});
    http.post("/api/v1/namespaces/default/services", &service).await.ok();
    assert_eq!(reason().await, "EndpointsNotFound");
}
