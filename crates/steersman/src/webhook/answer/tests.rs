//! Calls as a kube-apiserver makes them, answered without a port.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use expect_test::{Expect, expect};
use futures::poll;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::*;
use crate::control::metrics::{Metrics, MetricsFormat};
use crate::webhook::{Admission, Conversion, Denial, FieldError, Limits, Operation, Write};

fn question(path: &str, body: impl ToString) -> Request<Full<Bytes>> {
    let body = Full::from(body.to_string());
    Request::post(path).header(CONTENT_TYPE, "application/json").body(body).unwrap()
}

async fn ask(webhooks: &Webhooks, path: &str, body: impl ToString) -> (u16, String) {
    read(webhooks.answer(question(path, body)).await).await
}

async fn read(response: Response<Full<Bytes>>) -> (u16, String) {
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

async fn review(webhooks: &Webhooks, path: &str, question: &Value) -> Value {
    let (status, body) = ask(webhooks, path, question).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// A review with the fields that a kube-apiserver sends.
fn admission(version: &str, operation: &str, kind: &str, object: Value, old: Value) -> Value {
    let gvk = json!({"group": "", "version": "v1", "kind": kind});
    let gvr = json!({"group": "", "version": "v1", "resource": format!("{}s", kind.to_lowercase())});
    json!({"kind": "AdmissionReview", "apiVersion": format!("admission.k8s.io/{version}"), "request": {
        "uid": "0b4ab323-b775-4dc2-ba05-2a02f95fcdad", "kind": gvk, "resource": gvr, "requestKind": gvk,
        "requestResource": gvr, "name": "a", "namespace": "default", "operation": operation,
        "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters", "system:authenticated"]},
        "object": object, "oldObject": old, "dryRun": false,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "kubectl-client-side-apply"}
    }})
}

fn config(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": data})
}

async fn inject(mut pod: Pod, request: &Admission<Pod>, image: &String) -> Result<Pod, Denial> {
    let spec = pod.spec.get_or_insert_default();
    let sidecar = serde_json::from_value(json!({"name": "sidecar", "image": image}))?;
    spec.containers.push(sidecar);
    request.warn(format!("{} gets a sidecar", request.name));
    request.audit("injected", "true");
    Ok(pod)
}

/// The patch of an answer.
fn patch_of(answer: &Value) -> Value {
    let patch: ByteString = serde_json::from_value(answer["response"]["patch"].clone()).unwrap();
    serde_json::from_slice(&patch.0).unwrap()
}

#[tokio::test]
async fn a_mutating_function_is_answered_with_what_it_changed_and_nothing_else() {
    let webhooks = Webhooks::new().mutate("/inject", inject, "proxy:1".to_owned());
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "creationTimestamp": null, "newer": 1},
        "spec": {"containers": [{"name": "app", "image": "app:1", "resources": {}, "newer": {"x": 1}}], "newer": []}
    });
    let answer = review(&webhooks, "/inject?timeout=10s", &admission("v1", "CREATE", "Pod", pod, Value::Null)).await;
    let expected =
        json!([{"op": "add", "path": "/spec/containers/1", "value": {"name": "sidecar", "image": "proxy:1"}}]);
    assert_eq!(patch_of(&answer), expected);
    let mut answer = answer;
    answer["response"]["patch"] = json!("...");
    expect![[
        r#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"allowed":true,"auditAnnotations":{"injected":"true"},"patch":"...","patchType":"JSONPatch","uid":"0b4ab323-b775-4dc2-ba05-2a02f95fcdad","warnings":["a gets a sidecar"]}}"#
    ]]
    .assert_eq(&answer.to_string());
}

