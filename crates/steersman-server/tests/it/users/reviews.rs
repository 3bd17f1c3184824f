//! Reviews, which are answered and not stored.

use crate::support::{TestServer, text};
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::Full;
use serde_json::{Value, json};

const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const RULES: &str = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

fn review(spec: &Value) -> Value {
    json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec})
}

#[tokio::test]
async fn everyone_may_ask_who_they_are() {
    let test = TestServer::new().await;
    let answer = test.http_as("alice").send(Method::POST, WHO, "application/json", "{}").await;
    let review = answer.ok();
    assert_eq!((answer.code, text(&review, "/kind")), (201, "SelfSubjectReview"));
    assert_eq!(review["status"]["userInfo"], json!({"username": "alice", "groups": ["system:authenticated"]}));
}

#[tokio::test]
async fn a_review_has_no_table() {
    let test = TestServer::new().await;
    let ask = async |form: &str| {
        let request = Request::post(WHO).header("content-type", "application/json").header("accept", form);
        test.http().raw(request.body(Full::<Bytes>::from("{}")).unwrap()).await
    };
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    assert_eq!(ask(table).await.refusal(), (406, "NotAcceptable".to_owned()));
    // kubectl accepts the object itself as the alternative.
    assert_eq!(text(&ask(&format!("{table},application/json")).await.ok(), "/kind"), "SelfSubjectReview");
    let metadata = ask("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await.ok();
    assert_eq!(text(&metadata, "/kind"), "PartialObjectMetadata");
}

#[tokio::test]
async fn everyone_may_ask_what_they_may_do() {
    let test = TestServer::new().await;
    let pods = review(&json!({"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "default"}}));
    let version = review(&json!({"nonResourceAttributes": {"verb": "get", "path": "/version"}}));
    for (http, question, want) in
        [(test.http(), &pods, true), (test.http_as("alice"), &pods, false), (test.http_as("alice"), &version, true)]
    {
        let answer = http.post(ACCESS, question).await.ok();
        assert_eq!(answer["status"]["allowed"], json!(want));
        assert_eq!(answer["spec"], question["spec"]);
    }
    // A null counts as absent.
    let mut pods = pods;
    pods["spec"]["nonResourceAttributes"] = Value::Null;
    assert_eq!(test.http().post(ACCESS, &pods).await.ok()["status"], json!({"allowed": true}));
    assert_eq!(test.http_as("alice").post(ACCESS, &pods).await.ok()["status"], json!({"allowed": false}));
    let rules = json!({"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1", "spec": {"namespace": "default"}});
    let answer = test.http().post(RULES, &rules).await.ok();
    let all = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
    assert!(answer["status"]["resourceRules"].as_array().unwrap().contains(&all), "{answer}");
    assert_eq!(answer["status"]["incomplete"], json!(false));
}

#[tokio::test]
async fn a_question_about_another_is_for_those_who_may_ask() {
    let test = TestServer::new().await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let question = json!({"spec": {"user": "alice", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    assert_eq!(test.http().post(path, &question).await.ok()["status"], json!({"allowed": false}));
    assert_eq!(test.http_as("alice").post(path, &question).await.code, 403);
    let nobody = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let refused = test.http().post(path, &nobody).await.json();
    let message = ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or group must be specified";
    assert_eq!(text(&refused, "/message"), message);
}

#[tokio::test]
async fn a_review_has_no_name_asks_one_thing_and_is_only_made() {
    let test = TestServer::new().await;
    let http = test.http();
    let mut named = review(&json!({"resourceAttributes": {"verb": "get", "resource": "pods"}}));
    named["metadata"] = json!({"name": "x"});
    assert_eq!(text(&http.post(ACCESS, &named).await.json(), "/details/causes/0/field"), "metadata");
    assert_eq!(http.post(ACCESS, &review(&json!({}))).await.code, 422);
    assert_eq!(http.get(ACCESS).await.code, 405);
    assert_eq!(http.get(&format!("{ACCESS}/x")).await.code, 405);
}
