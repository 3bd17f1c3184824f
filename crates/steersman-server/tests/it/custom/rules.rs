//! CEL rules of definitions, at every endpoint that writes objects. Their messages are compared with recordings
//! elsewhere.

use crate::custom::definitions::DEFINITIONS;
use crate::support::{Answer, Http, TestServer};
use http::Method;
use serde_json::{Value, json};

const SHOPS: &str = "/apis/example.com/v1/namespaces/default/shops";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/shops.example.com";

/// A definition of shops whose rules check the given values.
fn definition(spec_rules: &Value) -> Value {
    let status = json!({"type": "object", "properties": {"phase": {"type": "string", "maxLength": 9}},
        "x-kubernetes-validations": [{"rule": "self.phase != 'Closed'", "message": "it is open"}]});
    let spec = json!({"type": "object", "x-kubernetes-validations": spec_rules, "properties": {
        "replicas": {"type": "integer"}, "size": {"type": "integer"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shops.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "shops", "kind": "Shop"},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
            }],
        },
    })
}

async fn shops(spec_rules: &Value) -> Http {
    let http = TestServer::new().await.http();
    http.post(DEFINITIONS, &definition(spec_rules)).await.ok();
    http
}

fn shop(replicas: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "a"}, "spec": {"replicas": replicas}})
}

#[track_caller]
fn refused(answer: &Answer, wanted: &str) {
    assert_eq!(answer.refusal(), (422, "Invalid".to_owned()), "{}", answer.body_text());
    assert!(answer.body_text().contains(wanted), "{}", answer.body_text());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_write_an_object_is_judged_and_its_end_is_not() {
    let http = shops(&json!([{"rule": "self.replicas < 6", "message": "six are too many"}])).await;
    let too_many = "six are too many";
    refused(&http.post(SHOPS, &shop(6)).await, too_many);
    http.post(SHOPS, &shop(5)).await.ok();
    let path = format!("{SHOPS}/a");
    refused(&http.merge(&path, &json!({"spec": {"replicas": 7}})).await, too_many);
    refused(&http.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 7}})).await, too_many);
    let applied = format!("{path}?fieldManager=m&force=true");
    let apply = http.send(Method::PATCH, &applied, "application/apply-patch+yaml", shop(8).to_string());
    refused(&apply.await, too_many);
    refused(&http.merge(&format!("{path}/status"), &json!({"status": {"phase": "Closed"}})).await, "it is open");
    http.merge(&format!("{path}/status"), &json!({"status": {"phase": "Open"}})).await.ok();
    http.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 4}})).await.ok();
    assert_eq!(http.get(&path).await.ok()["spec"]["replicas"], 4);

    // A stored object may violate rules that were added later: writes warn of it, and it can be deleted.
    let stricter = definition(&json!([{"rule": "self.replicas < 2", "message": "two are too many"}]));
    let mut next = http.get(DEFINITION).await.ok();
    next["spec"] = stricter["spec"].clone();
    http.put(DEFINITION, &next).await.ok();
    let labeled = http.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await;
    labeled.ok();
    assert_eq!(labeled.header("warning"), Some(r#"299 - "spec: Invalid value: two are too many""#));
    let status = http.merge(&format!("{path}/status"), &json!({"status": {"phase": "Busy"}})).await;
    status.ok();
    assert_eq!(status.header("warning"), Some(r#"299 - "spec: Invalid value: two are too many""#));
    refused(&http.merge(&path, &json!({"spec": {"size": 1}})).await, "two are too many");
    http.delete(&path).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_about_a_change_sees_the_object_that_is_stored() {
    let rules = json!([{"rule": "self.replicas >= oldSelf.replicas", "message": "only more"}]);
    let http = shops(&rules).await;
    http.post(SHOPS, &shop(3)).await.ok();
    let path = format!("{SHOPS}/a");
    refused(&http.merge(&path, &json!({"spec": {"replicas": 2}})).await, "only more");
    http.merge(&path, &json!({"spec": {"replicas": 4}})).await.ok();
    refused(&http.merge(&format!("{path}/scale"), &json!({"spec": {"replicas": 3}})).await, "only more");
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_do_not_compile_are_no_part_of_a_definition() {
    let http = TestServer::new().await.http();
    let answer = http.post(DEFINITIONS, &definition(&json!([{"rule": "self.nothing"}]))).await;
    refused(&answer, "undefined field 'nothing'");
    assert_eq!(http.get(DEFINITION).await.code, 404);
    http.post(DEFINITIONS, &definition(&json!([{"rule": "true"}]))).await.ok();
    let mut next = http.get(DEFINITION).await.ok();
    next["spec"] = definition(&json!([{"rule": "self.replicas"}]))["spec"].clone();
    refused(&http.put(DEFINITION, &next).await, "cel expression must evaluate to a bool");
}