#[tokio::test]
async fn what_needs_no_change_has_no_patch_and_a_deletion_is_not_changed() {
    let webhooks = Webhooks::new().defaulter(|config: &mut ConfigMap| {
        config.data.get_or_insert_default().entry("a".to_owned()).or_insert("1".to_owned());
    });
    let expected = json!({"uid": "0b4ab323-b775-4dc2-ba05-2a02f95fcdad", "allowed": true});
    let set = admission("v1", "CREATE", "ConfigMap", config(json!({"a": "2"})), Value::Null);
    assert_eq!(review(&webhooks, "/mutate--v1-configmap", &set).await["response"], expected);
    let deleted = admission("v1", "DELETE", "ConfigMap", Value::Null, config(json!({})));
    assert_eq!(review(&webhooks, "/mutate--v1-configmap", &deleted).await["response"], expected);
    let unset = admission("v1", "UPDATE", "ConfigMap", config(json!({})), config(json!({})));
    let answer = review(&webhooks, "/mutate--v1-configmap", &unset).await;
    assert_eq!(patch_of(&answer), json!([{"op": "add", "path": "/data/a", "value": "1"}]));
}

fn frozen(write: Write<'_, ConfigMap>) -> Result<(), Denial> {
    match write {
        Write::Update(old, new) if old.data != new.data => {
            Err(FieldError::forbidden("data", "is never changed").into())
        }
        Write::Delete(_) => Err(Denial::new(409, "Conflict", "it is in use")),
        _ => Ok(()),
    }
}

#[tokio::test]
async fn a_refusal_has_its_status_and_its_fields_in_the_version_of_the_question() {
    let webhooks = Webhooks::new().validator(frozen);
    let update = admission("v1beta1", "UPDATE", "ConfigMap", config(json!({"a": "1"})), config(json!({"a": "2"})));
    let answer = review(&webhooks, "/validate--v1-configmap", &update).await;
    expect![[
        r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"allowed":false,"status":{"apiVersion":"v1","code":422,"details":{"causes":[{"field":"data","message":"Forbidden: is never changed","reason":"FieldValueForbidden"}],"group":"","kind":"ConfigMap","name":"a"},"kind":"Status","message":"ConfigMap \"a\" is invalid: data: Forbidden: is never changed","reason":"Invalid","status":"Failure"},"uid":"0b4ab323-b775-4dc2-ba05-2a02f95fcdad"}}"#
    ]]
    .assert_eq(&answer.to_string());
    let delete = admission("v1", "DELETE", "ConfigMap", Value::Null, config(json!({})));
    let answer = review(&webhooks, "/validate--v1-configmap", &delete).await;
    assert_eq!(answer["response"]["status"]["reason"], "Conflict");
    let create = admission("v1", "CREATE", "ConfigMap", config(json!({})), Value::Null);
    assert_eq!(review(&webhooks, "/validate--v1-configmap", &create).await["response"]["allowed"], true);
}

#[tokio::test]
async fn an_object_that_is_not_of_the_type_is_refused_with_the_reason() {
    let webhooks = Webhooks::new().validator(frozen);
    let odd = admission("v1", "CREATE", "ConfigMap", config(json!({"a": 1})), Value::Null);
    let answer = review(&webhooks, "/validate--v1-configmap", &odd).await;
    let status = &answer["response"]["status"];
    assert_eq!((&status["code"], &status["reason"]), (&json!(400), &json!("BadRequest")));
    let message = status["message"].as_str().unwrap();
    assert!(
        message.starts_with("the ConfigMap \"a\" cannot be read: invalid type: integer `1`, expected a string"),
        "{message}"
    );
}

async fn judge(request: &Admission<Value>, released: &Notify) -> Result<(), Denial> {
    assert!(request.operation == Operation::Create && request.user.username.as_deref() == Some("kubernetes-admin"));
    match request.object.as_ref().and_then(|object| object["data"]["do"].as_str()) {
        Some("panic") => panic!("out of order"),
        Some("wait") => released.notified().await,
        Some("fail") => {
            "x".parse::<u8>()?;
        }
        _ => {}
    }
    Ok(())
}

fn to_do(what: &str) -> Value {
    admission("v1", "CREATE", "ConfigMap", config(json!({"do": what})), Value::Null)
}

#[tokio::test(start_paused = true)]
async fn a_function_that_panics_fails_or_hangs_fails_its_own_call_only() {
    let webhooks = Webhooks::new().validate("/judge", judge, Notify::new());
    let cases = [
        ("panic", 500, "the webhook's function panicked\n"),
        ("wait", 504, "the webhook's function did not answer within 1.5s\n"),
        ("fail", 500, "invalid digit found in string\n"),
    ];
    for (what, status, text) in cases {
        assert_eq!(ask(&webhooks, "/judge?timeout=1s500ms", to_do(what)).await, (status, text.to_owned()));
    }
    assert_eq!(ask(&webhooks, "/judge", to_do("nothing")).await.0, 200);
    let metrics = Metrics::new();
    metrics.observe_webhooks(&webhooks.stats);
    let text = metrics.encode(MetricsFormat::Prometheus);
    let lines: Vec<&str> = text.lines().filter(|line| line.contains("webhook=") && !line.contains("_bucket")).collect();
    expect![[r#"
        controller_runtime_webhook_requests_total{webhook="/judge",code="200"} 1
        controller_runtime_webhook_requests_total{webhook="/judge",code="500"} 2
        controller_runtime_webhook_requests_total{webhook="/judge",code="504"} 1
        controller_runtime_webhook_latency_seconds_sum{webhook="/judge"} 1.5
        controller_runtime_webhook_latency_seconds_count{webhook="/judge"} 4
        controller_runtime_webhook_panics_total{webhook="/judge"} 1
        controller_runtime_webhook_requests_in_flight{webhook="/judge"} 0
        steersman_webhook_calls_total{webhook="/judge",outcome="allowed"} 1
        steersman_webhook_calls_total{webhook="/judge",outcome="failed"} 1
        steersman_webhook_calls_total{webhook="/judge",outcome="panicked"} 1
        steersman_webhook_calls_total{webhook="/judge",outcome="timed_out"} 1"#]]
    .assert_eq(&lines.join("\n"));
}

async fn judge_shared(request: &Admission<Value>, released: &Arc<Notify>) -> Result<(), Denial> {
    judge(request, released).await
}

#[tokio::test(start_paused = true)]
async fn a_call_beyond_the_limit_waits_for_its_turn() {
    let released = Arc::new(Notify::new());
    let webhooks = Webhooks::new().limits(Limits { calls_max: 1, ..Limits::default() }).validate(
        "/judge",
        judge_shared,
        Arc::clone(&released),
    );
    let mut first = pin!(ask(&webhooks, "/judge?timeout=20s", to_do("wait")));
    assert!(poll!(&mut first).is_pending());
    // The body is not even read before the call's turn comes; its timeout passes meanwhile.
    assert_eq!(ask(&webhooks, "/judge?timeout=1s", to_do("nothing")).await.0, 504);
    let mut second = pin!(ask(&webhooks, "/judge?timeout=10s", to_do("nothing")));
    assert!(poll!(&mut second).is_pending());
    released.notify_one();
    assert_eq!(first.await.0, 200);
    assert_eq!(second.await.0, 200);
}

#[track_caller]
fn check_refused(request: Request<Full<Bytes>>, expected: (u16, &str)) {
    let limits = Limits { admission_body_max: 100, ..Limits::default() };
    let convert = Conversion::dynamic("example.com", "Timer", |object, _: &str| Ok::<_, Infallible>(object));
    let webhooks = Webhooks::new().validator(frozen).convert("/convert", convert).limits(limits);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (status, text) = runtime.block_on(async { read(webhooks.answer(request).await).await });
    assert_eq!((status, text.trim_end()), expected);
}

#[test]
fn what_is_no_question_is_refused_with_what_is_wanted() {
    let path = "/validate--v1-configmap";
    check_refused(question("/other", ""), (404, "no webhook at /other: there are /convert, /validate--v1-configmap"));
    check_refused(question(path, "x".repeat(101)), (413, "the question is longer than 100 bytes"));
    let no_json = "this is no AdmissionReview: EOF while parsing a value at line 1 column 0";
    check_refused(question(path, ""), (400, no_json));
    check_refused(
        question(path, json!({"apiVersion": "admission.k8s.io/v2", "kind": "AdmissionReview"})),
        (
            400,
            "want kind AdmissionReview of admission.k8s.io/v1 or admission.k8s.io/v1beta1, got AdmissionReview of admission.k8s.io/v2",
        ),
    );
    check_refused(
        question(path, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"})),
        (400, "the AdmissionReview has no request"),
    );
    check_refused(
        question(&format!("{path}?timeout=soon"), ""),
        (400, "the timeout \"soon\" is no duration: want for instance 10s"),
    );
    let get = Request::get(path).body(Full::default()).unwrap();
    check_refused(get, (405, "want POST, got GET"));
    let form = Request::post(path).header(CONTENT_TYPE, "text/plain").body(Full::default()).unwrap();
    check_refused(form, (415, "want content type application/json, got \"text/plain\""));
}

#[test]
fn durations_are_read_as_go_writes_them() {
    let ms = |text| go_duration(text).map(|duration| duration.as_millis());
    assert_eq!([ms("10s"), ms("1m30s"), ms("1.5s"), ms("250ms")], [Some(10_000), Some(90_000), Some(1_500), Some(250)]);
    assert_eq!([ms(""), ms("10"), ms("s"), ms("10 s"), ms("-1s"), ms("1.2.3s"), ms("1d")], [None; 7]);
}

fn conversion(version: &str, desired: &str, objects: Value) -> Value {
    json!({"kind": "ConversionReview", "apiVersion": format!("apiextensions.k8s.io/{version}"), "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "desiredAPIVersion": desired, "objects": objects
    }})
}

/// v1beta1 has the duration in minutes, v1 in seconds.
fn convert_timer(mut timer: Value, desired: &str) -> Result<Value, String> {
    let number = |field: &Value| field.as_u64().ok_or("spec has no number".to_owned());
    timer["spec"] = match desired {
        "example.com/v1" => json!({"seconds": number(&timer["spec"]["minutes"])? * 60}),
        _ => json!({"minutes": number(&timer["spec"]["seconds"])? / 60}),
    };
    timer["metadata"]["name"] = json!("another");
    timer["metadata"]["labels"] = json!({"converted": "yes"});
    Ok(timer)
}

fn timer(version: &str, name: &str, spec: Value) -> Value {
    let metadata = json!({"name": name, "namespace": "default", "uid": name, "newer": [1]});
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Timer", "metadata": metadata, "spec": spec})
}

#[track_caller]
fn check_converted(question: Value, expected: Expect) {
    let convert = Conversion::dynamic("example.com", "Timer", convert_timer);
    let webhooks = Webhooks::new().convert("/convert", convert);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let answer = runtime.block_on(review(&webhooks, "/convert", &question));
    expected.assert_eq(&answer.to_string());
}

#[test]
fn objects_are_converted_in_their_order_and_keep_their_metadata_but_for_labels_and_annotations() {
    let objects = json!([timer("v1beta1", "a", json!({"minutes": 2})), timer("v1", "b", json!({"seconds": 7}))]);
    check_converted(
        conversion("v1", "example.com/v1", objects),
        expect![[
            r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"convertedObjects":[{"apiVersion":"example.com/v1","kind":"Timer","metadata":{"labels":{"converted":"yes"},"name":"a","namespace":"default","newer":[1],"uid":"a"},"spec":{"seconds":120}},{"apiVersion":"example.com/v1","kind":"Timer","metadata":{"name":"b","namespace":"default","newer":[1],"uid":"b"},"spec":{"seconds":7}}],"result":{"status":"Success"},"uid":"705ab4f5-6393-11e8-b7cc-42010a800002"}}"#
        ]],
    );
}

#[test]
fn a_conversion_that_fails_names_the_object() {
    check_converted(
        conversion("v1beta1", "example.com/v1", json!([timer("v1beta1", "a", json!({}))])),
        expect![[
            r#"{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","response":{"convertedObjects":[],"result":{"message":"Timer \"default/a\" cannot be converted from example.com/v1beta1 to example.com/v1: spec has no number","status":"Failure"},"uid":"705ab4f5-6393-11e8-b7cc-42010a800002"}}"#
        ]],
    );
    check_converted(
        conversion("v1", "other.com/v1", json!([timer("v1beta1", "a", json!({}))])),
        expect![[
            r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"convertedObjects":[],"result":{"message":"no conversion for Timer of example.com/v1beta1 into other.com/v1: there is one for Timer.example.com","status":"Failure"},"uid":"705ab4f5-6393-11e8-b7cc-42010a800002"}}"#
        ]],
    );
}
